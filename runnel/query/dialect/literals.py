"""Translate literals, with the types and names that Spark gives them."""

import re
from decimal import Decimal
from math import isfinite

from sqlglot import exp

from runnel.declare.model.column_types import MAX_DIGITS, SparkType, decimal
from runnel.query.data_types import DATE, DOUBLE, INT, STRING, TIMESTAMP, VOID
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, cast, quote_string

_NUMBER = re.compile(r"(-?)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(BD|[LSYDF])?\Z", re.IGNORECASE)
_SUFFIXES = {"L": "bigint", "S": "smallint", "Y": "tinyint", "D": "double", "F": "float"}
_LIMITS = {"tinyint": 1 << 7, "smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)\Z", re.ASCII)
_UNITS = {
    "year": ("months", 12),
    "quarter": ("months", 3),
    "month": ("months", 1),
    "week": ("days", 7),
    "day": ("days", 1),
    "hour": ("micros", 3_600_000_000),
    "minute": ("micros", 60_000_000),
    "second": ("micros", 1_000_000),
}


def translate_literal(node: exp.Literal, *, negative: bool = False) -> TypedExpression:
    """Return a string or number literal; Spark reads a minus before a number as part of it."""
    if node.is_string:
        if negative:
            raise Untranslatable("a minus before a string")
        return TypedExpression(quote_string(node.this), STRING, node.this, node.this)
    return translate_number(("-" if negative else "") + node.this)


def translate_number(written: str) -> TypedExpression:
    """Translate a number literal.

    >>> [str(translate_number(text).type) for text in ("1.50", "1e3", "7L", "3000000000")]
    ['decimal(3,2)', 'double', 'bigint', 'bigint']
    """
    match = _NUMBER.match(written)
    if not match:
        raise Untranslatable(f"the number {written}")
    sign, digits, exponent, suffix = match[1], match[2], match[3], (match[4] or "").upper()
    if suffix in ("D", "F") or (exponent and suffix != "BD"):
        return _double_literal(sign + digits + (exponent or ""), suffix)
    exact = Decimal(sign + digits + (exponent or ""))
    if "." not in digits and suffix != "BD":
        return _integer_literal(int(exact), _SUFFIXES.get(suffix))
    if suffix and suffix != "BD":
        raise Untranslatable(f"the number {written}")
    return _decimal_literal(exact)


def _double_literal(written: str, suffix: str) -> TypedExpression:
    if suffix == "F":
        raise Untranslatable("a float literal")
    value = float(written)
    return TypedExpression(
        cast(quote_string(written), DOUBLE), DOUBLE, format_java_double(value) if isfinite(value) else None
    )


def format_java_double(value: float) -> str:
    """Format a double as Java does: very small and very large ones with an exponent.

    >>> format_java_double(150000.0), format_java_double(1e10), format_java_double(-3.14e-8)
    ('150000.0', '1.0E10', '-3.14E-8')
    """
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    significand = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{significand[0]}.{significand[1:] or '0'}E{len(digits) - 1 + int(exponent)}"


def _integer_literal(value: int, kind: str | None) -> TypedExpression:
    fitting_kinds = [k for k in ((kind,) if kind else ("int", "bigint")) if -_LIMITS[k] <= value < _LIMITS[k]]
    if fitting_kinds:
        to = SparkType(fitting_kinds[0])
        # A negative number stands in brackets: DuckDB binds the minus less tightly than a cast.
        return TypedExpression(cast(str(value), to), to, str(value), value)
    if kind or len(str(abs(value))) > MAX_DIGITS:
        raise Untranslatable(f"the number {value}")
    return _decimal_literal(Decimal(value))


def _decimal_literal(value: Decimal) -> TypedExpression:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent > 0:
        raise Untranslatable(f"the number {value}")
    scale = -exponent
    precision = max(len(digits), scale)
    if precision > MAX_DIGITS:
        raise Untranslatable(f"the number {value}")
    to = decimal(precision, scale)
    # Python writes decimals as Java does, but for the sign of a zero.
    return TypedExpression(cast(quote_string(f"{value:f}"), to), to, str(value if value else abs(value)), value)


def parse_datetime_literal(written: str, kind: str) -> TypedExpression | None:
    """Parse a string literal that is a complete date or timestamp; return None if it has any other form.

    >>> parse_datetime_literal("1994-01-01", "date").name
    "DATE '1994-01-01'"
    """
    if kind == "date" and _DATE.match(written) and _is_calendar_day(written):
        return TypedExpression(f"DATE {quote_string(written)}", DATE, f"DATE '{written}'", written)
    if kind == "timestamp":
        match = _TIMESTAMP.match(written)
        if match is None and _DATE.match(written):
            match = _TIMESTAMP.match(written + " 00:00:00")
        if match and _is_calendar_day(match[1]) and _is_time(match[2]):
            time = match[2].rstrip("0").rstrip(".") if "." in match[2] else match[2]
            timestamp_text = f"{match[1]} {time}"
            return TypedExpression(
                f"TIMESTAMPTZ {quote_string(timestamp_text + '+00')}",
                TIMESTAMP,
                f"TIMESTAMP '{timestamp_text}'",
                timestamp_text,
            )
    return None


def _is_calendar_day(day: str) -> bool:
    from datetime import date

    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _is_time(time: str) -> bool:
    hours, minutes, seconds = time.split(":")
    return int(hours) < 24 and int(minutes) < 60 and float(seconds) < 60


def translate_interval(node: exp.Interval) -> TypedExpression:
    """Translate an interval literal of one unit; its type says what it counts: months, days or micros."""
    unit = node.args.get("unit")
    amount = node.this
    if not isinstance(unit, exp.Var) or not isinstance(amount, (exp.Literal, exp.Neg)):
        raise Untranslatable("an interval of several units")
    sign = -1 if isinstance(amount, exp.Neg) else 1
    written = (amount.this if sign < 0 else amount).name.strip()
    unit_name = unit.name.lower().removesuffix("s")
    if unit_name not in _UNITS or not re.fullmatch(r"[+-]?\d{1,7}", written, re.ASCII):
        raise Untranslatable("this form of interval")
    kind, factor = _UNITS[unit_name]
    count = sign * int(written) * factor
    named_unit = {"year": ("YEAR", 12), "month": ("MONTH", 1), "day": ("DAY", 1), "week": ("DAY", 1)}.get(unit_name)
    spark_name = f"INTERVAL '{count // named_unit[1]}' {named_unit[0]}" if named_unit else None
    return TypedExpression(
        f"INTERVAL {count} {({'months': 'MONTH', 'days': 'DAY', 'micros': 'MICROSECOND'})[kind]}",
        SparkType(kind),
        spark_name,
        count,
    )


ONE = TypedExpression(cast("1", INT), INT, "1", 1)
NULL = TypedExpression("NULL", VOID, "NULL")
