"""Evolve a table to requested columns, partitions and sort order, so that its existing files stay readable.

Iceberg identifies a column by its field id. A column keeps its id if it keeps its name and a type in which the files
can be read; any other gets a fresh id, so that no old value shows up in it. Stages a version; nothing points at it yet.
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

from runnel.lake.iceberg.table_metadata import create_table, load_metadata, stage_update

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

SpecOf = Callable[[Schema], PartitionSpec]
SortOf = Callable[[Schema], SortOrder]


def evolve_table(
    store: "Store",
    name: "TableName",
    base: str | None,
    schema: Schema,
    *,
    spec: SpecOf = lambda _: UNPARTITIONED_PARTITION_SPEC,
    sort: SortOf = lambda _: UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Stage a version of a table with the requested shape and return its location; `base` itself if it fits already.

    The ids of `schema` don't matter: columns are matched by name, ignoring case. `spec` and `sort` are called with
    the resulting schema. All columns become optional. Without a `base` an empty table is created.
    """
    requested_fields = [_make_optional(field) for field in schema.fields]
    if base is None:
        new_schema = assign_fresh_schema_ids(Schema(*requested_fields))
        return create_table(
            store, name, new_schema, spec=spec(new_schema), sort=sort(new_schema), properties=properties
        )[0]
    metadata = load_metadata(store, base)
    evolved_schema = _match_columns(metadata, requested_fields)
    updates = [
        *_build_schema_updates(metadata, evolved_schema),
        *_build_spec_updates(metadata, spec(evolved_schema)),
        *_build_sort_updates(metadata, sort(evolved_schema)),
    ]
    changed_properties = {
        key: value for key, value in (properties or {}).items() if metadata.properties.get(key) != value
    }
    if changed_properties:
        updates.append(SetPropertiesUpdate(updates=changed_properties))
    return stage_update(store, metadata, base, updates)[0] if updates else base


def _match_columns(metadata: "TableMetadata", requested_fields: list[NestedField]) -> Schema:
    """Return the requested columns with the ids that they have in the table, or fresh ones."""
    current_fields = metadata.schema().fields
    by_name = {field.name: field for field in current_fields}
    by_lower_name = {
        field.name.lower(): field
        for field in current_fields
        if field.name not in {field.name for field in requested_fields}
    }
    ids = count(metadata.last_column_id + 1)
    matched_fields = []
    for field in requested_fields:
        current_field = by_name.get(field.name) or by_lower_name.get(field.name.lower())
        kind = _find_readable_type(current_field.field_type, field.field_type) if current_field else None
        if current_field is not None and kind is not None:
            matched_fields.append(_copy_field(field, current_field.field_id, kind))
        else:
            field_id = next(ids)  # before those inside it, as Iceberg numbers them
            matched_fields.append(_copy_field(field, field_id, _assign_ids(field.field_type, ids)))
    return Schema(*matched_fields, schema_id=max(schema.schema_id for schema in metadata.schemas) + 1)


def _find_readable_type(old: IcebergType, new: IcebergType) -> IcebergType | None:
    """Return the type in which the values of an old column can still be read, or None if they can't."""
    relaxed = _make_type_optional(old)
    if not new.is_primitive or not relaxed.is_primitive:
        return relaxed if _strip_ids(relaxed) == _strip_ids(new) else None
    return new if relaxed == new or _is_widening(relaxed, new) else None


