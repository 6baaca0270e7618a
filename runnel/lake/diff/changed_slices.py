"""Slices as the files of a table tell them: the keys of a difference, and how many there are.

A file names its slice where the table is partitioned by the key, or where the bounds of the key's columns are one
value. Otherwise Spark has to look.
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

from runnel.lake.diff.compaction_delta import change
from runnel.lake.iceberg.manifests import Entry, entries
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.duckdb_types import Unscannable, quoted
from runnel.lake.scan.scan_sql import rows_sql
from runnel.plan.slices import Key, Slice, union

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

_WHOLE = (IntegerType, LongType, DateType, BooleanType, StringType)  # equal as values exactly where equal as keys
_SHORTEN = 16  # bounds of longer texts are cut
_EPOCH = dt.date(1970, 1, 1)


def named(
    store: "Store", table: "TableName", before: str, after: str, columns: Sequence[str]
) -> tuple[Slice, ...] | None:
    """Return the slices in which two versions differ, with the rows of their files; None where files don't tell."""
    found = change(store, table, before, after)
    gained: dict[Key, int] = {}
    lost: dict[Key, int] = {}
    for location, side, counts in ((after, found.added, gained), (before, found.removed, lost)):
        metadata = load(store, location)
        fields = [_field(metadata, name) for name in columns]
        if any(field is None for field in fields):
            return None
        for entry in side:
            key = _key(metadata, entry, [field for field in fields if field is not None])
            if key is None:
                return None
            counts[key] = counts.get(key, 0) + (entry.file.record_count if entry.is_data else 0)
    return tuple(Slice(key, gained.get(key, 0), lost.get(key, 0)) for key in union([gained, lost]))


def is_aligned(store: "Store", location: str, columns: Sequence[str]) -> bool:
    """Tell whether every file of a version is of one slice only, so that slices are replaced by files."""
    metadata = load(store, location)
    ids = {field.field_id for name in columns if (field := _field(metadata, name))}
    return len(ids) == len(columns) and all(ids <= _identities(spec) for spec in _specs(store, metadata))


@dataclass(frozen=True)
class Buckets:
    """How many buckets of a column the files of a version are parted into; `kind` is the column's type."""

    number: int
    kind: IcebergType

    def of(self, value: Any) -> int | None:
        """Return the bucket of a value; None for null."""
        stored = (value - _EPOCH).days if isinstance(self.kind, DateType) and value is not None else value
        return BucketTransform(self.number).transform(self.kind)(stored)


def buckets(store: "Store", location: str, name: str) -> Buckets | None:
    """Return the buckets of a column that all files of a version are parted into, or None where they are not."""
    metadata = load(store, location)
    field = _field(metadata, name)
    parts = {spec.fields for spec in _specs(store, metadata)}
    if field is None or len(parts) != 1 or len(fields := parts.pop()) != 1:
        return None
    transform = fields[0].transform
    is_its = fields[0].source_id == field.field_id and isinstance(transform, BucketTransform)
    return Buckets(transform.num_buckets, field.field_type) if is_its else None


def _specs(store: "Store", metadata: "TableMetadata") -> list[Any]:
    """Return how the files of a version are parted, and how new ones will be."""
    from runnel.lake.iceberg.manifests import manifests

    used = {manifest.partition_spec_id for manifest in manifests(store, metadata)} | {metadata.default_spec_id}
    return [spec for spec in metadata.partition_specs if spec.spec_id in used]


def count(store: "Store", location: str, columns: Sequence[str], only: Iterable[Entry] | None = None) -> int | None:
    """Return how many slices a version has, or those of its files `only`; None where it can't be said."""
    metadata = load(store, location)
    found = [entry for entry in (entries(store, metadata) if only is None else only) if entry.is_data]
    fields = [field for name in columns if (field := _field(metadata, name))]
    if len(fields) < len(columns):
        return None
    keys = [_key(metadata, entry, fields) for entry in found]
    if None not in keys:
        return len(set(keys))
    return _counted(store, metadata, fields, None if only is None else found)


