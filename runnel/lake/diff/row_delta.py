"""The rows in which two versions of a table differ, netted exactly by signed counts per row.

Only the files that differ are read. Rows are compared on the columns that both versions have, known by field id, in
the newer version's types; a column that only one of them has is a change of the schema and not of rows. Of file
tables the contents are left out: their checksums are there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, NestedField, StructType

from runnel.errors import RunnelError
from runnel.internal_names import internal_column
from runnel.lake.diff.file_delta import delta, rows_apart
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.manifests import Entry, entries, manifests
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.duckdb_types import duckdb_type, quoted
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    from runnel.lake.store import Store

MOST_BYTES = 4 * 2**30
COUNT = internal_column("count")


class TooLarge(RunnelError):
    """So much differs that rows are not compared one by one."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            "DIFF_TOO_LARGE",
            f"{size / 2**30:.1f} GiB of files differ; rows are compared one by one only up to {most / 2**30:.1f} GiB",
            fix="compare with a query of your own: runnel query --at REF",
        )


@dataclass(frozen=True)
class Compared:
    """A column that both versions have: its name now, its type, and an expression that is equal for equal values."""

    name: str
    kind: IcebergType

    @property
    def as_key(self) -> str:
        """Return the column in a form that can be grouped and compared."""
        return comparable(quoted(self.name), self.kind)


@dataclass(frozen=True)
class Net:
    """A SELECT of the rows that differ, each with `COUNT`: how many more of it the newer version has."""

    sql: str
    columns: tuple[Compared, ...]


def counts(store: "Store", before: str | None, after: str | None, most_bytes: int = MOST_BYTES) -> tuple[int, int]:
    """Return how many rows came and how many went. Raises Unscannable or TooLarge where it can't tell."""
    if before is None or after is None:
        return _whole(store, after), _whole(store, before)
    found = delta(store, before, after)
    if found.appends_only:
        return sum(entry.file.record_count for entry in found.added), 0
    old, new = rows_apart(store, before, after, found)
    if not (old and new) and all(entry.is_data for entry in (*old, *new)):
        return tuple(sum(entry.file.record_count for entry in side) for side in (new, old))  # type: ignore[return-value]
    sql = _net(store, load(store, before), load(store, after), old, new, most_bytes).sql
    more, less = (f"coalesce(sum({way}({quoted(COUNT)}, 0)), 0)" for way in ("greatest", "least"))
    came, went = _one(f"SELECT CAST({more} AS BIGINT), CAST({less} AS BIGINT) FROM ({sql})")
    return came, -went


def net(store: "Store", before: str | None, after: str | None, most_bytes: int = MOST_BYTES) -> Net:
    """Return the rows that differ between two versions, of which one may not exist."""
    old, new = rows_apart(store, before, after, delta(store, before, after))
    one, other = (load(store, location) if location else None for location in (before, after))
    made = one or other
    assert made is not None
    return _net(store, one or made, other or made, old, new, most_bytes)


def _net(
    store: "Store",
    before: TableMetadata,
    after: TableMetadata,
    old: Sequence[Entry],
    new: Sequence[Entry],
    most_bytes: int,
) -> Net:
    is_files = table_properties.is_file_table(after)
    size = sum(entry.file.file_size_in_bytes for entry in (*old, *new))
    if size > most_bytes and not is_files:
        raise TooLarge(size, most_bytes)
    pairs = [pair for pair in common(before, after) if not (is_files and pair[1].name == "content")]
    columns = tuple(Compared(now.name, now.field_type) for _, now in pairs)
    sides = []
    for sign, metadata, found, place in ((1, after, new, 1), (-1, before, old, 0)):
        shown = "".join(
            f", CAST({quoted(pair[place].name)} AS {duckdb_type(pair[1].field_type)}) AS {quoted(pair[1].name)}"
            for pair in pairs
        )
        sides.append(f"SELECT {sign} AS {quoted(COUNT)}{shown} FROM ({rows_sql(store, metadata, found)})")
    return Net(_grouped(" UNION ALL ".join(sides), columns), columns)


def _grouped(rows: str, columns: Sequence[Compared]) -> str:
    zeros = [quoted(column.name) for column in columns if isinstance(column.kind, DoubleType | FloatType)]
    signs = [f"({name} = 0 AND signbit({name}))" for name in zeros]  # DuckDB takes -0.0 for 0.0
    keys = ", ".join([*(column.as_key for column in columns), *signs]) or "1 = 1"
    shown = "".join(
        f", {name if _is_plain(column.kind) else f'any_value({name})'} AS {name}"
        for column in columns
        for name in [quoted(column.name)]
    )
    total = f"sum({quoted(COUNT)})"
    return f"SELECT {total} AS {quoted(COUNT)}{shown} FROM ({rows}) GROUP BY {keys} HAVING {total} <> 0"


def common(before: TableMetadata, after: TableMetadata) -> list[tuple[NestedField, NestedField]]:
    """Return the columns that both versions have, in the newer one's order.

    A table that was created anew shares no ids; then names and types decide.
    """
    if before.table_uuid == after.table_uuid:
        by_id = {field.field_id: field for field in before.schema().fields}
        return [(by_id[field.field_id], field) for field in after.schema().fields if field.field_id in by_id]
    by_name = {field.name: field for field in before.schema().fields}
    return [
        (by_name[field.name], field)
        for field in after.schema().fields
        if field.name in by_name and duckdb_type(by_name[field.name].field_type) == duckdb_type(field.field_type)
    ]


def comparable(value: str, kind: IcebergType, names: Callable[[], int] | None = None) -> str:
    """Return an expression that is equal for equal values: the entries of maps have no order, so they are sorted."""
    if _is_plain(kind):
        return value
    fresh = names or count().__next__
    name = f"e{fresh()}"
    if isinstance(kind, ListType):
        return f"list_transform({value}, lambda {name}: {comparable(name, kind.element_type, fresh)})"
    if isinstance(kind, MapType):
        key = comparable(f"{name}.key", kind.key_type, fresh)
        held = comparable(f"{name}.value", kind.value_type, fresh)
        return f"list_sort(list_transform(map_entries({value}), lambda {name}: {{k: {key}, v: {held}}}))"
    assert isinstance(kind, StructType)
    parts = ", ".join(
        f"{quoted(field.name)}: {comparable(f'({value}).{quoted(field.name)}', field.field_type, fresh)}"
        for field in kind.fields
    )
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {{{parts}}} END"


def _is_plain(kind: IcebergType) -> bool:
    """Tell whether values of a type can be compared as they are: no map inside."""
    if isinstance(kind, StructType):
        return all(_is_plain(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return _is_plain(kind.element_type)
    return not isinstance(kind, MapType)


def _whole(store: "Store", location: str | None) -> int:
    """Return the rows of a version, from its manifests where nothing is deleted."""
    if location is None:
        return 0
    metadata = load(store, location)
    listed = manifests(store, metadata)
    if any(manifest.content == ManifestContent.DELETES for manifest in listed):
        return _one(f"SELECT count(*), 0 FROM ({rows_sql(store, metadata)})")[0]
    if any(manifest.added_rows_count is None or manifest.existing_rows_count is None for manifest in listed):
        return sum(entry.file.record_count for entry in entries(store, metadata))
    return sum((manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0) for manifest in listed)


def _one(sql: str) -> tuple[int, int]:
    from runnel.lake.scan.duckdb_connection import connect, told

    with told(), connect() as connection:
        row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
