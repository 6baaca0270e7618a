"""Build the DuckDB SELECT that reads the files of a version in its current schema.

Columns are matched by field id, as Iceberg requires: this covers renamed, dropped and added columns and wider types.
Position deletes are applied. Registered Parquet files without field ids are matched by the table's name mapping. Files
that DuckDB can't read correctly raise DuckdbScanError; Spark reads them then.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from runnel.internal_names import internal_column, is_internal
from runnel.lake.iceberg.file_io import local_path, normalize_location
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.scan.column_name_check import build_columns_by_name, can_read_by_name
from runnel.lake.scan.duckdb_types import (
    DuckdbScanError,
    quote_exact_path,
    quote_identifier,
    quote_literal,
    to_duckdb_type,
)
from runnel.lake.scan.registered_files import group_files, is_read_by_name, map_columns, read_footer

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import FileAccess

FILE_COLUMN = internal_column("file")
POSITION_COLUMN = internal_column("position")
_VIRTUAL = ("filename", "file_row_number")


def rows_sql(
    store: "FileAccess",
    metadata: TableMetadata,
    selected_entries: Iterable[FileEntry] | None = None,
    *,
    with_positions: bool = False,
) -> str:
    """Return a SELECT over the data files and deletes in `selected_entries`, by default all of the version.

    Its columns are the table's, in order. With `with_positions` each row also has its file and its position there.
    """
    live_entries = list(read_entries(store, metadata) if selected_entries is None else selected_entries)
    check_scannable(metadata, live_entries)
    data = [entry for entry in live_entries if entry.is_data]
    deletes = [entry for entry in live_entries if not entry.is_data]
    with_deletes = _find_files_with_deletes(data, deletes)
    undeleted = [entry for entry in data if entry.path not in with_deletes]
    selects = _build_selects(metadata, undeleted, (), with_positions)
    selects += _build_selects(
        metadata, [entry for entry in data if entry.path in with_deletes], deletes, with_positions
    )
    return "\nUNION ALL\n".join(selects) if selects else _build_empty_sql(metadata, with_positions)


def partition_of(entry: FileEntry) -> tuple[int, Any]:
    """Return the id of a file's partition: its partition spec and its values."""
    return entry.file.spec_id, entry.file.partition


def build_deleted_files_sql(deletes: Sequence[FileEntry]) -> str:
    """Return a SELECT of the normalized paths of data files from which position deletes remove rows."""
    spelling = "regexp_replace(file_path, '^file:/+', '/')"
    return f"SELECT DISTINCT {spelling} AS file FROM read_parquet({_format_paths(deletes)}, hive_partitioning = false)"


def normalize_file_path(path: str) -> str:
    """Return a data file's path in the form in which paths of delete files and data files are compared.

    >>> normalize_file_path("file:///a/b%20c"), normalize_file_path("file:/a"), normalize_file_path("/a")
    ('/a/b%20c', '/a', '/a')
    """
    return re.sub("^file:/+", "/", path)


def check_scannable(metadata: TableMetadata, live_entries: Sequence[FileEntry]) -> None:
    """Raise Unscannable if DuckDB would not return the rows that Iceberg specifies."""
    if any(entry.is_equality_delete for entry in live_entries):
        raise DuckdbScanError("the table has equality deletes, written by another engine")
    if any(entry.file.file_format != FileFormat.PARQUET for entry in live_entries):
        raise DuckdbScanError("the table has files that are not Parquet")
    if any(local_path(entry.path) is None for entry in live_entries):
        raise DuckdbScanError("the table's files are not on this machine")
    fields = metadata.schema().fields
    if len({field.name.lower() for field in fields}) < len(fields):
        raise DuckdbScanError("the table has columns whose names differ only in case")
    if any(is_internal(field.name) for field in fields):
        raise DuckdbScanError("the table has columns whose names begin with a control character")
    if any(field.initial_default is not None for field in fields):
        raise DuckdbScanError("the table has columns with default values, set by another engine")
    if live_entries and _has_nested_changes(metadata):
        raise DuckdbScanError("fields inside a struct, list or map were renamed, dropped or widened")


