"""Read registered Parquet files, which have no Iceberg field ids: the table's name mapping finds their columns.

Reads the footers of files on this machine, and returns SQL; reads no rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.scan.duckdb_types import DuckdbScanError, quote_identifier, quote_literal, to_duckdb_type


@dataclass(frozen=True)
class ParquetFooter:
    """The columns of a Parquet file, and the field ids of those that have one."""

    names: tuple[str, ...]
    types: tuple[Any, ...]  # pyarrow's
    ids: tuple[int | None, ...]

    @property
    def has_ids(self) -> bool:
        """Return whether columns have field ids: Iceberg never mixes ids and names in one file."""
        return any(field_id is not None for field_id in self.ids)

    @property
    def names_by_id(self) -> dict[int, str]:
        """Return the names of the columns by field id."""
        return {field_id: name for field_id, name in zip(self.ids, self.names, strict=True) if field_id is not None}


@lru_cache(maxsize=65536)
def read_footer(path: str) -> ParquetFooter:
    """Return the columns of a file; cached in memory, because files never change."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    id_texts = [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema]
    ids = tuple(int(text) if text is not None else None for text in id_texts)
    return ParquetFooter(tuple(schema.names), tuple(schema.types), ids)


def is_read_by_name(metadata: TableMetadata, entry: FileEntry) -> bool:
    """Return whether a file's columns must be found by name. Opens only files outside the table's folder."""
    if normalize_location(entry.path).startswith(normalize_location(metadata.location) + "/"):
        return False
    file_footer = read_footer(normalize_location(entry.path))
    if not file_footer.has_ids and metadata.name_mapping() is None:
        raise DuckdbScanError(
            f"{normalize_location(entry.path)} has no field ids, and its table maps no names to columns"
        )
    return not file_footer.has_ids


def group_files(metadata: TableMetadata, data: Sequence[FileEntry]) -> list[list[FileEntry]]:
    """Group files that one SELECT can read: they have the same columns and the same partition constants."""
    groups_by_columns: dict[Any, list[FileEntry]] = {}
    for entry in data:
        file_footer = read_footer(normalize_location(entry.path))
        groups_by_columns.setdefault((file_footer, tuple(map_columns(metadata, entry))), []).append(entry)
    return list(groups_by_columns.values())


def map_columns(metadata: TableMetadata, entry: FileEntry) -> list[str]:
    """Return the table's columns as expressions over a file's columns: by mapped name, else the partition's value."""
    file_footer = read_footer(normalize_location(entry.path))
    if len({name.lower() for name in file_footer.names}) < len(file_footer.names):
        raise DuckdbScanError(f"{normalize_location(entry.path)} has columns whose names differ only in case")
    return [
        f"{_map_column(metadata, field, file_footer, entry)} AS {quote_identifier(field.name)}"
        for field in metadata.schema().fields
    ]


def _map_column(metadata: TableMetadata, field: NestedField, file_footer: ParquetFooter, entry: FileEntry) -> str:
    mapping = metadata.name_mapping()
    aliases = (
        next((mapped_field.names for mapped_field in mapping.root if mapped_field.field_id == field.field_id), [])
        if mapping
        else []
    )
    kind = to_duckdb_type(field.field_type)
    for alias in aliases:
        if alias in file_footer.names:
            if not _has_expected_fields(file_footer.types[file_footer.names.index(alias)], field.field_type):
                raise DuckdbScanError(
                    f"column {alias} of {normalize_location(entry.path)} is nested differently from the table's"
                )
            return f"CAST({quote_identifier(alias)} AS {kind})"
    spec = metadata.specs()[entry.file.spec_id]
    for position, partition_field in enumerate(spec.fields):
        if partition_field.source_id == field.field_id and isinstance(partition_field.transform, IdentityTransform):
            value = entry.file.partition[position]
            value_sql = (
                "NULL"
                if value is None
                else quote_literal(partition_field.transform.to_human_string(field.field_type, value))
            )
            return f"CAST({value_sql} AS {kind})"
    return f"CAST(NULL AS {kind})"


def _has_expected_fields(stored: Any, expected: IcebergType) -> bool:
    """Return whether a stored type has the same fields as the table's type, by name and in order."""
    import pyarrow as pa

    if isinstance(expected, StructType):
        return (
            pa.types.is_struct(stored)
            and [field.name for field in stored] == [field.name for field in expected.fields]
            and all(
                _has_expected_fields(stored_field.type, field.field_type)
                for stored_field, field in zip(stored, expected.fields, strict=True)
            )
        )
    if isinstance(expected, ListType):
        is_list = pa.types.is_list(stored) or pa.types.is_large_list(stored)
        return is_list and _has_expected_fields(stored.value_type, expected.element_type)
    if isinstance(expected, MapType):
        return (
            pa.types.is_map(stored)
            and _has_expected_fields(stored.key_type, expected.key_type)
            and _has_expected_fields(stored.item_type, expected.value_type)
        )
    return not pa.types.is_nested(stored)
