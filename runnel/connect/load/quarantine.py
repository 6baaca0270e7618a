"""Quarantine tables: rows that were set aside, with why, from where, by which run and when. Publishes nothing."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, TimestamptzType

from runnel.declare.model.flow import quarantine_of
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.lake.iceberg.data_file_owners import name_of, prefix, prefix_of
from runnel.lake.iceberg.manifests import Entry, entries
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import Edit, stage

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

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
    """A row that was set aside. `file` is the source's file that it came from, None for a task's row.

    `owner` is how the name of the data file starts that holds it: that file, whatever it is called by now.
    """

    raw: str | None
    reason: str
    file: str | None
    run: str
    at: datetime
    owner: str | None = field(default=None, compare=False, repr=False)


def create(store: "Store", table: "TableName") -> str:
    """Stage the empty quarantine table of a table and return its location."""
    return table_metadata.create(
        store, quarantine_of(table), SCHEMA, properties={table_properties.QUARANTINE_OF: str(table)}
    )[0]


def append(store: "Store", base: str, rows: Iterable[Aside]) -> str:
    """Stage a version of a quarantine table with more rows and return its location."""
    return change(store, base, rows, ())


def change(
    store: "Store",
    base: str,
    rows: Iterable[Aside],
    without: Collection[str],
    owners: Mapping[str, str] | None = None,
) -> str:
    """Stage a version with more rows, and without those of the owners `without`; `owners` of files go by their paths.

    Returns `base` itself where nothing changes.
    """
    metadata, wanted = table_metadata.load(store, base), frozenset(without)
    found = list(entries(store, metadata)) if wanted else []
    removed = [entry for entry in found if prefix_of(entry.path) in wanted]
    rewritten = [entry for entry in found if prefix_of(entry.path) is None]  # put together by a compaction
    kept: list[Aside] = []
    if rewritten:
        together = [row for row, _ in _placed(store, metadata, rewritten)]
        kept = [row for row in together if row.file is None or prefix(row.file) not in wanted]
        if len(kept) < len(together):
            removed += rewritten
        else:
            kept = []
    added = _written(store, metadata, [*kept, *_owned(rows, owners or {})])
    return stage(store, base, Edit(added=added, removed=removed)) if added or removed else base


def _owned(rows: Iterable[Aside], owners: Mapping[str, str]) -> list[Aside]:
    return [replace(row, owner=owners.get(row.file or "", row.owner)) for row in rows]


def held(store: "Store", table: "TableName", branch: str = "main", file: str | None = None) -> list[Aside]:
    """Return the rows of a table that are aside on a branch, the oldest first; only those of a `file`, if given."""
    found = store.state(branch).get(quarantine_of(table))
    kept = rows(store, table_metadata.load(store, found.location)) if found is not None else []
    return [row for row in kept if file in (None, row.file)]


def rows(store: "Store", metadata: "TableMetadata") -> list[Aside]:
    """Return every row of a version of a quarantine table, the oldest first."""
    return [row for row, _ in _placed(store, metadata, entries(store, metadata))]


def _placed(store: "Store", metadata: "TableMetadata", found: "Iterable[Entry]") -> list[tuple[Aside, str]]:
    """Return the rows of data files, the oldest first, each with the name of its data file."""
    from runnel.lake.scan.duckdb_connection import connect, told
    from runnel.lake.scan.scan_sql import FILE_COLUMN, rows_sql

    files = rows_sql(store, metadata, found, places=True)
    with told(), connect() as con:
        placed = con.sql(f'SELECT * FROM ({files}) ORDER BY "at", file, reason, raw').to_arrow_table().to_pylist()
    return [
        (Aside(row["raw"], row["reason"], row["file"], row["run"], row["at"], prefix_of(name)), name)
        for row in placed
        if (name := name_of(row[FILE_COLUMN]))
    ]


def without(
    store: "Store", base: str, gone: Iterable[Aside], more: Iterable[Aside], owners: Mapping[str, str] | None = None
) -> str:
    """Stage a version without some of its rows, and with others, and return its location; `base` where none differ.

    Only the data files that hold such rows are written again. `owners` of files go by their paths.
    """
    metadata = table_metadata.load(store, base)
    left, came = Counter(gone), list(more)
    if not left and not came:
        return base
    found = {name_of(entry.path): entry for entry in entries(store, metadata)}
    stay: dict[str, list[Aside]] = {}
    touched: set[str] = set()
    for row, name in _placed(store, metadata, found.values()):
        if left[row]:
            left[row] -= 1
            touched.add(name)
        else:
            stay.setdefault(name, []).append(row)
    removed = [found[name] for name in touched]
    kept = [row for name in touched for row in stay.get(name, ())]
    added = _written(store, metadata, [*kept, *_owned(came, owners or {})])
    return stage(store, base, Edit(added=added, removed=removed))


def _written(store: "Store", metadata: "TableMetadata", rows: Iterable[Aside]) -> "list[DataFile]":
    """Write rows, those of each owner to data files of their own."""
    groups: dict[str, list[Aside]] = {}
    for row in rows:
        owner = row.owner or (prefix(row.file) if row.file is not None else "")
        groups.setdefault(owner, []).append(row)
    return [file for owner, group in groups.items() for file in _written_group(store, metadata, owner, group)]


def _written_group(store: "Store", metadata: "TableMetadata", owner: str, rows: list[Aside]) -> "list[DataFile]":
    import pyarrow as pa

    writer = RowWriter(store, metadata, prefix=owner)
    for start in range(0, len(rows), _BATCH_ROWS):
        part = [vars(row) for row in rows[start : start + _BATCH_ROWS]]
        writer.write(pa.Table.from_pylist(part, writer.arrow_schema))
    return writer.close()