def _is_widening(old: IcebergType, new: IcebergType) -> bool:
    """Return whether Iceberg reads values of an old type in a new one."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    pairs = ((IntegerType, LongType), (FloatType, DoubleType))
    return any(isinstance(old, narrow) and isinstance(new, wide) for narrow, wide in pairs)


def _build_schema_updates(metadata: "TableMetadata", requested: Schema) -> Iterator[TableUpdate]:
    current = metadata.schema()
    if current.fields == requested.fields and not current.identifier_field_ids:
        return
    equal_schemas = [
        existing
        for existing in metadata.schemas
        if existing.fields == requested.fields and not existing.identifier_field_ids
    ]
    if equal_schemas:
        yield SetCurrentSchemaUpdate(schema_id=equal_schemas[-1].schema_id)
        return
    yield AddSchemaUpdate.model_validate({"schema": requested})
    yield SetCurrentSchemaUpdate(schema_id=requested.schema_id)


def _build_spec_updates(metadata: "TableMetadata", requested: PartitionSpec) -> Iterator[TableUpdate]:
    if _list_splits(metadata.spec()) == _list_splits(requested):
        return
    equal_specs = [
        existing for existing in metadata.partition_specs if _list_splits(existing) == _list_splits(requested)
    ]
    if equal_specs:
        yield SetDefaultSpecUpdate(spec_id=equal_specs[-1].spec_id)
        return
    # A partition field with the source and transform of an older spec's field keeps its id, as Iceberg requires.
    existing = {
        split: partition_field.field_id
        for spec in metadata.partition_specs
        for split, partition_field in _list_splits_with_fields(spec)
    }
    ids = count((metadata.last_partition_id or 999) + 1)
    fields = [
        PartitionField(
            partition_field.source_id, existing.get(split) or next(ids), partition_field.transform, partition_field.name
        )
        for split, partition_field in _list_splits_with_fields(requested)
    ]
    spec_id = max(spec.spec_id for spec in metadata.partition_specs) + 1
    yield AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=spec_id))
    yield SetDefaultSpecUpdate(spec_id=spec_id)


def _build_sort_updates(metadata: "TableMetadata", requested: SortOrder) -> Iterator[TableUpdate]:
    current = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if (current.fields if current else []) == requested.fields:
        return
    equal_orders = [existing for existing in metadata.sort_orders if existing.fields == requested.fields]
    if equal_orders:
        yield SetDefaultSortOrderUpdate(sort_order_id=equal_orders[-1].order_id)
        return
    # Order id 0 means unsorted.
    order_id = 0 if not requested.fields else max([0, *(existing.order_id for existing in metadata.sort_orders)]) + 1
    yield AddSortOrderUpdate(sort_order=SortOrder(*requested.fields, order_id=order_id))
    yield SetDefaultSortOrderUpdate(sort_order_id=order_id)


def _list_splits_with_fields(spec: PartitionSpec) -> list[tuple[tuple[int, str], PartitionField]]:
    return [((field.source_id, str(field.transform)), field) for field in spec.fields]


def _list_splits(spec: PartitionSpec) -> list[tuple[int, str]]:
    return [split for split, _ in _list_splits_with_fields(spec)]


def _make_optional(field: NestedField) -> NestedField:
    return _copy_field(field, field.field_id, _make_type_optional(field.field_type))


def _make_type_optional(kind: IcebergType) -> IcebergType:
    """Return a type in which everything except map keys may be null."""
    if isinstance(kind, StructType):
        return StructType(*(_make_optional(field) for field in kind.fields))
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _make_type_optional(kind.element_type), element_required=False)
    if isinstance(kind, MapType):
        key, value = _make_type_optional(kind.key_type), _make_type_optional(kind.value_type)
        return MapType(kind.key_id, key, kind.value_id, value, value_required=False)
    return kind


def _strip_ids(kind: IcebergType) -> object:
    """Return a value that is equal for two types that differ only in ids and comments."""
    if isinstance(kind, StructType):
        return ("struct", [(field.name, _strip_ids(field.field_type)) for field in kind.fields])
    if isinstance(kind, ListType):
        return ("list", _strip_ids(kind.element_type))
    if isinstance(kind, MapType):
        return ("map", _strip_ids(kind.key_type), _strip_ids(kind.value_type))
    return kind


def _assign_ids(kind: IcebergType, ids: Iterator[int]) -> IcebergType:
    """Return a type with fresh ids for its nested fields."""
    if isinstance(kind, StructType):
        numbers = [next(ids) for _ in kind.fields]
        numbered_fields = zip(kind.fields, numbers, strict=True)
        return StructType(
            *(_copy_field(field, number, _assign_ids(field.field_type, ids)) for field, number in numbered_fields)
        )
    if isinstance(kind, ListType):
        return ListType(next(ids), _assign_ids(kind.element_type, ids), element_required=False)
    if isinstance(kind, MapType):
        key_id, value_id = next(ids), next(ids)
        key, value = _assign_ids(kind.key_type, ids), _assign_ids(kind.value_type, ids)
        return MapType(key_id, key, value_id, value, value_required=False)
    return kind


def _copy_field(field: NestedField, field_id: int, kind: IcebergType) -> NestedField:
    return NestedField(field_id, field.name, kind, required=False, doc=field.doc)
