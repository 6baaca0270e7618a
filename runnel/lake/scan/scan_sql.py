"""Read the files of a version with DuckDB: return the SELECT that yields its rows in its current schema.

Columns are matched by field id, as Iceberg asks: renamed, dropped and added columns, wider types. Position deletes are
applied. Registered Parquet without field ids is matched by the table's name mapping. What can't be read this way
raises Unscannable, and Spark reads it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from runnel.internal_names import internal_column, is_internal
from runnel.lake.iceberg.file_io import local_path, plain
from runnel.lake.iceberg.manifests import Entry, entries
from runnel.lake.scan.column_name_check import columns_by_name, written_alike
from runnel.lake.scan.duckdb_types import Unscannable, duckdb_type, exact_path, literal, quoted
from runnel.lake.scan.registered_files import columns, footer, groups, is_foreign

if TYPE_CHECKING:
    from runnel.lake.store import Store

__all__ = [
    "FILE_COLUMN",
    "POSITION_COLUMN",
    "Unscannable",
    "deleted_sql",
    "duckdb_type",
    "literal",
    "quoted",
    "rows_sql",
]

FILE_COLUMN = internal_column("file")
POSITION_COLUMN = internal_column("position")
_VIRTUAL = ("filename", "file_row_number")


def rows_sql(
    store: "Store", metadata: TableMetadata, found: Iterable[Entry] | None = None, *, places: bool = False
) -> str:
    """Return a SELECT over data files and the deletes among `found`, by default all of the version.

    Its columns are the table's, in order. With `places` each row also says its file and its position there.
    """
    live = list(entries(store, metadata) if found is None else found)
    check(metadata, live)
    data = [entry for entry in live if entry.is_data]
    deletes = [entry for entry in live if not entry.is_data]
    with_deletes = _touched(data, deletes)
    whole = [entry for entry in data if entry.path not in with_deletes]
    parts = _selects(metadata, whole, (), places)
    parts += _selects(metadata, [entry for entry in data if entry.path in with_deletes], deletes, places)
    return "\nUNION ALL\n".join(parts) if parts else _empty(metadata, places)


def partition_of(entry: Entry) -> tuple[int, Any]:
    """Return what names the partition of a file: its spec and its values there."""
    return entry.file.spec_id, entry.file.partition


def named_in(deletes: Sequence[Entry]) -> str:
    """Return a SELECT of the data files, as `spelled`, in which position deletes remove rows."""
    spelling = "regexp_replace(file_path, '^file:/+', '/')"
    return f"SELECT DISTINCT {spelling} AS file FROM read_parquet({_paths(deletes)}, hive_partitioning = false)"


def spelled(path: str) -> str:
    """Return a data file's path in the one spelling in which delete files and data files are compared.

    >>> spelled("file:///a/b%20c"), spelled("file:/a"), spelled("/a")
    ('/a/b%20c', '/a', '/a')
    """
    return re.sub("^file:/+", "/", path)


def check(metadata: TableMetadata, live: Sequence[Entry]) -> None:
    """Raise Unscannable where DuckDB would not give the rows that Iceberg promises."""
    if any(entry.is_equality_delete for entry in live):
        raise Unscannable("the table has equality deletes, written by another engine")
    if any(entry.file.file_format != FileFormat.PARQUET for entry in live):
        raise Unscannable("the table has files that are not Parquet")
    if any(local_path(entry.path) is None for entry in live):
        raise Unscannable("the table's files are not on this machine")
    fields = metadata.schema().fields
    if len({field.name.lower() for field in fields}) < len(fields):
        raise Unscannable("the table has columns whose names differ only in case")
    if any(is_internal(field.name) for field in fields):
        raise Unscannable("the table has columns whose names begin with a control character")
    if any(field.initial_default is not None for field in fields):
        raise Unscannable("the table has columns with default values, set by another engine")
    if live and _nested_changed(metadata):
        raise Unscannable("fields inside a struct, list or map were renamed, dropped or widened")


def _nested_changed(metadata: TableMetadata) -> bool:
    """Tell whether any schema of the table has fields inside a nested column that the current one has not as well.

    Fields that were only added are null in older files. Registered files are not the table's own: there none may be.
    """
    is_foreign = "schema.name-mapping.default" in metadata.properties
    current = {field.field_id: field.field_type for field in metadata.schema().fields}
    for schema in metadata.schemas:
        for field in schema.fields:
            kind = current.get(field.field_id)
            if kind is not None and not kind.is_primitive and not _holds(kind, field.field_type, adds=not is_foreign):
                return True
    return False


def _holds(now: IcebergType, before: IcebergType, *, adds: bool) -> bool:
    """Tell whether a nested type is another one, with fields added at most. Comments and nullability don't matter.

    DuckDB finds fields by name. So a field has to have the same name and the same id in both.
    """
    if isinstance(now, StructType) and isinstance(before, StructType):
        fields = {field.name.lower(): field for field in now.fields}
        if len(fields) < len(now.fields) or not (adds or len(now.fields) == len(before.fields)):
            return False
        pairs = [(fields.get(old.name.lower()), old) for old in before.fields]
        return bool(pairs) and all(
            new is not None
            and (new.field_id, new.name) == (old.field_id, old.name)
            and _holds(new.field_type, old.field_type, adds=adds)
            for new, old in pairs
        )
    if isinstance(now, ListType) and isinstance(before, ListType):
        return now.element_id == before.element_id and _holds(now.element_type, before.element_type, adds=adds)
    if isinstance(now, MapType) and isinstance(before, MapType):
        same = (now.key_id, now.value_id) == (before.key_id, before.value_id)
        return (
            same
            and _holds(now.key_type, before.key_type, adds=adds)
            and _holds(now.value_type, before.value_type, adds=adds)
        )
    return now == before


def _touched(data: Sequence[Entry], deletes: Sequence[Entry]) -> set[str]:
    """Return the data files that position deletes may apply to: same partition, and not newer than the deletes."""
    newest: dict[tuple[int, Any], int] = {}
    for entry in deletes:
        key = partition_of(entry)
        newest[key] = max(newest.get(key, 0), entry.sequence)
    if not newest:
        return set()
    return {entry.path for entry in data if newest.get(partition_of(entry), -1) >= entry.sequence}


def _selects(metadata: TableMetadata, data: Sequence[Entry], deletes: Sequence[Entry], places: bool) -> list[str]:
    by_id: list[Entry] = []
    by_name: list[Entry] = []
    for entry in data:
        (by_name if is_foreign(metadata, entry) else by_id).append(entry)
    parts = [_select_by_id(metadata, by_id, deletes, places)] if by_id else []
    return parts + [_select_by_name(metadata, group, deletes, places) for group in groups(metadata, by_name)]


def _select_by_id(metadata: TableMetadata, data: Sequence[Entry], deletes: Sequence[Entry], places: bool) -> str:
    if written_alike(metadata, data):
        return _read(columns_by_name(metadata), data, deletes, places, "")
    # Columns are read under names of our own, since a table may have one that is called like a virtual column.
    fields = metadata.schema().fields
    mapped = ", ".join(
        f"{field.field_id}: {{name: 'c{field.field_id}', type: {literal(duckdb_type(field.field_type))}, "
        "default_value: NULL}"
        for field in fields
    )
    shown = [f"c{field.field_id} AS {quoted(field.name)}" for field in fields]
    return _read(shown, data, deletes, places, f", schema = MAP {{{mapped}}}")


def _select_by_name(metadata: TableMetadata, data: Sequence[Entry], deletes: Sequence[Entry], places: bool) -> str:
    taken = {name.lower() for name in footer(plain(data[0].path)).names} & set(_VIRTUAL)
    if taken and (places or deletes):
        raise Unscannable(f"{plain(data[0].path)} has a column called {min(taken)}")
    return _read(columns(metadata, data[0]), data, deletes, places, "")


def _read(shown: list[str], data: Sequence[Entry], deletes: Sequence[Entry], places: bool, schema: str) -> str:
    if places:
        shown = [*shown, f"filename AS {quoted(FILE_COLUMN)}", f"file_row_number AS {quoted(POSITION_COLUMN)}"]
    virtual = ", filename = true, file_row_number = true" if places or deletes else ""
    rows = f"read_parquet({_paths(data)}, hive_partitioning = false{virtual}{schema})"
    if not deletes:
        return f"SELECT {', '.join(shown)} FROM {rows}"
    same = "kept.filename = gone.gone_file AND kept.file_row_number = gone.gone_pos"
    return f"SELECT {', '.join(shown)} FROM {rows} AS kept ANTI JOIN ({deleted_sql(data, deletes)}) AS gone ON {same}"


def deleted_sql(data: Sequence[Entry], deletes: Sequence[Entry]) -> str:
    """Return a SELECT of the places that are deleted: a delete counts in its partition, and not for newer files."""
    numbers: dict[tuple[int, Any], int] = {}
    for entry in [*data, *deletes]:
        numbers.setdefault(partition_of(entry), len(numbers))

    def values(found: Sequence[Entry], name: bool) -> str:
        return ", ".join(
            f"({literal(spelled(entry.path)) + ', ' if name else ''}{literal(plain(entry.path))}, "
            f"{numbers[partition_of(entry)]}, {entry.sequence})"
            for entry in found
        )

    places = f"read_parquet({_paths(deletes)}, hive_partitioning = false, filename = true)"
    return (
        f"SELECT held.place AS gone_file, places.pos AS gone_pos FROM {places} AS places"
        f" JOIN (VALUES {values(deletes, False)}) AS ruled(place, part, seq) ON places.filename = ruled.place"
        f" JOIN (VALUES {values(data, True)}) AS held(spelled, place, part, seq)"
        " ON regexp_replace(places.file_path, '^file:/+', '/') = held.spelled"
        " AND ruled.part = held.part AND ruled.seq >= held.seq"
    )


def _paths(found: Sequence[Entry]) -> str:
    return "[" + ", ".join(exact_path(plain(entry.path)) for entry in found) + "]"


def _empty(metadata: TableMetadata, places: bool) -> str:
    shown = [
        f"CAST(NULL AS {duckdb_type(field.field_type)}) AS {quoted(field.name)}" for field in metadata.schema().fields
    ]
    if places:
        shown += [
            f"CAST(NULL AS VARCHAR) AS {quoted(FILE_COLUMN)}",
            f"CAST(NULL AS BIGINT) AS {quoted(POSITION_COLUMN)}",
        ]
    return f"SELECT {', '.join(shown)} WHERE false"
