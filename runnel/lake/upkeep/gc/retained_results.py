"""Find the versions that results retain: their own versions, and the inputs of current results.

Reads the catalog database, and deletes expired results from it, in the caller's transaction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.flow_state import results
from runnel.lake.upkeep.gc.retained_commits import iter_version_uses, read_catalog_rows, read_unexpired_commits
from runnel.lake.upkeep.gc.retention import Retention, parse_seconds

ResultKey = tuple[str, str]
"""The table and the key of a result."""
_BATCH_SIZE = 200


@dataclass(frozen=True)
class RetainedVersion:
    """A version that a result retains, and its table."""

    table: str
    location: str


def find_expired(
    connection: Connection, retention: Retention, now: str, expiring_commits: frozenset[str]
) -> frozenset[ResultKey]:
    """Return the results that were last computed or used too long ago and whose version nothing else needs.

    Commits that are about to expire are ignored. A current result never expires, though a compaction may have replaced
    its version: without it a plan could not see that the table is up to date.
    """
    columns = schema.results.c
    limit = format_time(parse_time(now) - timedelta(seconds=parse_seconds(retention.failed)))
    query = sa.select(columns.table_name, columns.key, columns.location).where(columns.used_at <= limit)
    rows = connection.execute(query).all()
    if not rows:
        return frozenset()
    needed = {
        use.location for use in iter_version_uses(connection, read_unexpired_commits(connection, expiring_commits))
    }
    needed |= {row.location for row in read_catalog_rows(connection)}
    current = {(str(result.table), result.key) for result in results.list_current(connection)}
    keys = ((row.table_name, row.key) for row in rows if row.location not in needed)
    return frozenset(key for key in keys if key not in current)


def forget(connection: Connection, result_keys: frozenset[ResultKey]) -> None:
    """Delete results; files that only they retained are swept afterwards."""
    columns, keys = schema.results.c, sorted(result_keys)
    for start in range(0, len(keys), _BATCH_SIZE):
        batch_filter = sa.tuple_(columns.table_name, columns.key).in_(keys[start : start + _BATCH_SIZE])
        connection.execute(schema.results.delete().where(batch_filter))


def forget_by_location(connection: Connection, locations: Sequence[str]) -> None:
    """Delete the results that have one of these versions."""
    columns = schema.results.c
    for start in range(0, len(locations), _BATCH_SIZE):
        batch = locations[start : start + _BATCH_SIZE]
        row_filter = sa.or_(columns.location.in_(batch), columns.quarantine_location.in_(batch))
        connection.execute(schema.results.delete().where(row_filter))


def iter_versions(connection: Connection, excluded: frozenset[ResultKey] = frozenset()) -> Iterator[RetainedVersion]:
    """Yield the versions of all results that are not `excluded`, and of their quarantined rows."""
    columns = schema.results.c
    query = sa.select(columns.table_name, columns.key, columns.location, columns.quarantine_location)
    for row in connection.execute(query):
        if (row.table_name, row.key) not in excluded:
            yield RetainedVersion(row.table_name, row.location)
            if row.quarantine_location:
                yield RetainedVersion(f"quarantine.{row.table_name.replace('.', '_')}", row.quarantine_location)


def iter_inputs(connection: Connection, excluded: frozenset[ResultKey] = frozenset()) -> Iterator[RetainedVersion]:
    """Yield the input versions of current and recent results, so that later changes of the inputs can be found.

    They are kept, but not guaranteed: one may have been deleted while its result was not current.
    """
    for result in (*results.list_current(connection), *results.list_recent_of_all(connection)):
        if (str(result.table), result.key) not in excluded:
            yield from (RetainedVersion(str(table), head.location) for table, head in result.inputs.items())
