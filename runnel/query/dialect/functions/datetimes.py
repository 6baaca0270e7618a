"""Functions on dates and timestamps. Spark's session and DuckDB's are both in UTC."""

from runnel.query.data_types import DATE, INT, STRING, TIMESTAMP
from runnel.query.dialect.casts import cast_to, naive, usual_years, zoned
from runnel.query.dialect.functions import patterns
from runnel.query.dialect.functions.registry import Call, literal_text, rule, want
from runnel.query.dialect.literals import moment
from runnel.query.dialect.typed_expression import Refused, Value, cast, text

_PARTS = {
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
_FIELDS = {"week": "weekofyear", "dow": "dayofweek", "doy": "dayofyear", "years": "year", "months": "month"}
_FIELDS |= {"days": "day", "hours": "hour", "minutes": "minute", "mon": "month", "d": "day", "y": "year"}
_UNITS = {"year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month"}
_UNITS |= {"mm": "month", "week": "week"}
_TIME_UNITS = {"day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second"}


def moment_of(value: Value) -> Value:
    """Return a date or timestamp; a string literal may stand for one."""
    if value.type.kind == "string" and isinstance(value.literal, str):
        known = moment(value.literal, "date")
        if known is not None:
            return known.named(value.name)
    if value.type.kind not in ("date", "timestamp"):
        raise Refused(f"a {value.type} as a date")
    return value


def as_date(value: Value) -> str:
    """Return the form of a value as a date."""
    value = moment_of(value)
    return value.sql if value.type.kind == "date" else cast(naive(value), DATE)


def part(value: Value, name: str) -> str:
    """Return a part of a date or timestamp, as Spark counts it."""
    value = moment_of(value)
    time = name in ("hour", "minute", "second")
    source = naive(value) if time or value.type.kind == "timestamp" else value.sql
    return cast(_PARTS[name].format(source), INT)


@rule(*_PARTS)
def _parts(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(part(value, call.name), INT, value)


def extract(field: str, value: Value) -> Value:
    """Return EXTRACT(field FROM value)."""
    name = _FIELDS.get(field.lower(), field.lower())
    if name not in _PARTS or name in ("second", "weekday"):
        raise Refused(f"EXTRACT of {field}")
    own = None if value.name is None else f"extract({field} FROM {value.name})"
    return Value(part(value, name), INT, own)


@rule("date_part", "datepart")
def _date_part(call: Call) -> Value:
    field, value = call.values(2)
    return extract(literal_text(field, "a field"), value).named(f"{call.name}({field.name}, {value.name})")


@rule("date_add", "date_sub")
def _date_add(call: Call) -> Value:
    value, days = call.values(2)
    sign = "+" if call.name == "date_add" else "-"
    sql = f"({as_date(value)} {sign} {cast(want(days, 'int', 'smallint', 'tinyint'), INT)})"
    return call.result(sql, DATE, value, days)


@rule("datediff", "date_diff")
def _datediff(call: Call) -> Value:
    end, start = call.values(2)
    return call.result(cast(f"({as_date(end)} - {as_date(start)})", INT), INT, end, start)


@rule("add_months")
def _add_months(call: Call) -> Value:
    value, months = call.values(2)
    number = cast(want(months, "int", "smallint", "tinyint"), INT)
    return call.result(f"CAST({as_date(value)} + to_months({number}) AS DATE)", DATE, value, months)


@rule("last_day")
def _last_day(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(f"last_day({as_date(value)})", DATE, value)


@rule("date_trunc")
def _date_trunc(call: Call) -> Value:
    unit, value = call.values(2)
    known = (_UNITS | _TIME_UNITS).get(literal_text(unit, "a unit").lower())
    if known is None:
        raise Refused(f"date_trunc to {unit.literal}")
    return call.result(zoned(f"date_trunc('{known}', {naive(moment_of(value))})"), TIMESTAMP, unit, value)


@rule("trunc")
def _trunc(call: Call) -> Value:
    value, unit = call.values(2)
    known = _UNITS.get(literal_text(unit, "a unit").lower())
    if known is None:
        raise Refused(f"trunc to {unit.literal}")
    return call.result(f"CAST(date_trunc('{known}', {as_date(value)}) AS DATE)", DATE, value, unit)


@rule("make_date")
def _make_date(call: Call) -> Value:
    values = call.values(3)
    numbers = ", ".join(cast(want(value, "int", "smallint", "tinyint"), INT) for value in values)
    return call.result(f"make_date({numbers})", DATE, *values)


@rule("to_date")
def _to_date(call: Call) -> Value:
    values = call.values(1, 2)
    if len(values) == 2 and literal_text(values[1], "a format") != "yyyy-MM-dd":
        raise Refused("to_date with this format")
    if len(values) == 2 and values[0].type.kind == "string" and not isinstance(values[0].literal, str):
        # With a format, Spark wants exactly that many digits and no blanks around.
        raise Refused("to_date with a format")
    return call.result(cast_to(values[0], DATE), DATE, *values)


@rule("to_timestamp")
def _to_timestamp(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(cast_to(value, TIMESTAMP), TIMESTAMP, value)


@rule("date_format")
def _date_format(call: Call) -> Value:
    value, pattern = call.values(2)
    value = moment_of(value)
    form = patterns.strftime(literal_text(pattern, "a format"))
    return call.result(usual_years(value, f"strftime({naive(value)}, {text(form)})"), STRING, value, pattern)


@rule("unix_date")
def _unix_date(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(cast(f"({want(value, 'date')} - DATE '1970-01-01')", INT), INT, value)


@rule("current_date", "curdate")
def _current_date(call: Call) -> Value:
    call.values(0)
    return call.result("CAST(make_timestamp(epoch_us(now())) AS DATE)", DATE, name="current_date")


@rule("now", "current_timestamp")
def _now(call: Call) -> Value:
    call.values(0)
    return call.result("now()", TIMESTAMP)
