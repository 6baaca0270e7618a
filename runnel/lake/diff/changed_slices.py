"""Find the slices of a change from file metadata, and count slices.

A file's slice is known if the table is partitioned by the slice key, or if the lower and upper bound of each key column
are equal. Otherwise Spark has to read the rows.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
)

from runnel.lake.diff.compaction_delta import compute_change
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import DuckdbScanError, quote_identifier
from runnel.lake.scan.scan_sql import rows_sql
from runnel.model.slice_key import ChangedSlice, SliceValue, union_keys

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

_EXACT_TYPES = (IntegerType, LongType, DateType, BooleanType, StringType)  # value equality is key equality
_MAX_EXACT_LENGTH = 16  # bounds of longer strings are truncated
_EPOCH = dt.date(1970, 1, 1)


def find_changed_slices(
    store: "Store", table: "TableName", before: str, after: str, columns: Sequence[str]
) -> tuple[ChangedSlice, ...] | None:
    """Return the slices in which two versions differ, with row counts of their files; None if metadata can't tell."""
    file_changes = compute_change(store, table, before, after)
    gained: dict[SliceValue, int] = {}
    lost: dict[SliceValue, int] = {}
    for location, side_entries, counts in ((after, file_changes.added, gained), (before, file_changes.removed, lost)):
        metadata = load_metadata(store, location)
        fields = [_find_field(metadata, name) for name in columns]
        if any(field is None for field in fields):
            return None
        for entry in side_entries:
            key = _find_key(metadata, entry, [field for field in fields if field is not None])
            if key is None:
                return None
            counts[key] = counts.get(key, 0) + (entry.file.record_count if entry.is_data else 0)
    return tuple(ChangedSlice(key, gained.get(key, 0), lost.get(key, 0)) for key in union_keys([gained, lost]))


def is_aligned(store: "Store", location: str, columns: Sequence[str]) -> bool:
    """Return whether every file of a version belongs to one slice, so that a slice can be replaced by whole files."""
    metadata = load_metadata(store, location)
    ids = {field.field_id for name in columns if (field := _find_field(metadata, name))}
    return len(ids) == len(columns) and all(
        ids <= _list_identity_sources(spec) for spec in _list_used_specs(store, metadata)
    )


@dataclass(frozen=True)
class BucketLayout:
    """The number of buckets that a version is partitioned into; `kind` is the type of the bucketed column."""

    bucket_count: int
    kind: IcebergType

    def bucket_of(self, value: Any) -> int | None:
        """Return the bucket of a value; None for null."""
        iceberg_value = (value - _EPOCH).days if isinstance(self.kind, DateType) and value is not None else value
        return BucketTransform(self.bucket_count).transform(self.kind)(iceberg_value)


def find_bucket_layout(store: "Store", location: str, name: str) -> BucketLayout | None:
    """Return the bucket layout of a version, or None unless all its files are bucketed by this column only."""
    metadata = load_metadata(store, location)
    field = _find_field(metadata, name)
    partition_fields = {spec.fields for spec in _list_used_specs(store, metadata)}
    if field is None or len(partition_fields) != 1 or len(fields := partition_fields.pop()) != 1:
        return None
    transform = fields[0].transform
    is_bucketed = fields[0].source_id == field.field_id and isinstance(transform, BucketTransform)
    return BucketLayout(transform.num_buckets, field.field_type) if is_bucketed else None


def _list_used_specs(store: "Store", metadata: "TableMetadata") -> list[Any]:
    """Return the partition specs that the files of a version use, and the default spec for new files."""
    from runnel.lake.iceberg.manifests import read_manifests

    used_ids = {manifest.partition_spec_id for manifest in read_manifests(store, metadata)} | {metadata.default_spec_id}
    return [spec for spec in metadata.partition_specs if spec.spec_id in used_ids]


def count_slices(
    store: "Store", location: str, columns: Sequence[str], only_entries: Iterable[FileEntry] | None = None
) -> int | None:
    """Return how many slices a version, or some of its entries, contain; None if that can't be determined."""
    metadata = load_metadata(store, location)
    data_entries = [
        entry for entry in (read_entries(store, metadata) if only_entries is None else only_entries) if entry.is_data
    ]
    fields = [field for name in columns if (field := _find_field(metadata, name))]
    if len(fields) < len(columns):
        return None
    keys = [_find_key(metadata, entry, fields) for entry in data_entries]
    if None not in keys:
        return len(set(keys))
    return _count_with_duckdb(store, metadata, fields, None if only_entries is None else data_entries)


