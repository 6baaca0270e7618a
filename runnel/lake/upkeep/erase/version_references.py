"""Read and swap every reference to a version of a table in the catalog database.

Runs in the caller's transaction. Never reads the metadata files of the versions.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.diff.content_id import is_location
from runnel.lake.flow_state.append_log import AppendLog, append_log_name
from runnel.lake.flow_state.results import parse_result
from runnel.names import TableName


class NewVersionAppeared(Exception):
    """A version appeared that was not examined: the erasure has to try again."""


@dataclass(frozen=True)
class VersionChange:
    """A change that a commit recorded."""

    line: str
    table: str
    seq: int
    before: str | None
    after: str | None
    content: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class BranchHead:
    """A table's newest version on a branch, as Runnel last published it."""

    branch: str
    table: str
    location: str
    content: str


@dataclass(frozen=True)
class CatalogReference:
    """A row of Iceberg's catalog: of a branch, or of a slot."""

    catalog: str
    layer: str
    name: str
    location: str
    previous: str | None


@dataclass(frozen=True)
class ResultReference:
    """A result of one of the tables, or one that used their versions: `own_locations` are the versions it produced."""

    table: str
    key: str
    own_locations: frozenset[str]
    used_locations: frozenset[str]


@dataclass(frozen=True)
class AppendLogRow:
    """The append log of a table for a stream; `stored_text` is the JSON of all append logs in the stream's row."""

    branch: str
    stream: str
    table: str
    append_log: AppendLog
    stored_text: str


@dataclass(frozen=True)
class VersionReferences:
    """Everything that refers to a version of some tables."""

    changes: tuple[VersionChange, ...]
    heads: tuple[BranchHead, ...]
    catalog_rows: tuple[CatalogReference, ...]
    branches: tuple[str, ...]
    results: tuple[ResultReference, ...] = ()
    append_logs: tuple[AppendLogRow, ...] = ()

    @property
    def append_log_locations(self) -> frozenset[str]:
        """Return the append logs of streams: private versions, with snapshots that must stay."""
        return frozenset(row.append_log.location for row in self.append_logs)

    @property
    def locations(self) -> frozenset[str]:
        """Return every version that anything refers to."""
        names = {text for change in self.changes for text in (change.before, change.after, change.content)}
        names |= {text for head in self.heads for text in (head.location, head.content)}
        names |= {catalog_row.location for catalog_row in self.catalog_rows} | {
            text for result in self.results for text in result.own_locations
        }
        names |= {text for row in self.append_logs for text in (row.append_log.location, row.append_log.reached)}
        return frozenset(text for text in names if text and is_location(text))

    @property
    def head_locations(self) -> list[str]:
        """Return the versions of branches, main's first."""
        heads = sorted(self.heads, key=lambda head: (head.branch != "main", head.branch))
        return list(dict.fromkeys(head.location for head in heads))


@dataclass(frozen=True)
class VersionSwap:
    """The replacements of versions, of content ids, and of the files of each version."""

    locations: Mapping[str, str]
    contents: Mapping[str, str]
    files: Mapping[str, Mapping[str, str | None]]


def read_references(connection: Connection, names: Iterable[str]) -> VersionReferences:
    """Return everything that refers to a version of the tables called `names`."""
    table_names = sorted(names)
    change, head = schema.changes.c, schema.heads.c
    steps = connection.execute(sa.select(schema.changes).where(change.table_name.in_(table_names)).order_by(change.seq))
    heads = connection.execute(sa.select(schema.heads).where(head.table_name.in_(table_names)))
    catalog_columns = schema.iceberg_tables.c
    full_name = catalog_columns.table_namespace + "." + catalog_columns.table_name
    in_slots = [".".join(append_log_name(TableName.parse_unchecked(name))) for name in table_names]
    places = connection.execute(
        sa.select(schema.iceberg_tables).where(
            full_name.in_([*table_names, *in_slots]), catalog_columns.metadata_location != ""
        )
    )
    branches = connection.execute(sa.select(schema.branches.c.name)).scalars()
    return VersionReferences(
        tuple(_parse_change(row) for row in steps),
        tuple(BranchHead(row.branch, row.table_name, row.location, row.content) for row in heads),
        tuple(_parse_catalog_row(row) for row in places),
        tuple(branches),
        tuple(_iter_results(connection, frozenset(table_names))),
        tuple(_iter_append_logs(connection, frozenset(table_names))),
    )


