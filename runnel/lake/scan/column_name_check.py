"""Decide whether DuckDB can find the columns of a table's files by name, because all files have the current schema.

By name, DuckDB opens the files when it plans, so it knows their row counts and orders joins well; by field id it does
not. Reads footers of files on this machine if the table has had several schemas.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.registered_files import read_footer

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

    from runnel.lake.iceberg.manifests import FileEntry

_MAX_FOOTERS = 256
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_VIRTUAL_COLUMNS = {"filename", "file_row_number", "file_index", "file_last_modified"}


def can_read_by_name(metadata: "TableMetadata", data: Sequence["FileEntry"]) -> bool:
    """Return whether every file has the current columns under their names and types."""
    names = metadata.schema().column_names
    if not all(_SAFE_NAME.match(part) for name in names for part in name.split(".")):
        return False  # other engines write such names into Parquet in another spelling
    if _VIRTUAL_COLUMNS & {name.lower() for name in names}:
        return False  # DuckDB has virtual columns with these names
    if {schema.schema_id for schema in metadata.schemas} != set(range(len(metadata.schemas))):
        return False  # another engine dropped old schemas, and files may still have one of them
    fields = {field.field_id: field for field in metadata.schema().fields}
    same_names = True
    for schema in metadata.schemas:
        field_types = {field.field_id: field.field_type for field in schema.fields}
        if any(
            field_types[field_id] != field.field_type for field_id, field in fields.items() if field_id in field_types
        ):
            return False
        ids_by_name = {field.name: field.field_id for field in schema.fields}
        same_names = same_names and all(ids_by_name.get(field.name) == field_id for field_id, field in fields.items())
    return same_names or (len(data) <= _MAX_FOOTERS and all(_has_columns(entry, fields) for entry in data))


def build_columns_by_name(metadata: "TableMetadata") -> list[str]:
    """Return the table's columns as expressions over columns of the same names."""
    fields = metadata.schema().fields
    return [
        f"CAST({quote_identifier(field.name)} AS {to_duckdb_type(field.field_type)}) AS {quote_identifier(field.name)}"
        for field in fields
    ]


def _has_columns(entry: "FileEntry", fields: Mapping[int, "NestedField"]) -> bool:
    names_by_id = read_footer(normalize_location(entry.path)).names_by_id
    return all(names_by_id.get(field_id) == field.name for field_id, field in fields.items())
