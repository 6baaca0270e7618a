"""Tell whether names alone find the columns of a table's files, because all were written in the current schema.

DuckDB then opens files when it plans, knows their rows and orders joins well; by field id it plans blind. Reads
footers of files on this machine, where a table has had several schemas.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runnel.lake.iceberg.file_io import plain
from runnel.lake.scan.duckdb_types import duckdb_type, quoted
from runnel.lake.scan.registered_files import footer

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

    from runnel.lake.iceberg.manifests import Entry

_MOST_FOOTERS = 256
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_VIRTUAL = {"filename", "file_row_number", "file_index", "file_last_modified"}


def written_alike(metadata: "TableMetadata", data: Sequence["Entry"]) -> bool:
    """Tell whether every file has the current columns under their names and types."""
    names = metadata.schema().column_names
    if not all(_SAFE_NAME.match(part) for name in names for part in name.split(".")):
        return False  # other engines write such names into Parquet in another spelling
    if _VIRTUAL & {name.lower() for name in names}:
        return False  # DuckDB has columns of its own that are called like that
    if {schema.schema_id for schema in metadata.schemas} != set(range(len(metadata.schemas))):
        return False  # another engine has dropped old schemas, in which files may still be written
    fields = {field.field_id: field for field in metadata.schema().fields}
    same_names = True
    for schema in metadata.schemas:
        found = {field.field_id: field.field_type for field in schema.fields}
        if any(found[known] != field.field_type for known, field in fields.items() if known in found):
            return False
        ids = {field.name: field.field_id for field in schema.fields}
        same_names = same_names and all(ids.get(field.name) == known for known, field in fields.items())
    return same_names or (len(data) <= _MOST_FOOTERS and all(_has(entry, fields) for entry in data))


def columns_by_name(metadata: "TableMetadata") -> list[str]:
    """Return the table's columns as expressions over columns of the same names."""
    fields = metadata.schema().fields
    return [
        f"CAST({quoted(field.name)} AS {duckdb_type(field.field_type)}) AS {quoted(field.name)}" for field in fields
    ]


def _has(entry: "Entry", fields: Mapping[int, "NestedField"]) -> bool:
    named = footer(plain(entry.path)).named
    return all(named.get(known) == field.name for known, field in fields.items())
