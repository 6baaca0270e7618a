"""Convert literal rows to a Spark frame with the declared types, and rows of a frame to Python values."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column, SparkType, format_ddl, parse_json_type
from runnel.errors import Mistake, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_BOOLEANS = {"true": True, "false": False}


def create_frame(
    session: "SparkSession", name: str, rows: Sequence[Row], columns: Sequence[Column] | None
) -> "DataFrame":
    """Return rows as a frame. Declared columns missing from a row are null; text is converted to the declared type."""
    if columns is None:
        return _build_inferred_frame(session, name, rows)
    columns_by_name = {column.name: column for column in columns}
    for column_name in dict.fromkeys(column_name for row in rows for column_name in row):
        if column_name not in columns_by_name:
            what = f"`{name}` has no column `{column_name}`" + did_you_mean(column_name, columns_by_name)
            raise Mistake("TEST_COLUMN", what, fix=f"its columns: {', '.join(columns_by_name)}")
    values = [tuple(_convert_cell(name, column, row.get(column.name)) for column in columns) for row in rows]
    return session.createDataFrame(
        values, ", ".join(f"{_quote_name(column.name)} {format_ddl(column.type)}" for column in columns)
    )


def collect_rows(frame: "DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a frame as Python values; timestamps have the time zone UTC, as in `lake.query`."""
    kinds = [(field.name, parse_json_type(field.dataType.jsonValue())) for field in frame.schema.fields]
    return [
        {name: _to_python_value(kind, value) for (name, kind), value in zip(kinds, row, strict=True)}
        for row in frame.collect()
    ]


def _build_inferred_frame(session: "SparkSession", name: str, rows: Sequence[Row]) -> "DataFrame":
    names = list(dict.fromkeys(column for row in rows for column in row))
    if not names:
        what = f"`{name}` has no rows and no declared columns, so its columns are not known"
        frame = f'{name}=rn.testing.session().createDataFrame([], "id long, day date")'
        fix = f"declare the columns with schema= where `{name}` is made, or pass a frame: {frame}"
        raise Mistake("TEST_COLUMNS_UNKNOWN", what, fix=fix)
    from pyspark.errors import PySparkTypeError, PySparkValueError

    try:
        schema = _infer_schema(names, rows)
        return session.createDataFrame([tuple(row.get(column) for column in names) for row in rows], schema)
    except (PySparkTypeError, PySparkValueError) as error:
        what = f"the rows of `{name}` don't agree on a type: {str(error).splitlines()[0]}"
        raise Mistake("TEST_VALUE", what, fix=f"write values of one type, or declare a schema for `{name}`") from error


def _infer_schema(names: Sequence[str], rows: Sequence[Row]) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType, _infer_type

    def infer_type(column: str) -> Any:
        values = [row[column] for row in rows if row.get(column) is not None]
        return _infer_type(values[0]) if values else StringType()

    return StructType([StructField(column, infer_type(column)) for column in names])


def _convert_cell(table: str, column: Column, value: Any) -> Any:
    try:
        return _convert_value(column.type, value)
    except (ValueError, TypeError, AttributeError, InvalidOperation) as error:
        what = f"{value!r} does not fit {column.type.schema_text}, the type of `{table}.{column.name}`"
        raise Mistake("TEST_VALUE", what, fix="write the value as that type, or as text in its usual form") from error


def _convert_value(kind: SparkType, value: Any) -> Any:
    """Return a value as Spark expects it for a type; raise if that would change the value."""
    if value is None:
        return None
    if kind.kind in _BITS:
        return _convert_integer(kind.kind, value)
    if kind.kind in ("float", "double"):
        return float(value)
    if kind.kind == "decimal":
        return _convert_decimal(kind, value)
    if kind.kind == "boolean":
        return (
            _BOOLEANS[value.lower()]
            if isinstance(value, str) and value.lower() in _BOOLEANS
            else _require_instance(bool, value)
        )
    if kind.kind == "date":
        date_value = date.fromisoformat(value) if isinstance(value, str) else value
        return date_value.date() if isinstance(date_value, datetime) else _require_instance(date, date_value)
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return _convert_timestamp(kind.kind, value)
    if kind.kind == "array":
        return [_convert_value(kind.children[0].type, item) for item in _require_instance((list, tuple), value)]
    if kind.kind == "map":
        key_type, value_type = (child.type for child in kind.children)
        return {_convert_value(key_type, key): _convert_value(value_type, item) for key, item in value.items()}
    if kind.kind == "struct":
        return _convert_struct(kind, value)
    if kind.kind == "binary":
        return value.encode() if isinstance(value, str) else bytes(_require_instance((bytes, bytearray), value))
    return value if isinstance(value, str) else str(value)


def _require_instance(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _convert_integer(kind: str, value: Any) -> int:
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError
    if not -(2 ** (_BITS[kind] - 1)) <= number < 2 ** (_BITS[kind] - 1):
        raise ValueError
    return number


def _convert_decimal(kind: SparkType, value: Any) -> Decimal:
    number = Decimal(str(value))
    if number != round(number, kind.scale) or abs(number) >= Decimal(10) ** (kind.precision - kind.scale):
        raise ValueError
    return number


def _convert_struct(kind: SparkType, value: Any) -> tuple[Any, ...]:
    names = [child.name for child in kind.children]
    for name in value:
        if name not in names:
            raise ValueError
    return tuple(_convert_value(child.type, value.get(child.name)) for child in kind.children)


def _convert_timestamp(kind: str, value: Any) -> Any:
    """Return a timestamp; text without a time zone is UTC, as in the session."""
    timestamp = _require_instance(datetime, datetime.fromisoformat(value) if isinstance(value, str) else value)
    if kind == "timestamp_ntz":
        return timestamp.replace(tzinfo=None)
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp


def _to_python_value(kind: SparkType, value: Any) -> Any:
    if value is None:
        return None
    if kind.kind == "timestamp":
        return value.astimezone(UTC)  # PySpark returns local time without a time zone
    if kind.kind == "array":
        return [_to_python_value(kind.children[0].type, item) for item in value]
    if kind.kind == "map":
        key_type, value_type = (child.type for child in kind.children)
        return {_to_python_value(key_type, key): _to_python_value(value_type, item) for key, item in value.items()}
    if kind.kind == "struct":
        return {
            child.name: _to_python_value(child.type, item) for child, item in zip(kind.children, value, strict=True)
        }
    return bytes(value) if kind.kind == "binary" else value


def _quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
