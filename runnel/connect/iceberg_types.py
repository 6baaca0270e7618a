"""Iceberg types as loads need them: from Spark's and Arrow's, which one holds both of two, how users call them.

Types made here carry no field ids; a table gives them out.
"""

from typing import TYPE_CHECKING

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UnknownType,
    UUIDType,
)

from runnel.errors import Mistake

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.declare.model.column_types import Column, SparkType

NO_ID = -1
NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
TIMES = (DateType, TimestampType, TimestamptzType)
_SPARK: dict[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "tinyint": IntegerType(),
    "smallint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}


def from_spark(kind: "SparkType") -> IcebergType:
    """Return the Iceberg type that holds a Spark type."""
    if kind.kind == "decimal":
        return DecimalType(kind.precision, kind.scale)
    if kind.kind == "array":
        return list_of(from_spark(kind.children[0].type))
    if kind.kind == "map":
        key, value = (from_spark(child.type) for child in kind.children)
        return MapType(NO_ID, key, NO_ID, value, False)
    if kind.kind == "struct":
        return StructType(*(field_of(child) for child in kind.children))
    return _SPARK[kind.kind]


def field_of(column: "Column") -> NestedField:
    """Return a declared column as an Iceberg field without an id."""
    return NestedField(NO_ID, column.name, from_spark(column.type), required=column.required, doc=column.comment)


def list_of(element: IcebergType) -> ListType:
    """Return a list of nullable elements."""
    return ListType(NO_ID, element, False)


def struct_of(fields: "dict[str, IcebergType]") -> StructType:
    """Return a struct of nullable fields."""
    return StructType(*(NestedField(NO_ID, name, kind, required=False) for name, kind in fields.items()))


def from_arrow(name: str, kind: "pa.DataType", file: str) -> IcebergType:
    """Return the Iceberg type that holds an Arrow type, or raise with the column and the file."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    if pa.types.is_null(kind):
        return StringType()
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return DecimalType(20, 0)
    if pa.types.is_timestamp(kind):  # nanoseconds are cut to microseconds
        return TimestamptzType() if kind.tz else TimestampType()
    if pa.types.is_dictionary(kind):
        return from_arrow(name, kind.value_type, file)
    try:
        found = _pyarrow_to_schema_without_ids(pa.schema([(name, kind)]), downcast_ns_timestamp_to_us=True)
    except (TypeError, ValueError, NotImplementedError) as error:
        what = f"the column `{name}` of {file} has the type {kind}, which Iceberg can't hold"
        raise Mistake("LOAD_TYPE", what, at=file, fix="convert it to another type when the file is written") from error
    return bare(found.fields[0].field_type)


def copied(kind: IcebergType) -> IcebergType:
    """Return the type as which a column is copied: what Arrow can't cast becomes what it can.

    >>> copied(UUIDType()), copied(FixedType(4))
    (StringType(), BinaryType())
    """
    if isinstance(kind, UUIDType):
        return StringType()
    return BinaryType() if isinstance(kind, FixedType) else kind


def bare(kind: IcebergType) -> IcebergType:
    """Return a type without field ids, and with everything inside it nullable, so that two can be compared."""
    if isinstance(kind, StructType):
        return struct_of({field.name: bare(field.field_type) for field in kind.fields})
    if isinstance(kind, ListType):
        return list_of(bare(kind.element_type))
    if isinstance(kind, MapType):
        return MapType(NO_ID, bare(kind.key_type), NO_ID, bare(kind.value_type), False)
    return kind


def common(one: IcebergType, other: IcebergType) -> IcebergType | None:
    """Return the type that holds all values of both, as Iceberg may promote; None where there is none.

    >>> common(IntegerType(), LongType()), common(LongType(), DoubleType())
    (LongType(), None)
    """
    if one == other:
        return one
    for narrow, wide in ((IntegerType, LongType), (FloatType, DoubleType)):
        if {type(one), type(other)} == {narrow, wide}:
            return one if isinstance(one, wide) else other
    if isinstance(one, DecimalType) and isinstance(other, DecimalType) and one.scale == other.scale:
        return one if one.precision >= other.precision else other
    return None


def wider(kind: IcebergType) -> tuple[IcebergType, ...]:
    """Return the types that a column of `kind` may be promoted to, the narrowest first.

    >>> wider(DecimalType(9, 2))
    (DecimalType(precision=18, scale=2), DecimalType(precision=38, scale=2))
    """
    if isinstance(kind, IntegerType):
        return (LongType(),)
    if isinstance(kind, FloatType):
        return (DoubleType(),)
    if isinstance(kind, DecimalType):
        return tuple(DecimalType(digits, kind.scale) for digits in (18, 38) if digits > kind.precision)
    return ()


def fits(source: IcebergType, target: IcebergType) -> bool:
    """Tell whether every value of a nested or plain type can be stored as another without a look at the values."""
    if isinstance(source, StructType) and isinstance(target, StructType):
        known = {field.name: field.field_type for field in target.fields}
        return all(field.name in known and fits(field.field_type, known[field.name]) for field in source.fields)
    if isinstance(source, StructType) and isinstance(target, MapType) and isinstance(target.key_type, StringType):
        return all(fits(field.field_type, target.value_type) for field in source.fields)
    if isinstance(source, ListType) and isinstance(target, ListType):
        return fits(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return fits(source.key_type, target.key_type) and fits(source.value_type, target.value_type)
    return source == target or isinstance(source, UnknownType) or common(source, target) == target


def known(kind: IcebergType) -> IcebergType:
    """Return a type in which every part that was null throughout is a string."""
    if isinstance(kind, StructType):
        return struct_of({field.name: known(field.field_type) for field in kind.fields})
    if isinstance(kind, ListType):
        return list_of(known(kind.element_type))
    return StringType() if isinstance(kind, UnknownType) else kind


def castable(source: IcebergType, target: IcebergType) -> bool:
    """Tell whether values of one type may be stored as another if each of them survives the way there and back."""
    if not source.is_primitive or not target.is_primitive:
        return source == target
    if isinstance(source, BinaryType) or isinstance(target, BinaryType):
        return source == target
    together = any(isinstance(source, group) and isinstance(target, group) for group in (NUMBERS, TIMES))
    return source == target or together or isinstance(source, StringType) or isinstance(target, StringType)


def called(kind: IcebergType) -> str:
    """Return what a user calls a type: Spark's name for it.

    >>> called(TimestamptzType()), called(DecimalType(12, 2))
    ('timestamp', 'decimal(12,2)')
    """
    if isinstance(kind, TimestamptzType):
        return "timestamp"
    if isinstance(kind, TimestampType):
        return "timestamp_ntz"
    if isinstance(kind, ListType):
        return f"array<{called(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{called(kind.key_type)}, {called(kind.value_type)}>"
    if isinstance(kind, StructType):
        return "struct<" + ", ".join(f"{field.name}: {called(field.field_type)}" for field in kind.fields) + ">"
    return str(kind).replace(", ", ",")