def _iter_append_logs(connection: Connection, names: frozenset[str]) -> Iterator[AppendLogRow]:
    columns = schema.streams.c
    for row in connection.execute(sa.select(columns.branch, columns.table_name, columns.tapes)):
        for table, append_log in json.loads(row.tapes).items():
            if table in names:
                yield AppendLogRow(row.branch, row.table_name, table, AppendLog(**append_log), row.tapes)


def _iter_results(connection: Connection, names: frozenset[str]) -> Iterator[ResultReference]:
    for row in connection.execute(sa.select(schema.results)):
        result = parse_result(row)
        quarantine = result.quarantine if f"quarantine.{row.table_name.replace('.', '_')}" in names else None
        own_locations = {row.location} if row.table_name in names else set()
        own_locations |= {quarantine.location} if quarantine else set()
        used_locations = {head.location for table, head in result.inputs.items() if str(table) in names}
        if own_locations or used_locations:
            yield ResultReference(row.table_name, row.key, frozenset(own_locations), frozenset(used_locations))


def forget_results(connection: Connection, references: VersionReferences, unchanged: Container[str]) -> None:
    """Delete the results of the tables, and those that used a version of them that is not `unchanged`."""
    columns = schema.results.c
    for result in references.results:
        if result.own_locations or any(location not in unchanged for location in result.used_locations):
            row_filter = sa.and_(columns.table_name == result.table, columns.key == result.key)
            connection.execute(schema.results.delete().where(row_filter))


def rename_files(connection: Connection, names: Iterable[str], new_names: Mapping[str, Sequence[str]]) -> None:
    """Update the files in the ingest positions of tables; a file may have become several files."""
    columns, table = schema.ingested.c, schema.ingested
    keys = (columns.line, columns.table_name, columns.path, columns.seq)
    rows = connection.execute(sa.select(*keys, columns.files).where(columns.table_name.in_(sorted(names)))).all()
    for row in rows:
        files = json.loads(row.files)
        new_files = list(dict.fromkeys(new for file in files for new in new_names.get(file, (file,))))
        if new_files != files:
            row_filter = sa.and_(*(column == row._mapping[column.name] for column in keys))
            connection.execute(table.update().where(row_filter).values(files=json.dumps(new_files)))


def find_sharing_tables(connection: Connection, folders: Iterable[str]) -> set[str]:
    """Return the tables that have a version below one of the folders: another engine may have renamed a table."""
    change, head, catalog_columns = schema.changes.c, schema.heads.c, schema.iceberg_tables.c
    full_name = catalog_columns.table_namespace + "." + catalog_columns.table_name
    table_names: set[str] = set()
    for folder in folders:
        for name, location in (
            (change.table_name, change.after),
            (head.table_name, head.location),
            (full_name, catalog_columns.metadata_location),
        ):
            below = location.startswith(folder.rstrip("/") + "/", autoescape=True)
            table_names |= set(connection.execute(sa.select(name).where(below).distinct()).scalars())
    return table_names


def swap_versions(connection: Connection, references: VersionReferences, version_swap: VersionSwap) -> set[str]:
    """Replace old versions by new ones, and return the lines whose history changed."""
    lines: set[str] = set()
    for step in references.changes:
        values = _swap_change(step, version_swap)
        if values:
            lines.add(step.line)
            change = schema.changes.c
            change_filter = sa.and_(change.line == step.line, change.table_name == step.table, change.seq == step.seq)
            connection.execute(schema.changes.update().where(change_filter).values(values))
    for head in references.heads:
        values = {
            "location": version_swap.locations.get(head.location, head.location),
            "content": version_swap.contents.get(head.content, head.content),
        }
        head_filter = sa.and_(schema.heads.c.branch == head.branch, schema.heads.c.table_name == head.table)
        connection.execute(schema.heads.update().where(head_filter).values(values))
    for catalog_row in references.catalog_rows:
        if catalog_row.location in version_swap.locations:
            _swap_catalog_row(connection, catalog_row, version_swap.locations)
    _swap_append_logs(connection, references, version_swap)
    return lines


