"""Which versions results keep: their own for as long as they are known, and the inputs of those that are current.

Reads the catalog database only, in the caller's transaction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.flow_state import results
from runnel.lake.upkeep.gc.retained_commits import registered, unexpired, uses
from runnel.lake.upkeep.gc.retention import Retention, seconds_of

Key = tuple[str, str]
"""The table and the key of a result."""
_AT_ONCE = 200


@dataclass(frozen=True)
class Kept:
    """A version that a result keeps, and the table that it is one of."""

    table: str
    location: str


def outworn(connection: Connection, retention: Retention, now: str, gone: frozenset[str]) -> frozenset[Key]:
    """Return the results that were last made or used too long ago, and whose version nothing else needs.

    `gone` are commits that are about to expire. A current result is never outworn, though a compaction may have put
    another version in its place: without it nobody would know that the table is what its task makes.
    """
    columns = schema.results.c
    limit = stamp(moment(now) - timedelta(seconds=seconds_of(retention.failed)))
    old = sa.select(columns.table_name, columns.key, columns.location).where(columns.used_at <= limit)
    rows = connection.execute(old).all()
    if not rows:
        return frozenset()
    needed = {use.location for use in uses(connection, unexpired(connection, gone))}
    needed |= {row.location for row in registered(connection)}
    current = {(str(result.table), result.key) for result in results.current(connection)}
    keys = ((row.table_name, row.key) for row in rows if row.location not in needed)
    return frozenset(key for key in keys if key not in current)


def forget(connection: Connection, worn: frozenset[Key]) -> None:
    """Forget results; what only they kept is swept afterwards."""
    columns, keys = schema.results.c, sorted(worn)
    for start in range(0, len(keys), _AT_ONCE):
        some = sa.tuple_(columns.table_name, columns.key).in_(keys[start : start + _AT_ONCE])
        connection.execute(schema.results.delete().where(some))


def forget_at(connection: Connection, locations: Sequence[str]) -> None:
    """Forget the results whose versions these are."""
    columns = schema.results.c
    for start in range(0, len(locations), _AT_ONCE):
        some = locations[start : start + _AT_ONCE]
        here = sa.or_(columns.location.in_(some), columns.quarantine_location.in_(some))
        connection.execute(schema.results.delete().where(here))


def kept(connection: Connection, but: frozenset[Key] = frozenset()) -> Iterator[Kept]:
    """Yield the versions of all results, leaving out those in `but`, and of the rows that they set aside."""
    columns = schema.results.c
    query = sa.select(columns.table_name, columns.key, columns.location, columns.quarantine_location)
    for row in connection.execute(query):
        if (row.table_name, row.key) not in but:
            yield Kept(row.table_name, row.location)
            if row.quarantine_location:
                yield Kept(f"quarantine.{row.table_name.replace('.', '_')}", row.quarantine_location)


def inputs(connection: Connection, but: frozenset[Key] = frozenset()) -> Iterator[Kept]:
    """Yield the versions that current and recent results were made of, so that a change since can be told.

    They are kept, not promised: one may have gone while its result was not current.
    """
    for result in (*results.current(connection), *results.unheld(connection)):
        if (str(result.table), result.key) not in but:
            yield from (Kept(str(table), head.location) for table, head in result.inputs.items())
