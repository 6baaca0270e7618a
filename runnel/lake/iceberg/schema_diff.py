"""Describe types, and in readable lines how a table's definition changed: columns, partitions, sort order, properties.

Pure: compares two versions of metadata that the caller has read. Columns are matched by field id.
"""

import re
from collections.abc import Iterable
from itertools import chain

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, TimestampType, TimestamptzType

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


def describe_type(kind: IcebergType) -> str:
    """Return Spark's name of a type, which users know and which `schema=` accepts.

    >>> from pyiceberg.types import DecimalType, StringType
    >>> describe_type(TimestamptzType()), describe_type(MapType(1, StringType(), 2, DecimalType(12, 2)))
    ('timestamp', 'map<string, decimal(12,2)>')
    """
    if isinstance(kind, TimestamptzType):
        return "timestamp"
    if isinstance(kind, TimestampType):
        return "timestamp_ntz"
    if isinstance(kind, ListType):
        return f"array<{describe_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{describe_type(kind.key_type)}, {describe_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        fields = (f"{quote_column_name(field.name)}: {describe_type(field.field_type)}" for field in kind.fields)
        return f"struct<{', '.join(fields)}>"
    return str(kind).replace(", ", ",")


def quote_column_name(name: str) -> str:
    """Return a column name as a schema takes it: in backticks if it isn't a plain word.

    >>> quote_column_name("day"), quote_column_name("unit price")
    ('day', '`unit price`')
    """
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"


def describe_schema_changes(before: TableMetadata, after: TableMetadata) -> tuple[str, ...]:
    """Return one line for each change, such as `added column note string`; nothing if only rows differ."""
    old, new = before.schema(), after.schema()
    if before.table_uuid != after.table_uuid:
        return ("dropped and created again", *_describe_partitions(before, after))
    return tuple(
        chain(
            _describe_columns(old, new),
            _describe_column_order(old, new),
            _describe_partitions(before, after),
            _describe_sort_order(before, after),
            _describe_properties(before.properties, after.properties),
        )
    )


def _describe_columns(old: Schema, new: Schema) -> Iterable[str]:
    old_fields, new_fields = index_by_id(old), index_by_id(new)
    for field_id, field in sorted(old_fields.items()):
        if field_id not in new_fields and not _is_nested_in(old, field_id, old_fields.keys() - new_fields.keys()):
            yield f"dropped column {old.find_column_name(field_id)} {describe_type(field.field_type)}"
    for field_id, field in sorted(new_fields.items()):
        name = new.find_column_name(field_id)
        if field_id in old_fields:
            yield from _describe_column(old_fields[field_id], field, str(old.find_column_name(field_id)), str(name))
        elif not _is_nested_in(new, field_id, new_fields.keys() - old_fields.keys()):
            yield f"added column {name} {describe_type(field.field_type)}"


def _is_nested_in(schema: Schema, field_id: int, others: Iterable[int]) -> bool:
    """Return whether a field is nested in one of `others`, whose line already covers it."""
    name = str(schema.find_column_name(field_id))
    return any(name.startswith(f"{schema.find_column_name(other)}.") for other in others)


def _describe_column(old: NestedField, new: NestedField, old_name: str, name: str) -> Iterable[str]:
    if old.name != new.name:
        yield f"renamed column {old_name} to {name}"
    if new.field_type.is_primitive and old.field_type != new.field_type:
        yield f"type of {name}: {describe_type(old.field_type)} -> {describe_type(new.field_type)}"
    if old.required != new.required:
        yield f"{name} is {'required' if new.required else 'optional'} now"
    if (old.doc or "") != (new.doc or ""):
        yield f"comment of {name}: {new.doc or 'none'}"


def _describe_column_order(old: Schema, new: Schema) -> Iterable[str]:
    shared = {field.field_id for field in old.fields} & {field.field_id for field in new.fields}
    old_ids = [field.field_id for field in old.fields if field.field_id in shared]
    new_ids = [field.field_id for field in new.fields if field.field_id in shared]
    if old_ids != new_ids:
        yield f"order of columns: {', '.join(field.name for field in new.fields)}"


def _describe_partitions(before: TableMetadata, after: TableMetadata) -> Iterable[str]:
    def list_transforms(spec: PartitionSpec) -> list[tuple[int, str]]:
        return [(field.source_id, str(field.transform)) for field in spec.fields]

    if list_transforms(before.spec()) != list_transforms(after.spec()):
        expressions = [
            _format_transform(after.schema(), *part) for part in list_transforms(after.spec()) if part[1] != "void"
        ]
        yield f"partition by {', '.join(expressions) or 'nothing'}"


def _describe_sort_order(before: TableMetadata, after: TableMetadata) -> Iterable[str]:
    def list_sort_fields(metadata: TableMetadata) -> list[tuple[int, str, str]]:
        sort_order = next(
            (candidate for candidate in metadata.sort_orders if candidate.order_id == metadata.default_sort_order_id),
            SortOrder(),
        )
        return [(field.source_id, str(field.transform), field.direction.value) for field in sort_order.fields]

    if list_sort_fields(before) != list_sort_fields(after):
        expressions = [
            f"{_format_transform(after.schema(), source, transform)} {direction}"
            for source, transform, direction in list_sort_fields(after)
        ]
        yield f"sort by {', '.join(expressions) or 'nothing'}"


def _format_transform(schema: Schema, source: int, transform: str) -> str:
    """Return a partition or sort expression as it is written in SQL."""
    name = schema.find_column_name(source) or f"dropped column {source}"
    if transform == "identity":
        return name
    head, _, width = transform.partition("[")
    return f"{head}({width.rstrip(']')}, {name})" if width else f"{head}({name})"


def _describe_properties(before: dict[str, str], after: dict[str, str]) -> Iterable[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            old, new = before.get(name, "none"), after.get(name, "none")
            yield f"property {name}: {old} -> {new}"
