"""Data files that no Iceberg writer made: registered Parquet, whose columns are found by the table's name mapping.

Reads the footers of files on this machine, and returns SQL; it reads no rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import Entry
from runnel.lake.scan.duckdb_types import Unscannable, duckdb_type, literal, quoted


@dataclass(frozen=True)
class Footer:
    """The columns of a Parquet file, and the field ids of those that have one."""

    names: tuple[str, ...]
    types: tuple[Any, ...]  # pyarrow's
    ids: tuple[int | None, ...]

    @property
    def has_ids(self) -> bool:
        """Tell whether columns are known by id: Iceberg never mixes ids and names in one file."""
        return any(known is not None for known in self.ids)

    @property
    def named(self) -> dict[int, str]:
        """Return the names of the columns by field id."""
        return {known: name for known, name in zip(self.ids, self.names, strict=True) if known is not None}


@lru_cache(maxsize=65536)
def footer(path: str) -> Footer:
    """Return the columns of a file; files never change, so they are kept in memory."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    found = [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema]
    ids = tuple(int(text) if text is not None else None for text in found)
    return Footer(tuple(schema.names), tuple(schema.types), ids)


def is_foreign(metadata: TableMetadata, entry: Entry) -> bool:
    """Tell whether a file's columns must be found by name. Only files outside the table's folder are opened."""
    if plain(entry.path).startswith(plain(metadata.location) + "/"):
        return False
    found = footer(plain(entry.path))
    if not found.has_ids and metadata.name_mapping() is None:
        raise Unscannable(f"{plain(entry.path)} has no field ids, and its table maps no names to columns")
    return not found.has_ids


def groups(metadata: TableMetadata, data: Sequence[Entry]) -> list[list[Entry]]:
    """Return files in groups that one SELECT can read: the same columns and the same constants."""
    found: dict[Any, list[Entry]] = {}
    for entry in data:
        shape = footer(plain(entry.path))
        found.setdefault((shape, tuple(columns(metadata, entry))), []).append(entry)
    return list(found.values())


def columns(metadata: TableMetadata, entry: Entry) -> list[str]:
    """Return the table's columns as expressions over a file's own: by mapped name, else its partition's value."""
    shape = footer(plain(entry.path))
    if len({name.lower() for name in shape.names}) < len(shape.names):
        raise Unscannable(f"{plain(entry.path)} has columns whose names differ only in case")
    return [f"{_column(metadata, field, shape, entry)} AS {quoted(field.name)}" for field in metadata.schema().fields]


def _column(metadata: TableMetadata, field: NestedField, shape: Footer, entry: Entry) -> str:
    mapping = metadata.name_mapping()
    aliases = next((found.names for found in mapping.root if found.field_id == field.field_id), []) if mapping else []
    kind = duckdb_type(field.field_type)
    for alias in aliases:
        if alias in shape.names:
            if not _fits(shape.types[shape.names.index(alias)], field.field_type):
                raise Unscannable(f"column {alias} of {plain(entry.path)} is nested otherwise than the table's")
            return f"CAST({quoted(alias)} AS {kind})"
    spec = metadata.specs()[entry.file.spec_id]
    for position, part in enumerate(spec.fields):
        if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
            value = entry.file.partition[position]
            shown = "NULL" if value is None else literal(part.transform.to_human_string(field.field_type, value))
            return f"CAST({shown} AS {kind})"
    return f"CAST(NULL AS {kind})"


def _fits(stored: Any, wanted: IcebergType) -> bool:
    """Tell whether a stored type has the fields that the table's type has, by name and in order."""
    import pyarrow as pa

    if isinstance(wanted, StructType):
        return (
            pa.types.is_struct(stored)
            and [field.name for field in stored] == [field.name for field in wanted.fields]
            and all(_fits(part.type, field.field_type) for part, field in zip(stored, wanted.fields, strict=True))
        )
    if isinstance(wanted, ListType):
        is_list = pa.types.is_list(stored) or pa.types.is_large_list(stored)
        return is_list and _fits(stored.value_type, wanted.element_type)
    if isinstance(wanted, MapType):
        return (
            pa.types.is_map(stored)
            and _fits(stored.key_type, wanted.key_type)
            and _fits(stored.item_type, wanted.value_type)
        )
    return not pa.types.is_nested(stored)
