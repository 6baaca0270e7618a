"""Convert Spark and Arrow types to Iceberg types, compare and promote them.

Types created here have no field ids; a table assigns them.
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
_SPARK_TYPES: dict[str, PrimitiveType] = {
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


def convert_spark_type(kind: "SparkType") -> IcebergType:
    """Return the Iceberg type that holds a Spark type."""
    if kind.kind == "decimal":
        return DecimalType(kind.precision, kind.scale)
    if kind.kind == "array":
        return make_list_type(convert_spark_type(kind.children[0].type))
    if kind.kind == "map":
        key, value = (convert_spark_type(child.type) for child in kind.children)
        return MapType(NO_ID, key, NO_ID, value, False)
    if kind.kind == "struct":
        return StructType(*(to_iceberg_field(child) for child in kind.children))
    return _SPARK_TYPES[kind.kind]


def to_iceberg_field(column: "Column") -> NestedField:
    """Return a declared column as an Iceberg field without an id."""
    return NestedField(
        NO_ID, column.name, convert_spark_type(column.type), required=column.required, doc=column.comment
    )


def make_list_type(element: IcebergType) -> ListType:
    """Return a list of nullable elements."""
    return ListType(NO_ID, element, False)


def make_struct_type(fields: "dict[str, IcebergType]") -> StructType:
    """Return a struct of nullable fields."""
    return StructType(*(NestedField(NO_ID, name, kind, required=False) for name, kind in fields.items()))


def convert_arrow_type(name: str, kind: "pa.DataType", file: str) -> IcebergType:
    """Return the Iceberg type that holds an Arrow type, or raise with the column and the file."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids

    if pa.types.is_duration(kind):  # as Spark reads it; its comment says the unit
        return LongType()
    if pa.types.is_null(kind):
        return StringType()
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return DecimalType(20, 0)
    if pa.types.is_timestamp(kind):  # nanoseconds are cut to microseconds
        return TimestamptzType() if kind.tz else TimestampType()
    if pa.types.is_dictionary(kind):
        return convert_arrow_type(name, kind.value_type, file)
    try:
        schema = _pyarrow_to_schema_without_ids(pa.schema([(name, kind)]), downcast_ns_timestamp_to_us=True)
    except (TypeError, ValueError, NotImplementedError, UnsupportedPyArrowTypeException) as error:
        what = f"the column `{name}` of {file} has the type {kind}, which Iceberg can't hold"
        raise Mistake("LOAD_TYPE", what, at=file, fix="convert it to another type when the file is written") from error
    return strip_field_ids(schema.fields[0].field_type)


def to_copyable_type(kind: IcebergType) -> IcebergType:
    """Return the type in which a column is copied: a type that Arrow can't cast is replaced by one that it can.

    >>> to_copyable_type(UUIDType()), to_copyable_type(FixedType(4))
    (StringType(), BinaryType())
    """
    if isinstance(kind, UUIDType):
        return StringType()
    return BinaryType() if isinstance(kind, FixedType) else kind


def strip_field_ids(kind: IcebergType) -> IcebergType:
    """Return a type without field ids and with nullable nested fields, so that two types can be compared."""
    if isinstance(kind, StructType):
        return make_struct_type({field.name: strip_field_ids(field.field_type) for field in kind.fields})
    if isinstance(kind, ListType):
        return make_list_type(strip_field_ids(kind.element_type))
    if isinstance(kind, MapType):
        return MapType(NO_ID, strip_field_ids(kind.key_type), NO_ID, strip_field_ids(kind.value_type), False)
    return kind


def find_common_type(first: IcebergType, second: IcebergType) -> IcebergType | None:
    """Return the type to which Iceberg may promote both types; None if there is none.

    >>> find_common_type(IntegerType(), LongType()), find_common_type(LongType(), DoubleType())
    (LongType(), None)
    """
    if first == second:
        return first
    for narrow, wide in ((IntegerType, LongType), (FloatType, DoubleType)):
        if {type(first), type(second)} == {narrow, wide}:
            return first if isinstance(first, wide) else second
    if isinstance(first, DecimalType) and isinstance(second, DecimalType) and first.scale == second.scale:
        return first if first.precision >= second.precision else second
    return None


def list_promotions(kind: IcebergType) -> tuple[IcebergType, ...]:
    """Return the types that a column of `kind` may be promoted to, the narrowest first.

    >>> list_promotions(DecimalType(9, 2))
    (DecimalType(precision=18, scale=2), DecimalType(precision=38, scale=2))
    """
    if isinstance(kind, IntegerType):
        return (LongType(),)
    if isinstance(kind, FloatType):
        return (DoubleType(),)
    if isinstance(kind, DecimalType):
        return tuple(DecimalType(digits, kind.scale) for digits in (18, 38) if digits > kind.precision)
    return ()


def is_storable_as(source: IcebergType, target: IcebergType) -> bool:
    """Tell whether every value of `source` can be stored as `target`, nested or not, without checking the values."""
    if isinstance(source, StructType) and isinstance(target, StructType):
        target_types = {field.name: field.field_type for field in target.fields}
        return all(
            field.name in target_types and is_storable_as(field.field_type, target_types[field.name])
            for field in source.fields
        )
    if isinstance(source, StructType) and isinstance(target, MapType) and isinstance(target.key_type, StringType):
        return all(is_storable_as(field.field_type, target.value_type) for field in source.fields)
    if isinstance(source, ListType) and isinstance(target, ListType):
        return is_storable_as(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return is_storable_as(source.key_type, target.key_type) and is_storable_as(source.value_type, target.value_type)
    return source == target or isinstance(source, UnknownType) or find_common_type(source, target) == target


def replace_unknown_types(kind: IcebergType) -> IcebergType:
    """Return a type in which each nested type that is unknown, because all values are null, is a string."""
    if isinstance(kind, StructType):
        return make_struct_type({field.name: replace_unknown_types(field.field_type) for field in kind.fields})
    if isinstance(kind, ListType):
        return make_list_type(replace_unknown_types(kind.element_type))
    return StringType() if isinstance(kind, UnknownType) else kind


def can_cast(source: IcebergType, target: IcebergType) -> bool:
    """Tell whether values of one type may be cast to another, provided that each survives the round trip."""
    if not source.is_primitive or not target.is_primitive:
        return source == target
    if isinstance(source, BinaryType) or isinstance(target, BinaryType):
        return source == target
    is_same_group = any(isinstance(source, group) and isinstance(target, group) for group in (NUMBERS, TIMES))
    return source == target or is_same_group or isinstance(source, StringType) or isinstance(target, StringType)