def _counted(
    store: "Store", metadata: "TableMetadata", fields: Sequence[NestedField], only: list[Entry] | None
) -> int | None:
    from runnel.errors import RunnelError
    from runnel.lake.scan.duckdb_connection import connect, told

    names = ", ".join(quoted(field.name) for field in fields)
    try:
        sql = f"SELECT count(*) FROM (SELECT DISTINCT {names} FROM ({rows_sql(store, metadata, only)}))"
        with told(), connect() as connection:
            row = connection.execute(sql).fetchone()
    except (Unscannable, RunnelError):
        return None  # a number for people: nothing depends on it
    return int(row[0]) if row else None


def _field(metadata: "TableMetadata", name: str) -> NestedField | None:
    wanted = name.strip("`").lower()
    return next((field for field in metadata.schema().fields if field.name.lower() == wanted), None)


def _identities(spec: Any) -> set[int]:
    return {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}


def _key(metadata: "TableMetadata", entry: Entry, fields: Sequence[NestedField]) -> Key | None:
    """Return the one key that all rows of a file have, or None where it may have several."""
    found = []
    for field in fields:
        if not isinstance(field.field_type, _WHOLE):
            return None
        known, value = _part(metadata, entry, field)
        if not known:
            return None
        found.append(value)
    return tuple(found)


def _part(metadata: "TableMetadata", entry: Entry, field: NestedField) -> tuple[bool, Any]:
    spec = next(spec for spec in metadata.partition_specs if spec.spec_id == entry.file.spec_id)
    for place, part in enumerate(spec.fields):
        if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
            return True, _value(field.field_type, entry.file.partition[place])
    return _bounded(entry, field)


def _bounded(entry: Entry, field: NestedField) -> tuple[bool, Any]:
    """Return the value that bounds say all rows of a file have, and whether they say so."""
    file, number = entry.file, field.field_id
    nulls = (file.null_value_counts or {}).get(number)
    if nulls is not None and nulls == file.record_count:
        return True, None
    low, high = (file.lower_bounds or {}).get(number), (file.upper_bounds or {}).get(number)
    if nulls != 0 or low is None or low != high:
        return False, None
    value = _read(field.field_type, low)
    if isinstance(value, str) and len(value) >= _SHORTEN:
        return False, None
    return True, _value(field.field_type, value)


def _read(kind: IcebergType, stored: bytes) -> Any:
    assert isinstance(kind, PrimitiveType)
    return from_bytes(kind, stored)


def _value(kind: IcebergType, value: Any) -> Any:
    if isinstance(kind, DateType) and isinstance(value, int):
        return _EPOCH + dt.timedelta(days=value)
    return value


def estimate(store: "Store", location: str, columns: Sequence[str]) -> int | None:
    """Return about how many slices a version has, as its files tell; None where they don't."""
    metadata = load(store, location)
    fields = [field for name in columns if (field := _field(metadata, name))]
    if len(fields) < len(columns):
        return None
    keys = set()
    low, high = None, None
    for entry in entries(store, metadata):
        key = _key(metadata, entry, fields)
        if key is not None:
            keys.add(key)
            continue
        first, last = _bounds(entry, fields[0])
        if len(fields) > 1 or first is None or last is None:
            return None
        low = first if low is None else min(first, low)
        high = last if high is None else max(last, high)
    return max(len(keys), high - low + 1 if low is not None and high is not None else 0)


def bounds(store: "Store", location: str, name: str, among: Iterable[Entry]) -> tuple[Any, Any] | None:
    """Return the least and the greatest value that files have of a column; None where they don't tell."""
    metadata = load(store, location)
    field = _field(metadata, name)
    ends = [_bounds(entry, field) for entry in among if entry.is_data] if field else []
    low, high = [least for least, _ in ends if least is not None], [most for _, most in ends if most is not None]
    if field is None or not ends or len(low) < len(ends) or len(high) < len(ends):
        return None
    return _value(field.field_type, min(low)), _value(field.field_type, max(high))


def _bounds(entry: Entry, field: NestedField) -> tuple[int | None, int | None]:
    """Return the bounds of a whole number or a date, in days, of a file."""
    if not isinstance(field.field_type, IntegerType | LongType | DateType):
        return None, None
    low = (entry.file.lower_bounds or {}).get(field.field_id)
    high = (entry.file.upper_bounds or {}).get(field.field_id)
    if low is None or high is None:
        return None, None
    return _read(field.field_type, low), _read(field.field_type, high)