def _has_nested_changes(metadata: TableMetadata) -> bool:
    """Return whether an older schema of the table has fields in a nested column that differ from the current ones.

    Fields that were only added are null in older files. For tables with registered files even those are not allowed.
    """
    has_registered_files = "schema.name-mapping.default" in metadata.properties
    current = {field.field_id: field.field_type for field in metadata.schema().fields}
    for schema in metadata.schemas:
        for field in schema.fields:
            kind = current.get(field.field_id)
            if (
                kind is not None
                and not kind.is_primitive
                and not _is_extension(kind, field.field_type, allow_added=not has_registered_files)
            ):
                return True
    return False


def _is_extension(current: IcebergType, previous: IcebergType, *, allow_added: bool) -> bool:
    """Return whether a nested type equals an earlier one except for added fields, comments and nullability.

    DuckDB matches fields by name, so a field must have the same name and the same id in both types.
    """
    if isinstance(current, StructType) and isinstance(previous, StructType):
        fields = {field.name.lower(): field for field in current.fields}
        if len(fields) < len(current.fields) or not (allow_added or len(current.fields) == len(previous.fields)):
            return False
        pairs = [(fields.get(old.name.lower()), old) for old in previous.fields]
        return bool(pairs) and all(
            new is not None
            and (new.field_id, new.name) == (old.field_id, old.name)
            and _is_extension(new.field_type, old.field_type, allow_added=allow_added)
            for new, old in pairs
        )
    if isinstance(current, ListType) and isinstance(previous, ListType):
        return current.element_id == previous.element_id and _is_extension(
            current.element_type, previous.element_type, allow_added=allow_added
        )
    if isinstance(current, MapType) and isinstance(previous, MapType):
        same = (current.key_id, current.value_id) == (previous.key_id, previous.value_id)
        return (
            same
            and _is_extension(current.key_type, previous.key_type, allow_added=allow_added)
            and _is_extension(current.value_type, previous.value_type, allow_added=allow_added)
        )
    return current == previous


def _find_files_with_deletes(data: Sequence[FileEntry], deletes: Sequence[FileEntry]) -> set[str]:
    """Return the data files that position deletes may apply to: same partition, and not newer than the deletes."""
    newest: dict[tuple[int, Any], int] = {}
    for entry in deletes:
        key = partition_of(entry)
        newest[key] = max(newest.get(key, 0), entry.sequence)
    if not newest:
        return set()
    return {entry.path for entry in data if newest.get(partition_of(entry), -1) >= entry.sequence}


def _build_selects(
    metadata: TableMetadata, data: Sequence[FileEntry], deletes: Sequence[FileEntry], with_positions: bool
) -> list[str]:
    by_id: list[FileEntry] = []
    by_name: list[FileEntry] = []
    for entry in data:
        (by_name if is_read_by_name(metadata, entry) else by_id).append(entry)
    selects = [_select_by_id(metadata, by_id, deletes, with_positions)] if by_id else []
    return selects + [
        _select_by_name(metadata, group, deletes, with_positions) for group in group_files(metadata, by_name)
    ]


def _select_by_id(
    metadata: TableMetadata, data: Sequence[FileEntry], deletes: Sequence[FileEntry], with_positions: bool
) -> str:
    if can_read_by_name(metadata, data):
        return _build_read_sql(build_columns_by_name(metadata), data, deletes, with_positions, "")
    # Columns are read under generated names, because a table may have a column named like a virtual column.
    fields = metadata.schema().fields
    column_map = ", ".join(
        f"{field.field_id}: {{name: 'c{field.field_id}', type: {quote_literal(to_duckdb_type(field.field_type))}, "
        "default_value: NULL}"
        for field in fields
    )
    select_list = [f"c{field.field_id} AS {quote_identifier(field.name)}" for field in fields]
    return _build_read_sql(select_list, data, deletes, with_positions, f", schema = MAP {{{column_map}}}")


