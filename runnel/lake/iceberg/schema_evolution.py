"""Give a table the columns, partitions and order that its maker wants, keeping what files are read by.

A column is known by its id. One that keeps its name and a type that files can still be read in keeps its id; any
other gets a fresh one, so that no old value shows up in it. Stages a version; nothing points at it yet.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from runnel.lake.iceberg.table_metadata import create, load, update

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

SpecOf = Callable[[Schema], PartitionSpec]
SortOf = Callable[[Schema], SortOrder]


def reshape(
    store: "Store",
    name: "TableName",
    base: str | None,
    schema: Schema,
    *,
    spec: SpecOf = lambda schema: UNPARTITIONED_PARTITION_SPEC,
    sort: SortOf = lambda schema: UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Stage a version of a table in the wanted shape and return its location; `base` itself where it fits already.

    The ids of `schema` don't matter: columns are matched by name, whatever its case. `spec` and `sort` are asked with
    the columns as they will be. All columns become optional. Without a `base` the table is created, empty.
    """
    wanted = [_relaxed(field) for field in schema.fields]
    if base is None:
        fresh = assign_fresh_schema_ids(Schema(*wanted))
        return create(store, name, fresh, spec=spec(fresh), sort=sort(fresh), properties=properties)[0]
    metadata = load(store, base)
    shaped = _matched(metadata, wanted)
    updates = [
        *_schema_updates(metadata, shaped),
        *_spec_updates(metadata, spec(shaped)),
        *_sort_updates(metadata, sort(shaped)),
    ]
    changed = {key: value for key, value in (properties or {}).items() if metadata.properties.get(key) != value}
    if changed:
        updates.append(SetPropertiesUpdate(updates=changed))
    return update(store, metadata, base, updates)[0] if updates else base


def _matched(metadata: "TableMetadata", wanted: list[NestedField]) -> Schema:
    """Return the wanted columns with the ids that they have in the table, or fresh ones."""
    now = metadata.schema().fields
    exact = {field.name: field for field in now}
    loose = {field.name.lower(): field for field in now if field.name not in {field.name for field in wanted}}
    ids = count(metadata.last_column_id + 1)
    found = []
    for field in wanted:
        old = exact.get(field.name) or loose.get(field.name.lower())
        kind = _kept(old.field_type, field.field_type) if old else None
        if old is not None and kind is not None:
            found.append(_with(field, old.field_id, kind))
        else:
            field_id = next(ids)  # before those inside it, as Iceberg numbers them
            found.append(_with(field, field_id, _numbered(field.field_type, ids)))
    return Schema(*found, schema_id=max(schema.schema_id for schema in metadata.schemas) + 1)


def _kept(old: IcebergType, new: IcebergType) -> IcebergType | None:
    """Return the type under which the values of an old column are still read, or None where they can't be."""
    relaxed = _relaxed_type(old)
    if not new.is_primitive or not relaxed.is_primitive:
        return relaxed if _bare(relaxed) == _bare(new) else None
    return new if relaxed == new or _widens(relaxed, new) else None


