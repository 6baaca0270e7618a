"""Find and drop stored project code that no retained commit or result refers to and that was not used recently.

Reads and writes the catalog database only, in the caller's transaction.
"""

import re
from collections.abc import Iterator
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.flow_state.code_store import MANIFEST, parse_manifest
from runnel.lake.upkeep.gc.retained_commits import iter_version_uses, read_open_writes, read_unexpired_commits
from runnel.lake.upkeep.gc.retained_results import ResultKey
from runnel.lake.upkeep.gc.retention import Retention

CODE_ID_KEY = "code_id"
"""The key under which the detail of a change or a result stores the id of its code."""
_CODE_ID_PATTERN = re.compile(
    rf'"{CODE_ID_KEY}": "([0-9a-f]{{64}})"'
)  # quotes inside JSON strings are escaped: only keys match
_BATCH_SIZE = 500


def find_unneeded(
    connection: Connection,
    retention: Retention,
    now: str,
    expiring_commits: frozenset[str] = frozenset(),
    expiring_results: frozenset[ResultKey] = frozenset(),
) -> frozenset[str]:
    """Return the code manifests that nothing needs, ignoring commits and results that are about to expire.

    A run stores its code before it publishes anything, so code stored since the oldest open write began is needed.
    """
    grace = format_time(parse_time(now) - timedelta(seconds=retention.grace_seconds))
    limit = min([grace, *read_open_writes(connection)])
    columns = schema.code.c
    query = sa.select(columns.hash).where(columns.kind == MANIFEST, columns.kept_at < limit)
    old_manifests = frozenset(connection.execute(query).scalars())
    return (
        old_manifests - frozenset(_iter_referenced_manifests(connection, expiring_commits, expiring_results))
        if old_manifests
        else old_manifests
    )


def drop_manifests(connection: Connection, manifests: frozenset[str]) -> None:
    """Drop manifests, and the files that no other manifest names."""
    if not manifests:
        return
    columns = schema.code.c
    rows = connection.execute(sa.select(columns.hash, columns.content).where(columns.kind == MANIFEST)).all()
    files_by_manifest = {row.hash: set(parse_manifest(row.content).values()) for row in rows}
    retained_files = {
        file for manifest, file_hashes in files_by_manifest.items() if manifest not in manifests for file in file_hashes
    }
    dropped_hashes = sorted(
        manifests | {file for manifest in manifests for file in files_by_manifest.get(manifest, ())} - retained_files
    )
    for start in range(0, len(dropped_hashes), _BATCH_SIZE):
        connection.execute(schema.code.delete().where(columns.hash.in_(dropped_hashes[start : start + _BATCH_SIZE])))


def _iter_referenced_manifests(
    connection: Connection, expiring_commits: frozenset[str], expiring_results: frozenset[ResultKey]
) -> Iterator[str]:
    results, changes = schema.results.c, schema.changes.c
    for row in connection.execute(sa.select(results.table_name, results.key, results.detail)):
        if (row.table_name, row.key) not in expiring_results:
            yield from _CODE_ID_PATTERN.findall(row.detail)
    unexpired_commits = read_unexpired_commits(connection, expiring_commits)
    commit_ids, versions = (
        {commit.id for commit in unexpired_commits},
        {use.location for use in iter_version_uses(connection, unexpired_commits)},
    )
    query = sa.select(changes.commit_id, changes.after, changes.detail).where(
        changes.detail.contains(f'"{CODE_ID_KEY}"')
    )
    for row in connection.execute(query):
        if row.commit_id in commit_ids or row.after in versions:
            yield from _CODE_ID_PATTERN.findall(row.detail)