def _select_by_name(
    metadata: TableMetadata, data: Sequence[FileEntry], deletes: Sequence[FileEntry], with_positions: bool
) -> str:
    reserved_names = {name.lower() for name in read_footer(normalize_location(data[0].path)).names} & set(_VIRTUAL)
    if reserved_names and (with_positions or deletes):
        raise DuckdbScanError(f"{normalize_location(data[0].path)} has a column called {min(reserved_names)}")
    return _build_read_sql(map_columns(metadata, data[0]), data, deletes, with_positions, "")


def _build_read_sql(
    select_list: list[str],
    data: Sequence[FileEntry],
    deletes: Sequence[FileEntry],
    with_positions: bool,
    schema_option: str,
) -> str:
    if with_positions:
        select_list = [
            *select_list,
            f"filename AS {quote_identifier(FILE_COLUMN)}",
            f"file_row_number AS {quote_identifier(POSITION_COLUMN)}",
        ]
    virtual_options = ", filename = true, file_row_number = true" if with_positions or deletes else ""
    rows = f"read_parquet({_format_paths(data)}, hive_partitioning = false{virtual_options}{schema_option})"
    if not deletes:
        return f"SELECT {', '.join(select_list)} FROM {rows}"
    is_deleted = "kept.filename = gone.gone_file AND kept.file_row_number = gone.gone_pos"
    return (
        f"SELECT {', '.join(select_list)} FROM {rows} AS kept ANTI JOIN "
        f"({deleted_sql(data, deletes)}) AS gone ON {is_deleted}"
    )


def deleted_sql(data: Sequence[FileEntry], deletes: Sequence[FileEntry]) -> str:
    """Return a SELECT of deleted row positions; a delete applies within its partition, and not to newer files."""
    partition_numbers: dict[tuple[int, Any], int] = {}
    for entry in [*data, *deletes]:
        partition_numbers.setdefault(partition_of(entry), len(partition_numbers))

    def values(file_entries: Sequence[FileEntry], with_name: bool) -> str:
        rows = []
        for entry in file_entries:
            paths = [normalize_file_path(entry.path)] if with_name else []
            paths.append(normalize_location(entry.path))
            numbers = f"{partition_numbers[partition_of(entry)]}, {entry.sequence}"
            rows.append(f"({', '.join(map(quote_literal, paths))}, {numbers})")
        return ", ".join(rows)

    delete_rows = f"read_parquet({_format_paths(deletes)}, hive_partitioning = false, filename = true)"
    return (
        f"SELECT held.place AS gone_file, places.pos AS gone_pos FROM {delete_rows} AS places"
        f" JOIN (VALUES {values(deletes, False)}) AS ruled(place, part, seq) ON places.filename = ruled.place"
        f" JOIN (VALUES {values(data, True)}) AS held(spelled, place, part, seq)"
        " ON regexp_replace(places.file_path, '^file:/+', '/') = held.spelled"
        " AND ruled.part = held.part AND ruled.seq >= held.seq"
    )


def _format_paths(file_entries: Sequence[FileEntry]) -> str:
    return "[" + ", ".join(quote_exact_path(normalize_location(entry.path)) for entry in file_entries) + "]"


def _build_empty_sql(metadata: TableMetadata, with_positions: bool) -> str:
    select_list = [
        f"CAST(NULL AS {to_duckdb_type(field.field_type)}) AS {quote_identifier(field.name)}"
        for field in metadata.schema().fields
    ]
    if with_positions:
        select_list += [
            f"CAST(NULL AS VARCHAR) AS {quote_identifier(FILE_COLUMN)}",
            f"CAST(NULL AS BIGINT) AS {quote_identifier(POSITION_COLUMN)}",
        ]
    return f"SELECT {', '.join(select_list)} WHERE false"
