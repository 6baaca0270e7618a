"""Read the files of a version with DuckDB: return the SELECT that yields its rows in its current schema.

Columns are matched by field id, as Iceberg asks: renamed, dropped and added columns, wider types. Position deletes are
applied. Registered Parquet without field ids is matched by the table's name mapping. What can't be read this way
raises Unscannable, and Spark reads it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from runnel.errors import RunnelError
from runnel.lake.manifests import Entry, entries
from runnel.lake.storage import local_path, plain

if TYPE_CHECKING:
    from runnel.lake.store import Store

FILE_COLUMN = "_file"
POSITION_COLUMN = "_pos"
_SIMPLE: dict[Any, str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMPTZ",
    StringType: "VARCHAR",
    UUIDType: "UUID",
    BinaryType: "BLOB",
    FixedType: "BLOB",
}


class Unscannable(RunnelError):
    """DuckDB can't read these files faithfully; Spark can."""

    def __init__(self, what: str) -> None:
        super().__init__("SCAN_NEEDS_SPARK", what, fix="ask Spark: runnel query --engine spark")


def rows_sql(
    store: "Store", metadata: TableMetadata, found: Iterable[Entry] | None = None, *, places: bool = False
) -> str:
    """Return a SELECT over data files and the deletes among `found`, by default all of the version.

    Its columns are the table's, in order. With `places` each row also says its file and its position there.
    """
    live = list(entries(store, metadata) if found is None else found)
    _check(metadata, live)
    data = [entry for entry in live if entry.is_data]
    deletes = [entry for entry in live if not entry.is_data]
    with_deletes = _touched(data, deletes)
    parts = []
    if len(data) > len(with_deletes):
        parts += _selects(store, metadata, [entry for entry in data if entry.path not in with_deletes], (), places)
    if with_deletes:
        parts += _selects(store, metadata, [entry for entry in data if entry.path in with_deletes], deletes, places)
    return "\nUNION ALL\n".join(parts) if parts else _empty(metadata, places)


def duckdb_type(kind: IcebergType) -> str:
    """Return the DuckDB type that holds an Iceberg type.

    >>> duckdb_type(ListType(1, DecimalType(9, 2)))
    'DECIMAL(9,2)[]'
    """
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"{duckdb_type(kind.element_type)}[]"
    if isinstance(kind, MapType):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.value_type)})"
    if isinstance(kind, StructType):
        return (
            "STRUCT("
            + ", ".join(f"{quoted(field.name)} {duckdb_type(field.field_type)}" for field in kind.fields)
            + ")"
        )
    found = _SIMPLE.get(type(kind))
    if found is None:
        raise Unscannable(f"DuckDB has no faithful form of the type {kind}")
    return found


def quoted(name: str) -> str:
    """Return a DuckDB identifier.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a DuckDB string."""
    return "'" + text.replace("'", "''") + "'"


def _check(metadata: TableMetadata, live: Sequence[Entry]) -> None:
    if any(entry.is_equality_delete for entry in live):
        raise Unscannable("the table has equality deletes, written by another engine")
    if any(entry.file.file_format != FileFormat.PARQUET for entry in live):
        raise Unscannable("the table has files that are not Parquet")
    if any(local_path(entry.path) is None for entry in live):
        raise Unscannable("the table's files are not on this machine")
    if live and _nested_changed(metadata):
        raise Unscannable("fields inside a struct, list or map were renamed, dropped or added")


def _nested_changed(metadata: TableMetadata) -> bool:
    """Tell whether any schema of the table has other fields inside a nested column than the current one."""
    current = {field.field_id: field.field_type for field in metadata.schema().fields}
    for schema in metadata.schemas:
        for field in schema.fields:
            kind = current.get(field.field_id)
            if kind is not None and not kind.is_primitive and kind != field.field_type:
                return True
    return False


def _touched(data: Sequence[Entry], deletes: Sequence[Entry]) -> set[str]:
    """Return the data files that position deletes may apply to: same partition, and not newer than the deletes."""
    if not deletes:
        return set()
    newest: dict[tuple[int, Any], int] = {}
    for entry in deletes:
        key = (entry.file.spec_id, entry.file.partition)
        newest[key] = max(newest.get(key, 0), entry.sequence)
    return {
        entry.path for entry in data if newest.get((entry.file.spec_id, entry.file.partition), -1) >= entry.sequence
    }