def _count_with_duckdb(
    store: "Store", metadata: "TableMetadata", fields: Sequence[NestedField], only_entries: list[FileEntry] | None
) -> int | None:
    from runnel.errors import RunnelError
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors

    names = ", ".join(quote_identifier(field.name) for field in fields)
    try:
        sql = f"SELECT count(*) FROM (SELECT DISTINCT {names} FROM ({rows_sql(store, metadata, only_entries)}))"
        with translate_duckdb_errors(), connect_duckdb() as connection:
            row = connection.execute(sql).fetchone()
    except (DuckdbScanError, RunnelError):
        return None  # the number is only displayed: nothing depends on it
    return int(row[0]) if row else None


def _find_field(metadata: "TableMetadata", name: str) -> NestedField | None:
    lower_name = name.strip("`").lower()
    return next((field for field in metadata.schema().fields if field.name.lower() == lower_name), None)


def _list_identity_sources(spec: Any) -> set[int]:
    return {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}


def _find_key(metadata: "TableMetadata", entry: FileEntry, fields: Sequence[NestedField]) -> SliceValue | None:
    """Return the slice key that all rows of a file share, or None if the file may contain several."""
    values = []
    for field in fields:
        if not isinstance(field.field_type, _EXACT_TYPES):
            return None
        is_single_value, value = _find_key_value(metadata, entry, field)
        if not is_single_value:
            return None
        values.append(value)
    return tuple(values)


def _find_key_value(metadata: "TableMetadata", entry: FileEntry, field: NestedField) -> tuple[bool, Any]:
    spec = next(spec for spec in metadata.partition_specs if spec.spec_id == entry.file.spec_id)
    for position, partition_field in enumerate(spec.fields):
        if partition_field.source_id == field.field_id and isinstance(partition_field.transform, IdentityTransform):
            return True, _to_python_value(field.field_type, entry.file.partition[position])
    return _read_single_value(entry, field)


def _read_single_value(entry: FileEntry, field: NestedField) -> tuple[bool, Any]:
    """Return whether all rows of a file have the same value by its column statistics, and that value."""
    file, field_id = entry.file, field.field_id
    nulls = (file.null_value_counts or {}).get(field_id)
    if nulls is not None and nulls == file.record_count:
        return True, None
    low, high = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    if nulls != 0 or low is None or low != high:
        return False, None
    value = _decode_bound(field.field_type, low)
    if isinstance(value, str) and len(value) >= _MAX_EXACT_LENGTH:
        return False, None
    return True, _to_python_value(field.field_type, value)


def _decode_bound(kind: IcebergType, stored: bytes) -> Any:
    assert isinstance(kind, PrimitiveType)
    return from_bytes(kind, stored)


def _to_python_value(kind: IcebergType, value: Any) -> Any:
    if isinstance(kind, DateType) and isinstance(value, int):
        return _EPOCH + dt.timedelta(days=value)
    return value


def estimate_slices(store: "Store", location: str, columns: Sequence[str]) -> int | None:
    """Estimate how many slices a version has from file metadata; None if metadata can't tell."""
    metadata = load_metadata(store, location)
    fields = [field for name in columns if (field := _find_field(metadata, name))]
    if len(fields) < len(columns):
        return None
    keys = set()
    low, high = None, None
    for entry in read_entries(store, metadata):
        key = _find_key(metadata, entry, fields)
        if key is not None:
            keys.add(key)
            continue
        first, last = _read_file_bounds(entry, fields[0])
        if len(fields) > 1 or first is None or last is None:
            return None
        low = first if low is None else min(first, low)
        high = last if high is None else max(last, high)
    return max(len(keys), high - low + 1 if low is not None and high is not None else 0)


def read_bounds(store: "Store", location: str, name: str, among: Iterable[FileEntry]) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column in some files; None if metadata can't tell."""
    metadata = load_metadata(store, location)
    field = _find_field(metadata, name)
    file_bounds = [_read_file_bounds(entry, field) for entry in among if entry.is_data] if field else []
    low, high = (
        [lower for lower, _ in file_bounds if lower is not None],
        [upper for _, upper in file_bounds if upper is not None],
    )
    if field is None or not file_bounds or len(low) < len(file_bounds) or len(high) < len(file_bounds):
        return None
    return _to_python_value(field.field_type, min(low)), _to_python_value(field.field_type, max(high))


def _read_file_bounds(entry: FileEntry, field: NestedField) -> tuple[int | None, int | None]:
    """Return a file's bounds of an integer column, or of a date column in days."""
    if not isinstance(field.field_type, IntegerType | LongType | DateType):
        return None, None
    low = (entry.file.lower_bounds or {}).get(field.field_id)
    high = (entry.file.upper_bounds or {}).get(field.field_id)
    if low is None or high is None:
        return None, None
    return _decode_bound(field.field_type, low), _decode_bound(field.field_type, high)
