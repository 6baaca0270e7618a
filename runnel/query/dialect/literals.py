"""Literals, as Spark types and names them."""

import re
from decimal import Decimal
from math import isfinite

from sqlglot import exp

from runnel.query.data_types import DATE, DOUBLE, INT, STRING, TIMESTAMP, VOID, DataType, decimal
from runnel.query.dialect.typed_expression import MOST_DIGITS, Refused, Value, cast, text

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


def literal(node: exp.Literal, *, negative: bool = False) -> Value:
    """Return a string or number literal; Spark reads a minus before a number as part of it."""
    if node.is_string:
        if negative:
            raise Refused("a minus before a string")
        return Value(text(node.this), STRING, node.this, node.this)
    return number(("-" if negative else "") + node.this)


def number(written: str) -> Value:
    """Return a number literal.

    >>> str(number("1.50").type), str(number("1e3").type), str(number("7L").type), str(number("3000000000").type)
    ('decimal(3,2)', 'double', 'bigint', 'bigint')
    """
    match = _NUMBER.match(written)
    if not match:
        raise Refused(f"the number {written}")
    sign, digits, exponent, suffix = match[1], match[2], match[3], (match[4] or "").upper()
    if suffix in ("D", "F") or (exponent and suffix != "BD"):
        return _floating(sign + digits + (exponent or ""), suffix)
    exact = Decimal(sign + digits + (exponent or ""))
    if "." not in digits and suffix != "BD":
        return _whole(int(exact), _SUFFIXES.get(suffix))
    if suffix and suffix != "BD":
        raise Refused(f"the number {written}")
    return _decimal(exact)


def _floating(written: str, suffix: str) -> Value:
    if suffix == "F":
        raise Refused("a float literal")
    value = float(written)
    return Value(cast(text(written), DOUBLE), DOUBLE, java_double(value) if isfinite(value) else None)


def java_double(value: float) -> str:
    """Return a double as Java writes it: very small and very large ones with an exponent.

    >>> java_double(150000.0), java_double(1e10), java_double(-3.14e-8)
    ('150000.0', '1.0E10', '-3.14E-8')
    """
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{shown[0]}.{shown[1:] or '0'}E{len(digits) - 1 + int(exponent)}"


def _whole(value: int, kind: str | None) -> Value:
    fits = [k for k in ((kind,) if kind else ("int", "bigint")) if -_LIMITS[k] <= value < _LIMITS[k]]
    if fits:
        to = DataType(fits[0])
        # A negative number stands in brackets: DuckDB binds the minus less tightly than a cast.
        return Value(cast(str(value), to), to, str(value), value)
    if kind or len(str(abs(value))) > MOST_DIGITS:
        raise Refused(f"the number {value}")
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> Value:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent > 0:
        raise Refused(f"the number {value}")
    scale = -exponent
    precision = max(len(digits), scale)
    if precision > MOST_DIGITS:
        raise Refused(f"the number {value}")
    to = decimal(precision, scale)
    # Python writes decimals as Java does, but for the sign of a zero.
    return Value(cast(text(f"{value:f}"), to), to, str(value if value else abs(value)), value)


def moment(written: str, kind: str) -> Value | None:
    """Return the date or timestamp that a string literal means in full, or None where its form leaves room.

    >>> moment("1994-01-01", "date").name
    "DATE '1994-01-01'"
    """
    if kind == "date" and _DATE.match(written) and _exists(written):
        return Value(f"DATE {text(written)}", DATE, f"DATE '{written}'", written)
    if kind == "timestamp":
        match = _TIMESTAMP.match(written)
        if match is None and _DATE.match(written):
            match = _TIMESTAMP.match(written + " 00:00:00")
        if match and _exists(match[1]) and _is_time(match[2]):
            time = match[2].rstrip("0").rstrip(".") if "." in match[2] else match[2]
            whole = f"{match[1]} {time}"
            return Value(f"TIMESTAMPTZ {text(whole + '+00')}", TIMESTAMP, f"TIMESTAMP '{whole}'", whole)
    return None


def _exists(day: str) -> bool:
    from datetime import date

    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _is_time(time: str) -> bool:
    hours, minutes, seconds = time.split(":")
    return int(hours) < 24 and int(minutes) < 60 and float(seconds) < 60


def interval(node: exp.Interval) -> Value:
    """Return an interval literal of one unit; its type says of what it is a whole number: months, days or micros."""
    unit = node.args.get("unit")
    amount = node.this
    if not isinstance(unit, exp.Var) or not isinstance(amount, (exp.Literal, exp.Neg)):
        raise Refused("an interval of several units")
    sign = -1 if isinstance(amount, exp.Neg) else 1
    written = (amount.this if sign < 0 else amount).name.strip()
    unit_name = unit.name.lower().removesuffix("s")
    if unit_name not in _UNITS or not re.fullmatch(r"[+-]?\d{1,7}", written, re.ASCII):
        raise Refused("this form of interval")
    kind, factor = _UNITS[unit_name]
    count = sign * int(written) * factor
    shown = {"year": ("YEAR", 12), "month": ("MONTH", 1), "day": ("DAY", 1), "week": ("DAY", 1)}.get(unit_name)
    own = f"INTERVAL '{count // shown[1]}' {shown[0]}" if shown else None
    return Value(
        f"INTERVAL {count} {({'months': 'MONTH', 'days': 'DAY', 'micros': 'MICROSECOND'})[kind]}",
        DataType(kind),
        own,
        count,
    )


ONE = Value(cast("1", INT), INT, "1", 1)
NULL = Value("NULL", VOID, "NULL")