def _selects(
    store: "Store", metadata: TableMetadata, data: Sequence[Entry], deletes: Sequence[Entry], places: bool
) -> list[str]:
    by_id: list[Entry] = []
    by_name: list[Entry] = []
    mapped = "schema.name-mapping.default" in metadata.properties
    for entry in data:
        foreign = mapped and not plain(entry.path).startswith(plain(store.warehouse) + "/")
        (by_name if foreign and not _has_ids(plain(entry.path)) else by_id).append(entry)
    parts = [_select_by_id(metadata, by_id, deletes, places)] if by_id else []
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in by_name:
        groups.setdefault((_names(plain(entry.path)), entry.file.spec_id, entry.file.partition), []).append(entry)
    return parts + [_select_by_name(metadata, group, deletes, places) for group in groups.values()]


def _select_by_id(metadata: TableMetadata, data: Sequence[Entry], deletes: Sequence[Entry], places: bool) -> str:
    fields = ", ".join(_mapped(field) for field in metadata.schema().fields)
    columns = ", ".join(quoted(field.name) for field in metadata.schema().fields)
    return _read(columns, data, deletes, places, f", schema = MAP {{{fields}}}")


def _mapped(field: NestedField) -> str:
    name, kind = literal(field.name), literal(duckdb_type(field.field_type))
    return f"{field.field_id}: {{name: {name}, type: {kind}, default_value: NULL}}"


def _select_by_name(metadata: TableMetadata, data: Sequence[Entry], deletes: Sequence[Entry], places: bool) -> str:
    present = set(_names(plain(data[0].path)))
    columns = ", ".join(_named_column(metadata, field, present, data[0]) for field in metadata.schema().fields)
    return _read(columns, data, deletes, places, "")


def _named_column(metadata: TableMetadata, field: NestedField, present: set[str], entry: Entry) -> str:
    """Return a column of a file without field ids: by mapped name, else its partition's value, else null."""
    mapping = metadata.name_mapping()
    aliases = next((found.names for found in mapping.root if found.field_id == field.field_id), []) if mapping else []
    kind = duckdb_type(field.field_type)
    for alias in aliases:
        if alias in present:
            return f"CAST({quoted(alias)} AS {kind}) AS {quoted(field.name)}"
    spec = metadata.specs()[entry.file.spec_id]
    for position, part in enumerate(spec.fields):
        if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
            value = entry.file.partition[position]
            shown = "NULL" if value is None else literal(part.transform.to_human_string(field.field_type, value))
            return f"CAST({shown} AS {kind}) AS {quoted(field.name)}"
    return f"CAST(NULL AS {kind}) AS {quoted(field.name)}"


def _read(columns: str, data: Sequence[Entry], deletes: Sequence[Entry], places: bool, schema: str) -> str:
    if places:
        columns += f", filename AS {quoted(FILE_COLUMN)}, file_row_number AS {quoted(POSITION_COLUMN)}"
    virtual = ", filename = true, file_row_number = true" if places or deletes else ""
    sql = f"SELECT {columns} FROM read_parquet({_paths(data)}, hive_partitioning = false{virtual}{schema})"
    if deletes:
        place = "regexp_replace(file_path, '^file:/+', '/') AS gone_file, pos AS gone_pos"
        gone = f"SELECT {place} FROM read_parquet({_paths(deletes)})"
        same = "kept.filename = gone.gone_file AND kept.file_row_number = gone.gone_pos"
        sql += f" AS kept ANTI JOIN ({gone}) AS gone ON {same}"
    return sql


def _paths(found: Sequence[Entry]) -> str:
    return "[" + ", ".join(literal(plain(entry.path)) for entry in found) + "]"


def _empty(metadata: TableMetadata, places: bool) -> str:
    columns = [
        f"CAST(NULL AS {duckdb_type(field.field_type)}) AS {quoted(field.name)}" for field in metadata.schema().fields
    ]
    if places:
        columns += [
            f"CAST(NULL AS VARCHAR) AS {quoted(FILE_COLUMN)}",
            f"CAST(NULL AS BIGINT) AS {quoted(POSITION_COLUMN)}",
        ]
    return f"SELECT {', '.join(columns)} WHERE false"


@lru_cache(maxsize=65536)
def _names(path: str) -> tuple[str, ...]:
    import pyarrow.parquet as pq

    return tuple(pq.read_schema(path).names)


@lru_cache(maxsize=65536)
def _has_ids(path: str) -> bool:
    import pyarrow.parquet as pq

    return any(b"PARQUET:field_id" in (field.metadata or {}) for field in pq.read_schema(path))
