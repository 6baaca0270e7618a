"""Say in readable lines how the shape of a table changed: columns, partitions, order, properties.

Pure: compares two versions of metadata that the caller has read. Columns are known by id.
"""

from collections.abc import Iterable
from itertools import chain

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import NestedField


def shape_changes(before: TableMetadata, after: TableMetadata) -> tuple[str, ...]:
    """Return one line for each change, such as `added column note string`; nothing where only rows differ."""
    old, new = before.schema(), after.schema()
    if before.table_uuid != after.table_uuid:
        return ("dropped and created anew", *_partitions(before, after))
    return tuple(
        chain(
            _columns(old, new),
            _order(old, new),
            _partitions(before, after),
            _sorting(before, after),
            _properties(before.properties, after.properties),
        )
    )


def _columns(old: Schema, new: Schema) -> Iterable[str]:
    gone, come = index_by_id(old), index_by_id(new)
    for field_id, field in sorted(gone.items()):
        if field_id not in come and not _within(old, field_id, gone.keys() - come.keys()):
            yield f"dropped column {old.find_column_name(field_id)} {field.field_type}"
    for field_id, field in sorted(come.items()):
        name = new.find_column_name(field_id)
        if field_id in gone:
            yield from _column(gone[field_id], field, str(old.find_column_name(field_id)), str(name))
        elif not _within(new, field_id, come.keys() - gone.keys()):
            yield f"added column {name} {field.field_type}"


def _within(schema: Schema, field_id: int, others: Iterable[int]) -> bool:
    """Tell whether a field is inside another one of the same kind, which says enough."""
    name = str(schema.find_column_name(field_id))
    return any(name.startswith(f"{schema.find_column_name(other)}.") for other in others)


def _column(old: NestedField, new: NestedField, old_name: str, name: str) -> Iterable[str]:
    if old.name != new.name:
        yield f"renamed column {old_name} to {name}"
    if new.field_type.is_primitive and old.field_type != new.field_type:
        yield f"type of {name}: {old.field_type} -> {new.field_type}"
    if old.required != new.required:
        yield f"{name} is {'required' if new.required else 'optional'} now"
    if (old.doc or "") != (new.doc or ""):
        yield f"comment of {name}: {new.doc or 'none'}"


def _order(old: Schema, new: Schema) -> Iterable[str]:
    shared = {field.field_id for field in old.fields} & {field.field_id for field in new.fields}
    was = [field.field_id for field in old.fields if field.field_id in shared]
    now = [field.field_id for field in new.fields if field.field_id in shared]
    if was != now:
        yield f"order of columns: {', '.join(field.name for field in new.fields)}"


def _partitions(before: TableMetadata, after: TableMetadata) -> Iterable[str]:
    def parts(spec: PartitionSpec) -> list[tuple[int, str]]:
        return [(field.source_id, str(field.transform)) for field in spec.fields]

    if parts(before.spec()) != parts(after.spec()):
        shown = [_transformed(after.schema(), *part) for part in parts(after.spec()) if part[1] != "void"]
        yield f"partition by {', '.join(shown) or 'nothing'}"


def _sorting(before: TableMetadata, after: TableMetadata) -> Iterable[str]:
    def order(metadata: TableMetadata) -> list[tuple[int, str, str]]:
        found = next((o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id), SortOrder())
        return [(field.source_id, str(field.transform), field.direction.value) for field in found.fields]

    if order(before) != order(after):
        shown = [f"{_transformed(after.schema(), source, how)} {way}" for source, how, way in order(after)]
        yield f"sort by {', '.join(shown) or 'nothing'}"


def _transformed(schema: Schema, source: int, transform: str) -> str:
    """Return a partition or sort expression as it is written in SQL."""
    name = schema.find_column_name(source) or f"dropped column {source}"
    if transform == "identity":
        return name
    head, _, width = transform.partition("[")
    return f"{head}({width.rstrip(']')}, {name})" if width else f"{head}({name})"


def _properties(before: dict[str, str], after: dict[str, str]) -> Iterable[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            old, new = before.get(name, "none"), after.get(name, "none")
            yield f"property {name}: {old} -> {new}"
