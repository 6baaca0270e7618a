"""Which tables were made from a table, through others too, on any branch; and which sinks hand them on.

By what commits recorded and by what the project last declared. Reads the catalog database only.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from runnel.declare.model.flow import quarantine_of
from runnel.lake.control.declarations import declared
from runnel.lake.flow_state.streams import streams
from runnel.lake.history.branches import branches, head_state
from runnel.lake.history.commits import find
from runnel.lake.history.content_origin import origin
from runnel.names import TableName


@dataclass(frozen=True)
class Derived:
    """A table that was made from another one, the branches that have it, and what makes it anew."""

    table: str
    branches: tuple[str, ...]
    fix: str


def derived_tables(connection: Connection, table: TableName) -> tuple[Derived, ...]:
    """Return every table that may hold what was computed from the rows of a table, with its quarantine."""
    edges = set(_edges(connection))
    found, new = set[TableName](), {table}
    while new:
        new = {made for used, made in edges if used in new} - found - {table}
        found |= new
    streamed = {stream.table for stream in streams(connection).values() if stream.is_task}
    places: dict[TableName, list[str]] = {}
    for branch in branches(connection):
        state = head_state(connection, branch.name)
        for made in sorted(found):
            for name in (made, quarantine_of(made)):
                if name in state:
                    places.setdefault(name, []).append(branch.name)
    return tuple(Derived(str(name), tuple(sorted(where)), _fix(name, streamed)) for name, where in places.items())


def sinks_of(connection: Connection, tables: set[str]) -> tuple[str, ...]:
    """Return the sinks that hand some tables on: what they delivered is outside the lake."""
    return tuple(sorted(sink.sink for sink in declared(connection).sinks.values() if sink.table in tables))


def _edges(connection: Connection) -> Iterator[tuple[TableName, TableName]]:
    """Yield pairs of a table and one that was made from it."""
    for (_, made), stream in streams(connection).items():
        yield from ((used, made) for used in stream.tapes)
    for watched in declared(connection).tables.values():
        yield from ((TableName.stored(watched.table), TableName.stored(reader)) for reader in watched.readers)
    for branch in branches(connection):
        commit = find(connection, branch.head)
        for made in head_state(connection, branch.name) if commit else ():
            found = origin(connection, commit, made) if commit else None
            used = found.made.change.detail.get("inputs", {}) if found else {}
            yield from ((TableName.stored(name), made) for name in used)


def _fix(table: TableName, streamed: set[TableName]) -> str:
    if table.layer == "quarantine":
        return f"runnel erase {table} --where ..."
    again = f"runnel stream reset {table} and runnel run {table}" if table in streamed else f"runnel run {table}"
    return f"{again} for what it is now; runnel erase {table} --where ... for its older versions"
