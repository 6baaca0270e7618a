"""Which code is kept: what a retained commit or a known result names, and what was just used.

Reads and writes the catalog database only, in the caller's transaction.
"""

import re
from collections.abc import Iterator
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.flow_state.code_store import MANIFEST, files_of
from runnel.lake.upkeep.gc.retained_commits import open_writes, unexpired, uses
from runnel.lake.upkeep.gc.retained_results import Key
from runnel.lake.upkeep.gc.retention import Retention

NAMED = "code_id"
"""Where the detail of a change or a result names its code."""
_ID = re.compile(rf'"{NAMED}": "([0-9a-f]{{64}})"')  # a quote within a text has a backslash, so it never matches
_AT_ONCE = 500


def unneeded(
    connection: Connection,
    retention: Retention,
    now: str,
    gone: frozenset[str] = frozenset(),
    worn: frozenset[Key] = frozenset(),
) -> frozenset[str]:
    """Return the manifests that nothing needs. `gone` and `worn` are commits and results that are about to go.

    A run names its code before it has anything to show for it: what was kept since an open write began stays.
    """
    grace = stamp(moment(now) - timedelta(seconds=retention.grace_seconds))
    limit = min([grace, *open_writes(connection)])
    columns = schema.code.c
    old = sa.select(columns.hash).where(columns.kind == MANIFEST, columns.kept_at < limit)
    found = frozenset(connection.execute(old).scalars())
    return found - frozenset(_named(connection, gone, worn)) if found else found


def drop(connection: Connection, manifests: frozenset[str]) -> None:
    """Drop manifests, and the files that no other one names."""
    if not manifests:
        return
    columns = schema.code.c
    rows = connection.execute(sa.select(columns.hash, columns.content).where(columns.kind == MANIFEST)).all()
    files = {row.hash: set(files_of(row.content).values()) for row in rows}
    kept = {file for manifest, named in files.items() if manifest not in manifests for file in named}
    doomed = sorted(manifests | {file for manifest in manifests for file in files.get(manifest, ())} - kept)
    for start in range(0, len(doomed), _AT_ONCE):
        connection.execute(schema.code.delete().where(columns.hash.in_(doomed[start : start + _AT_ONCE])))


def _named(connection: Connection, gone: frozenset[str], worn: frozenset[Key]) -> Iterator[str]:
    results, changes = schema.results.c, schema.changes.c
    for row in connection.execute(sa.select(results.table_name, results.key, results.detail)):
        if (row.table_name, row.key) not in worn:
            yield from _ID.findall(row.detail)
    kept = unexpired(connection, gone)
    commits, versions = {one.id for one in kept}, {use.location for use in uses(connection, kept)}
    query = sa.select(changes.commit_id, changes.after, changes.detail).where(changes.detail.contains(f'"{NAMED}"'))
    for row in connection.execute(query):
        if row.commit_id in commits or row.after in versions:
            yield from _ID.findall(row.detail)
