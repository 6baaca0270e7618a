"""Rules for functions on dates and timestamps. Spark's session and DuckDB's both use UTC."""

from runnel.query.data_types import DATE, INT, STRING, TIMESTAMP
from runnel.query.dialect.casts import cast_like_spark, require_usual_year, to_naive_timestamp, to_zoned_timestamp
from runnel.query.dialect.functions import patterns
from runnel.query.dialect.functions.registry import FunctionCall, require_kind, require_string_literal, rule
from runnel.query.dialect.literals import parse_datetime_literal
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, cast, quote_string

_PART_EXPRESSIONS = {
    "year": "year({})",
    "quarter": "quarter({})",
    "month": "month({})",
    "day": "day({})",
    "dayofmonth": "day({})",
    "dayofyear": "dayofyear({})",
    "dayofweek": "dayofweek({}) + 1",
    "weekday": "isodow({}) - 1",
    "weekofyear": "week({})",
    "hour": "hour({})",
    "minute": "minute({})",
    "second": "second({})",
}
_FIELD_ALIASES = {"week": "weekofyear", "dow": "dayofweek", "doy": "dayofyear", "years": "year", "months": "month"}
_FIELD_ALIASES |= {"days": "day", "hours": "hour", "minutes": "minute", "mon": "month", "d": "day", "y": "year"}
_UNITS = {"year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month"}
_UNITS |= {"mm": "month", "week": "week"}
_TIME_UNITS = {"day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second"}


def require_datetime(value: TypedExpression) -> TypedExpression:
    """Return the value if it is a date or timestamp, or parse it if it is a string literal; raise otherwise."""
    if value.type.kind == "string" and isinstance(value.literal, str):
        parsed = parse_datetime_literal(value.literal, "date")
        if parsed is not None:
            return parsed.with_name(value.name)
    if value.type.kind not in ("date", "timestamp"):
        raise Untranslatable(f"a {value.type} as a date")
    return value


def date_sql(value: TypedExpression) -> str:
    """Return the SQL of a value as a date."""
    value = require_datetime(value)
    return value.sql if value.type.kind == "date" else cast(to_naive_timestamp(value), DATE)


def extract_part(value: TypedExpression, name: str) -> str:
    """Return a part of a date or timestamp, as Spark counts it."""
    value = require_datetime(value)
    is_time_part = name in ("hour", "minute", "second")
    source = to_naive_timestamp(value) if is_time_part or value.type.kind == "timestamp" else value.sql
    return cast(_PART_EXPRESSIONS[name].format(source), INT)


@rule(*_PART_EXPRESSIONS)
def _date_parts(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(extract_part(value, call.name), INT, value)


def translate_extract(field: str, value: TypedExpression) -> TypedExpression:
    """Return EXTRACT(field FROM value)."""
    name = _FIELD_ALIASES.get(field.lower(), field.lower())
    if name not in _PART_EXPRESSIONS or name in ("second", "weekday"):
        raise Untranslatable(f"EXTRACT of {field}")
    spark_name = None if value.name is None else f"extract({field} FROM {value.name})"
    return TypedExpression(extract_part(value, name), INT, spark_name)


@rule("date_part", "datepart")
def _date_part(call: FunctionCall) -> TypedExpression:
    field, value = call.translate_arguments(2)
    return translate_extract(require_string_literal(field, "a field"), value).with_name(
        f"{call.name}({field.name}, {value.name})"
    )


@rule("date_add", "date_sub")
def _date_add(call: FunctionCall) -> TypedExpression:
    value, days = call.translate_arguments(2)
    sign = "+" if call.name == "date_add" else "-"
    sql = f"({date_sql(value)} {sign} {cast(require_kind(days, 'int', 'smallint', 'tinyint'), INT)})"
    return call.result(sql, DATE, value, days)


@rule("datediff", "date_diff")
def _datediff(call: FunctionCall) -> TypedExpression:
    end, start = call.translate_arguments(2)
    return call.result(cast(f"({date_sql(end)} - {date_sql(start)})", INT), INT, end, start)


@rule("add_months")
def _add_months(call: FunctionCall) -> TypedExpression:
    value, months = call.translate_arguments(2)
    number = cast(require_kind(months, "int", "smallint", "tinyint"), INT)
    return call.result(f"CAST({date_sql(value)} + to_months({number}) AS DATE)", DATE, value, months)


@rule("last_day")
def _last_day(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(f"last_day({date_sql(value)})", DATE, value)


@rule("date_trunc")
def _date_trunc(call: FunctionCall) -> TypedExpression:
    unit, value = call.translate_arguments(2)
    duckdb_unit = (_UNITS | _TIME_UNITS).get(require_string_literal(unit, "a unit").lower())
    if duckdb_unit is None:
        raise Untranslatable(f"date_trunc to {unit.literal}")
    return call.result(
        to_zoned_timestamp(f"date_trunc('{duckdb_unit}', {to_naive_timestamp(require_datetime(value))})"),
        TIMESTAMP,
        unit,
        value,
    )


@rule("trunc")
def _trunc(call: FunctionCall) -> TypedExpression:
    value, unit = call.translate_arguments(2)
    duckdb_unit = _UNITS.get(require_string_literal(unit, "a unit").lower())
    if duckdb_unit is None:
        raise Untranslatable(f"trunc to {unit.literal}")
    return call.result(f"CAST(date_trunc('{duckdb_unit}', {date_sql(value)}) AS DATE)", DATE, value, unit)


@rule("make_date")
def _make_date(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(3)
    numbers = ", ".join(cast(require_kind(value, "int", "smallint", "tinyint"), INT) for value in values)
    return call.result(f"make_date({numbers})", DATE, *values)


@rule("to_date")
def _to_date(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 2)
    if len(values) == 2 and require_string_literal(values[1], "a format") != "yyyy-MM-dd":
        raise Untranslatable("to_date with this format")
    if len(values) == 2 and values[0].type.kind == "string" and not isinstance(values[0].literal, str):
        # With a format, Spark requires exactly that many digits, and no surrounding blanks.
        raise Untranslatable("to_date with a format")
    return call.result(cast_like_spark(values[0], DATE), DATE, *values)


@rule("to_timestamp")
def _to_timestamp(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(cast_like_spark(value, TIMESTAMP), TIMESTAMP, value)


@rule("date_format")
def _date_format(call: FunctionCall) -> TypedExpression:
    value, pattern = call.translate_arguments(2)
    value = require_datetime(value)
    strftime_format = patterns.translate_date_format(require_string_literal(pattern, "a format"))
    return call.result(
        require_usual_year(value, f"strftime({to_naive_timestamp(value)}, {quote_string(strftime_format)})"),
        STRING,
        value,
        pattern,
    )


@rule("unix_date")
def _unix_date(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(cast(f"({require_kind(value, 'date')} - DATE '1970-01-01')", INT), INT, value)


@rule("current_date", "curdate")
def _current_date(call: FunctionCall) -> TypedExpression:
    call.translate_arguments(0)
    return call.result("CAST(make_timestamp(epoch_us(now())) AS DATE)", DATE, name="current_date")


@rule("now", "current_timestamp")
def _now(call: FunctionCall) -> TypedExpression:
    call.translate_arguments(0)
    return call.result("now()", TIMESTAMP)
