"""Choose the columns in which two versions of a table are compared, and write them as SQL that compares equal values.

Pure: metadata in, SQL out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type


@dataclass(frozen=True)
class ComparedColumn:
    """A column that both versions have, with its name and type in the newer version."""

    name: str
    kind: IcebergType

    @property
    def key_expression(self) -> str:
        """Return an SQL expression for the column that can be grouped and compared."""
        return make_comparable(quote_identifier(self.name), self.kind)


def find_common_columns(before: TableMetadata, after: TableMetadata) -> list[tuple[NestedField, NestedField]]:
    """Return the columns that both versions have, in the newer version's order.

    If the table was dropped and created again, its field ids differ: columns are then matched by name and type.
    """
    if before.table_uuid == after.table_uuid:
        by_id = {field.field_id: field for field in before.schema().fields}
        return [(by_id[field.field_id], field) for field in after.schema().fields if field.field_id in by_id]
    by_name = {field.name: field for field in before.schema().fields}
    return [
        (by_name[field.name], field)
        for field in after.schema().fields
        if field.name in by_name and to_duckdb_type(by_name[field.name].field_type) == to_duckdb_type(field.field_type)
    ]


def make_comparable(value: str, kind: IcebergType, counter: Callable[[], int] | None = None) -> str:
    """Return an SQL expression that is equal for equal values; map entries have no order, so it sorts them."""
    if is_directly_comparable(kind):
        return value
    next_number = counter or count().__next__
    name = f"e{next_number()}"
    if isinstance(kind, ListType):
        return f"list_transform({value}, lambda {name}: {make_comparable(name, kind.element_type, next_number)})"
    if isinstance(kind, MapType):
        key = make_comparable(f"{name}.key", kind.key_type, next_number)
        value_expression = make_comparable(f"{name}.value", kind.value_type, next_number)
        return f"list_sort(list_transform(map_entries({value}), lambda {name}: {{k: {key}, v: {value_expression}}}))"
    assert isinstance(kind, StructType)
    struct_fields = ", ".join(
        f"{quote_identifier(field.name)}: "
        f"{make_comparable(f'({value}).{quote_identifier(field.name)}', field.field_type, next_number)}"
        for field in kind.fields
    )
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {{{struct_fields}}} END"


def is_directly_comparable(kind: IcebergType) -> bool:
    """Return whether values of a type can be compared directly, because the type contains no map."""
    if isinstance(kind, StructType):
        return all(is_directly_comparable(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return is_directly_comparable(kind.element_type)
    return not isinstance(kind, MapType)
