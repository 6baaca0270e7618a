"""Literal rows as a Spark frame, with the types that are declared for them, and rows of a frame as Python values."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column, SparkType
from runnel.errors import Mistake, nearest
from runnel.run.write.frame_schema import kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUTH = {"true": True, "false": False}


def frame_of(session: "SparkSession", name: str, rows: Sequence[Row], columns: Sequence[Column] | None) -> "DataFrame":
    """Return rows as a frame. Declared columns that a row leaves out are null; text becomes what is declared."""
    if columns is None:
        return _inferred(session, name, rows)
    known = {column.name: column for column in columns}
    for given in dict.fromkeys(given for row in rows for given in row):
        if given not in known:
            close = nearest(given, known)
            what = f"`{name}` has no column `{given}`" + (f"; close: `{close}`" if close else "")
            raise Mistake("TEST_COLUMN", what, fix=f"its columns: {', '.join(known)}")
    values = [tuple(_value(name, column, row.get(column.name)) for column in columns) for row in rows]
    return session.createDataFrame(
        values, ", ".join(f"{_quoted(column.name)} {_ddl(column.type)}" for column in columns)
    )


def rows_of(frame: "DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a frame as Python values; a timestamp has its zone, UTC, as `lake.query` gives it."""
    kinds = [(field.name, kind_of(field.dataType.jsonValue())) for field in frame.schema.fields]
    return [
        {name: _python(kind, value) for (name, kind), value in zip(kinds, row, strict=True)} for row in frame.collect()
    ]


def _inferred(session: "SparkSession", name: str, rows: Sequence[Row]) -> "DataFrame":
    names = list(dict.fromkeys(column for row in rows for column in row))
    if not names:
        what = f"`{name}` has no rows and no declared columns, so its columns are not known"
        raise Mistake("TEST_COLUMNS_UNKNOWN", what, fix=f"pass a frame, or declare a schema for the table `{name}`")
    from pyspark.errors import PySparkTypeError, PySparkValueError

    try:
        schema = _schema(names, rows)
        return session.createDataFrame([tuple(row.get(column) for column in names) for row in rows], schema)
    except (PySparkTypeError, PySparkValueError) as error:
        what = f"the rows of `{name}` don't agree on a type: {str(error).splitlines()[0]}"
        raise Mistake("TEST_VALUE", what, fix=f"write values of one type, or declare a schema for `{name}`") from error


def _schema(names: Sequence[str], rows: Sequence[Row]) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType, _infer_type

    def kind(column: str) -> Any:
        found = [row[column] for row in rows if row.get(column) is not None]
        return _infer_type(found[0]) if found else StringType()

    return StructType([StructField(column, kind(column)) for column in names])


def _value(table: str, column: Column, value: Any) -> Any:
    try:
        return _converted(column.type, value)
    except (ValueError, TypeError, AttributeError, InvalidOperation) as error:
        what = f"{value!r} is no {column.type}, the type of `{table}.{column.name}`"
        raise Mistake("TEST_VALUE", what, fix="write the value as that type, or as text in its usual form") from error


def _converted(kind: SparkType, value: Any) -> Any:
    """Return a value as Spark takes it for a type, or raise where it would have to be changed."""
    if value is None:
        return None
    if kind.kind in _BITS:
        return _whole(kind.kind, value)
    if kind.kind in ("float", "double"):
        return float(value)
    if kind.kind == "decimal":
        return _decimal(kind, value)
    if kind.kind == "boolean":
        return _TRUTH[value.lower()] if isinstance(value, str) and value.lower() in _TRUTH else _of(bool, value)
    if kind.kind == "date":
        found = date.fromisoformat(value) if isinstance(value, str) else value
        return found.date() if isinstance(found, datetime) else _of(date, found)
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return _time(kind.kind, value)
    if kind.kind == "array":
        return [_converted(kind.children[0].type, each) for each in _of((list, tuple), value)]
    if kind.kind == "map":
        of_key, of_value = (child.type for child in kind.children)
        return {_converted(of_key, key): _converted(of_value, each) for key, each in value.items()}
    if kind.kind == "struct":
        return _struct(kind, value)
    if kind.kind == "binary":
        return value.encode() if isinstance(value, str) else bytes(_of((bytes, bytearray), value))
    return value if isinstance(value, str) else str(value)


def _of(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _whole(kind: str, value: Any) -> int:
    found = int(value)
    if not isinstance(value, str) and found != value:
        raise ValueError
    if not -(2 ** (_BITS[kind] - 1)) <= found < 2 ** (_BITS[kind] - 1):
        raise ValueError
    return found


def _decimal(kind: SparkType, value: Any) -> Decimal:
    found = Decimal(str(value))
    if found != round(found, kind.scale) or abs(found) >= Decimal(10) ** (kind.precision - kind.scale):
        raise ValueError
    return found


def _struct(kind: SparkType, value: Any) -> tuple[Any, ...]:
    names = [child.name for child in kind.children]
    for name in value:
        if name not in names:
            raise ValueError
    return tuple(_converted(child.type, value.get(child.name)) for child in kind.children)


def _time(kind: str, value: Any) -> Any:
    """Return a time; text without a zone is UTC, as in the session."""
    found = _of(datetime, datetime.fromisoformat(value) if isinstance(value, str) else value)
    if kind == "timestamp_ntz":
        return found.replace(tzinfo=None)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _python(kind: SparkType, value: Any) -> Any:
    if value is None:
        return None
    if kind.kind == "timestamp":
        return value.astimezone(UTC)  # PySpark gives the machine's own time, without a zone
    if kind.kind == "array":
        return [_python(kind.children[0].type, each) for each in value]
    if kind.kind == "map":
        of_key, of_value = (child.type for child in kind.children)
        return {_python(of_key, key): _python(of_value, each) for key, each in value.items()}
    if kind.kind == "struct":
        return {child.name: _python(child.type, each) for child, each in zip(kind.children, value, strict=True)}
    return bytes(value) if kind.kind == "binary" else value


def _ddl(kind: SparkType) -> str:
    """Return a type as Spark reads it, whatever names its fields have."""
    if kind.kind == "struct":
        return "struct<" + ", ".join(f"{_quoted(child.name)}: {_ddl(child.type)}" for child in kind.children) + ">"
    return f"{kind.kind}<{', '.join(_ddl(child.type) for child in kind.children)}>" if kind.children else str(kind)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
