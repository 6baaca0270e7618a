"""Find the tables that were computed from a table, directly or not, on any branch, and the sinks that deliver them.

Uses what commits recorded and what the project last declared. Reads the catalog database only.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from runnel.declare.model.flow import quarantine_table_of
from runnel.lake.control.declarations import read_declarations
from runnel.lake.flow_state.streams import list_streams
from runnel.lake.history.branches import list_branches, read_head_state
from runnel.lake.history.commits import find_commit
from runnel.lake.history.content_origin import find_origin
from runnel.names import TableName


@dataclass(frozen=True)
class DerivedTable:
    """A table that was computed from another one, the branches that have it, and the command that recomputes it."""

    table: str
    branches: tuple[str, ...]
    fix: str


def find_derived_tables(connection: Connection, table: TableName) -> tuple[DerivedTable, ...]:
    """Return every table, and its quarantine table, that may hold data computed from the rows of a table."""
    edges = set(_iter_edges(connection))
    all_derived, frontier = set[TableName](), {table}
    while frontier:
        frontier = (
            {derived_table for input_table, derived_table in edges if input_table in frontier} - all_derived - {table}
        )
        all_derived |= frontier
    stream_tables = {stream.table for stream in list_streams(connection).values() if stream.is_task}
    branches_by_table: dict[TableName, list[str]] = {}
    for branch in list_branches(connection):
        state = read_head_state(connection, branch.name)
        for derived_table in sorted(all_derived):
            for name in (derived_table, quarantine_table_of(derived_table)):
                if name in state:
                    branches_by_table.setdefault(name, []).append(branch.name)
    return tuple(
        DerivedTable(str(name), tuple(sorted(branch_names)), _describe_fix(name, stream_tables))
        for name, branch_names in branches_by_table.items()
    )


def find_sinks(connection: Connection, tables: set[str]) -> tuple[str, ...]:
    """Return the sinks that deliver one of the tables: delivered data is outside the lake."""
    return tuple(sorted(sink.sink for sink in read_declarations(connection).sinks.values() if sink.table in tables))


def _iter_edges(connection: Connection) -> Iterator[tuple[TableName, TableName]]:
    """Yield pairs of a table and a table that was computed from it."""
    for (_, derived_table), stream in list_streams(connection).items():
        yield from ((used, derived_table) for used in stream.append_logs)
    for declared_table in read_declarations(connection).tables.values():
        yield from (
            (TableName.parse_unchecked(declared_table.table), TableName.parse_unchecked(reader))
            for reader in declared_table.readers
        )
    for branch in list_branches(connection):
        commit = find_commit(connection, branch.head)
        for derived_table in read_head_state(connection, branch.name) if commit else ():
            table_origin = find_origin(connection, commit, derived_table) if commit else None
            used = table_origin.origin_step.change.detail.get("inputs", {}) if table_origin else {}
            yield from ((TableName.parse_unchecked(name), derived_table) for name in used)


def _describe_fix(table: TableName, stream_tables: set[TableName]) -> str:
    if table.layer == "quarantine":
        return f"runnel erase {table} --where ..."
    rerun_command = (
        f"runnel stream reset {table} and runnel run {table}" if table in stream_tables else f"runnel run {table}"
    )
    return f"{rerun_command} for its current rows; runnel erase {table} --where ... for its older versions"