def _swap_append_logs(connection: Connection, references: VersionReferences, version_swap: VersionSwap) -> None:
    """Point streams at the new append logs; raise NewVersionAppeared if a stream has just extended its log."""
    rows: dict[tuple[str, str], list[AppendLogRow]] = {}
    for row in references.append_logs:
        rows.setdefault((row.branch, row.stream), []).append(row)
    columns = schema.streams.c
    for (branch, stream), log_rows in rows.items():
        append_logs = json.loads(log_rows[0].stored_text)
        for row in log_rows:
            append_logs[row.table] = {
                "location": version_swap.locations.get(row.append_log.location, row.append_log.location),
                "reached": version_swap.locations.get(row.append_log.reached, row.append_log.reached),
                "content": version_swap.contents.get(row.append_log.content, row.append_log.content),
            }
        row_filter = sa.and_(
            columns.branch == branch, columns.table_name == stream, columns.tapes == log_rows[0].stored_text
        )
        update = schema.streams.update().where(row_filter).values(tapes=json.dumps(append_logs))
        if append_logs != json.loads(log_rows[0].stored_text) and connection.execute(update).rowcount != 1:
            raise NewVersionAppeared


def _swap_change(change: VersionChange, version_swap: VersionSwap) -> dict[str, str]:
    values = {
        "before": version_swap.locations.get(change.before or ""),
        "after": version_swap.locations.get(change.after or ""),
        "content": version_swap.contents.get(change.content or ""),
        "detail": _swap_detail(change, version_swap),
    }
    return {name: value for name, value in values.items() if value is not None}


def _swap_detail(change: VersionChange, version_swap: VersionSwap) -> str | None:
    """Return the detail of a compaction with the new names of its files; None if nothing changes."""
    replaces = change.detail.get("replaces")
    old_names, new_names = (
        version_swap.files.get(change.before or "", {}),
        version_swap.files.get(change.after or "", {}),
    )
    if not replaces or not (old_names or new_names):
        return None
    new_replaces: dict[str, list[str]] = {}
    for file, replaced_files in replaces.items():
        new_file = new_names.get(file, file)
        if new_file is not None:
            new_replaces[new_file] = [
                name for name in (old_names.get(path, path) for path in replaced_files) if name is not None
            ]
    return json.dumps({**change.detail, "replaces": new_replaces}, sort_keys=True)


def _swap_catalog_row(connection: Connection, catalog_row: CatalogReference, locations: Mapping[str, str]) -> None:
    columns = schema.iceberg_tables.c
    row_filter = sa.and_(
        columns.catalog_name == catalog_row.catalog,
        columns.table_namespace == catalog_row.layer,
        columns.table_name == catalog_row.name,
        columns.metadata_location == catalog_row.location,
    )
    values = {
        "metadata_location": locations[catalog_row.location],
        "previous_metadata_location": locations.get(catalog_row.previous or ""),
    }
    if connection.execute(schema.iceberg_tables.update().where(row_filter).values(values)).rowcount != 1:
        raise NewVersionAppeared  # another engine, which ignores our lock, has just changed it


def _parse_change(row: Row[Any]) -> VersionChange:
    return VersionChange(row.line, row.table_name, row.seq, row.before, row.after, row.content, json.loads(row.detail))


def _parse_catalog_row(row: Row[Any]) -> CatalogReference:
    return CatalogReference(
        row.catalog_name,
        row.table_namespace,
        row.table_name,
        row.metadata_location,
        row.previous_metadata_location,
    )
