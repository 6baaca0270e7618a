"""Quarantine tables: rows that were set aside, with why, from where, by which run and when. Publishes nothing."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, TimestamptzType

from runnel.connect.owners import prefix, prefix_of
from runnel.declare.flow import quarantine_of
from runnel.lake import tables
from runnel.lake.datafiles import RowWriter
from runnel.lake.manifests import entries
from runnel.lake.snapshots import Edit, stage

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

OF = "runnel.quarantine_of"
COLUMNS = "raw string, reason string, file string, run string, at timestamp"
SCHEMA = Schema(
    NestedField(1, "raw", StringType(), required=False),
    NestedField(2, "reason", StringType(), required=False),
    NestedField(3, "file", StringType(), required=False),
    NestedField(4, "run", StringType(), required=False),
    NestedField(5, "at", TimestamptzType(), required=False),
)
_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Aside:
    """A row that was set aside. `file` is the source's file that it came from, None for a task's row."""

    raw: str | None
    reason: str
    file: str | None
    run: str
    at: datetime


def create(store: "Store", table: "TableName") -> str:
    """Stage the empty quarantine table of a table and return its location."""
    return tables.create(store, quarantine_of(table), SCHEMA, properties={OF: str(table)})[0]


def append(store: "Store", base: str, rows: Iterable[Aside]) -> str:
    """Stage a version of a quarantine table with more rows and return its location."""
    return change(store, base, rows, ())


def change(store: "Store", base: str, rows: Iterable[Aside], without: Collection[str]) -> str:
    """Stage a version with more rows, and without those of earlier readings of files, known by their prefixes.

    Returns `base` itself where nothing changes.
    """
    metadata = tables.load(store, base)
    groups: dict[str | None, list[Aside]] = {}
    for row in rows:
        groups.setdefault(row.file, []).append(row)
    added = [file for of, group in groups.items() for file in _written(store, metadata, of, group)]
    wanted = frozenset(without)
    removed = [entry for entry in entries(store, metadata) if prefix_of(entry.path) in wanted] if wanted else []
    return stage(store, base, Edit(added=added, removed=removed)) if added or removed else base


def held(store: "Store", table: "TableName", branch: str = "main", file: str | None = None) -> list[Aside]:
    """Return the rows of a table that are aside on a branch, the oldest first; only those of a `file`, if given."""
    found = store.state(branch).get(quarantine_of(table))
    kept = rows(store, tables.load(store, found.location)) if found is not None else []
    return [row for row in kept if file in (None, row.file)]


def rows(store: "Store", metadata: "TableMetadata") -> list[Aside]:
    """Return every row of a version of a quarantine table, the oldest first."""
    from runnel.lake.duck import connect, told
    from runnel.lake.scan import rows_sql

    with told(), connect() as con:
        found = con.sql(f'SELECT * FROM ({rows_sql(store, metadata)}) ORDER BY "at", file, reason, raw')
        return [Aside(**row) for row in found.to_arrow_table().to_pylist()]


def without(store: "Store", base: str, gone: Iterable[Aside], more: Iterable[Aside]) -> str:
    """Stage a version without some of its rows, and with others, and return its location; `base` where none differ."""
    metadata = tables.load(store, base)
    left, came = Counter(gone), list(more)
    if not left and not came:
        return base
    files = list(entries(store, metadata))
    kept = []
    for row in rows(store, metadata):
        if left[row]:
            left[row] -= 1
        else:
            kept.append(row)
    groups: dict[str | None, list[Aside]] = {}
    for row in (*kept, *came):
        groups.setdefault(row.file, []).append(row)
    added = [file for of, group in groups.items() for file in _written(store, metadata, of, group)]
    return stage(store, base, Edit(added=added, removed=files))


def _written(store: "Store", metadata: "TableMetadata", of: str | None, rows: list[Aside]) -> "list[DataFile]":
    import pyarrow as pa

    writer = RowWriter(store, metadata, prefix=prefix(of) if of is not None else "")
    for start in range(0, len(rows), _BATCH_ROWS):
        part = [vars(row) for row in rows[start : start + _BATCH_ROWS]]
        writer.write(pa.Table.from_pylist(part, writer.arrow_schema))
    return writer.close()