def _widens(old: IcebergType, new: IcebergType) -> bool:
    """Tell whether Iceberg reads values of an old type in a new one."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    pairs = ((IntegerType, LongType), (FloatType, DoubleType))
    return any(isinstance(old, narrow) and isinstance(new, wide) for narrow, wide in pairs)


def _schema_updates(metadata: "TableMetadata", wanted: Schema) -> Iterator[TableUpdate]:
    current = metadata.schema()
    if current.fields == wanted.fields and not current.identifier_field_ids:
        return
    same = [known for known in metadata.schemas if known.fields == wanted.fields and not known.identifier_field_ids]
    if same:
        yield SetCurrentSchemaUpdate(schema_id=same[-1].schema_id)
        return
    yield AddSchemaUpdate.model_validate({"schema": wanted})
    yield SetCurrentSchemaUpdate(schema_id=wanted.schema_id)


def _spec_updates(metadata: "TableMetadata", wanted: PartitionSpec) -> Iterator[TableUpdate]:
    if _splits(metadata.spec()) == _splits(wanted):
        return
    same = [known for known in metadata.partition_specs if _splits(known) == _splits(wanted)]
    if same:
        yield SetDefaultSpecUpdate(spec_id=same[-1].spec_id)
        return
    # A field that splits as one of an older spec did keeps its id, as Iceberg asks.
    known = {split: at.field_id for spec in metadata.partition_specs for split, at in _by_split(spec)}
    ids = count((metadata.last_partition_id or 999) + 1)
    fields = [
        PartitionField(at.source_id, known.get(split) or next(ids), at.transform, at.name)
        for split, at in _by_split(wanted)
    ]
    spec_id = max(spec.spec_id for spec in metadata.partition_specs) + 1
    yield AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=spec_id))
    yield SetDefaultSpecUpdate(spec_id=spec_id)


def _sort_updates(metadata: "TableMetadata", wanted: SortOrder) -> Iterator[TableUpdate]:
    current = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if (current.fields if current else []) == wanted.fields:
        return
    same = [known for known in metadata.sort_orders if known.fields == wanted.fields]
    if same:
        yield SetDefaultSortOrderUpdate(sort_order_id=same[-1].order_id)
        return
    # Zero is the order that is none.
    order_id = 0 if not wanted.fields else max([0, *(known.order_id for known in metadata.sort_orders)]) + 1
    yield AddSortOrderUpdate(sort_order=SortOrder(*wanted.fields, order_id=order_id))
    yield SetDefaultSortOrderUpdate(sort_order_id=order_id)


def _by_split(spec: PartitionSpec) -> list[tuple[tuple[int, str], PartitionField]]:
    return [((field.source_id, str(field.transform)), field) for field in spec.fields]


def _splits(spec: PartitionSpec) -> list[tuple[int, str]]:
    return [split for split, _ in _by_split(spec)]


def _relaxed(field: NestedField) -> NestedField:
    return _with(field, field.field_id, _relaxed_type(field.field_type))


def _relaxed_type(kind: IcebergType) -> IcebergType:
    """Return a type in which everything may be null but the keys of maps."""
    if isinstance(kind, StructType):
        return StructType(*(_relaxed(field) for field in kind.fields))
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _relaxed_type(kind.element_type), element_required=False)
    if isinstance(kind, MapType):
        key, value = _relaxed_type(kind.key_type), _relaxed_type(kind.value_type)
        return MapType(kind.key_id, key, kind.value_id, value, value_required=False)
    return kind


def _bare(kind: IcebergType) -> object:
    """Return what two types share if they differ in nothing but ids and comments."""
    if isinstance(kind, StructType):
        return ("struct", [(field.name, _bare(field.field_type)) for field in kind.fields])
    if isinstance(kind, ListType):
        return ("list", _bare(kind.element_type))
    if isinstance(kind, MapType):
        return ("map", _bare(kind.key_type), _bare(kind.value_type))
    return kind


def _numbered(kind: IcebergType, ids: Iterator[int]) -> IcebergType:
    """Return a type with fresh ids for all that is inside it."""
    if isinstance(kind, StructType):
        numbers = [next(ids) for _ in kind.fields]
        parts = zip(kind.fields, numbers, strict=True)
        return StructType(*(_with(field, number, _numbered(field.field_type, ids)) for field, number in parts))
    if isinstance(kind, ListType):
        return ListType(next(ids), _numbered(kind.element_type, ids), element_required=False)
    if isinstance(kind, MapType):
        key_id, value_id = next(ids), next(ids)
        key, value = _numbered(kind.key_type, ids), _numbered(kind.value_type, ids)
        return MapType(key_id, key, value_id, value, value_required=False)
    return kind


def _with(field: NestedField, field_id: int, kind: IcebergType) -> NestedField:
    return NestedField(field_id, field.name, kind, required=False, doc=field.doc)
