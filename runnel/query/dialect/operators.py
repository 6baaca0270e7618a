"""Operators on typed values: arithmetic, comparison, logic."""

from collections.abc import Sequence
from decimal import Decimal

from runnel.query.data_types import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, DataType
from runnel.query.dialect.casts import naive, zoned
from runnel.query.dialect.decimals import combined, divided
from runnel.query.dialect.literals import moment
from runnel.query.dialect.typed_expression import Refused, Value, as_decimal, call_name, cast, converted, failing, wider

_INTERVALS = ("months", "days", "micros")


def infix(left: Value, operator: str, right: Value) -> str | None:
    """Return Spark's name of a binary operator's column."""
    return None if left.name is None or right.name is None else f"({left.name} {operator} {right.name})"


def arithmetic(operator: str, left: Value, right: Value) -> Value:
    """Return `left operator right` for + - * % on numbers, and for dates with days and intervals."""
    name = infix(left, operator, right)
    if operator in "+-" and (left.type.kind in ("date", "timestamp") or right.type.kind in ("date", "timestamp")):
        return _shifted(operator, left, right)
    to = _number_type(left, right)
    if to.kind == "decimal":
        sql, to = combined(operator, left, right)
    else:
        a, b = converted(left, to), converted(right, to)
        sql = f"({a} {operator} {b})"
    if operator == "%" and (to.floating or to.kind == "decimal"):
        sql = nonzero(right, sql)
    return Value(sql, to, name)


def _number_type(left: Value, right: Value) -> DataType:
    if not (left.type.numeric and right.type.numeric):
        raise Refused(f"arithmetic on {left.type} and {right.type}")
    if left.type.floating or right.type.floating:
        return left.type if left.type == right.type else DOUBLE
    if left.type.kind == "decimal" or right.type.kind == "decimal":
        return DataType("decimal")
    return wider(left.type, right.type)


def nonzero(divisor: Value, sql: str) -> str:
    """Return `sql`, failing where the divisor is zero, as Spark does for doubles too."""
    if divisor.literal:
        return sql
    return f"(CASE WHEN {divisor.sql} = 0 THEN {failing('division by zero')} ELSE {sql} END)"


def division(left: Value, right: Value) -> Value:
    """Return `left / right`."""
    name = infix(left, "/", right)
    if not (left.type.numeric and right.type.numeric):
        raise Refused(f"division of {left.type} by {right.type}")
    decimals = "decimal" in (left.type.kind, right.type.kind)
    if decimals and not (left.type.floating or right.type.floating):
        sql, to = divided(left, right)
        return Value(sql, to, name)
    sql = f"({converted(left, DOUBLE)} / {converted(right, DOUBLE)})"
    return Value(nonzero(right, sql), DOUBLE, name)


def whole_division(left: Value, right: Value) -> Value:
    """Return `left div right`, a bigint."""
    if not (left.type.integral and right.type.integral):
        raise Refused(f"div of {left.type} by {right.type}")
    sql = f"({converted(left, BIGINT)} // {converted(right, BIGINT)})"
    return Value(sql, BIGINT, infix(left, "div", right))


def bitwise(operator: str, left: Value, right: Value) -> Value:
    """Return `&`, `|` or `^` of two whole numbers."""
    if not (left.type.integral and right.type.integral):
        raise Refused(f"bits of {left.type} and {right.type}")
    to = wider(left.type, right.type)
    a, b = converted(left, to), converted(right, to)
    return Value(f"xor({a}, {b})" if operator == "^" else f"({a} {operator} {b})", to, infix(left, operator, right))


def negated(value: Value) -> Value:
    """Return `-value`."""
    if not value.type.numeric:
        raise Refused(f"minus {value.type}")
    return Value(f"(-{value.sql})", value.type, None if value.name is None else f"(- {value.name})")


def _shifted(operator: str, left: Value, right: Value) -> Value:
    """Return a date or timestamp moved by days or by an interval."""
    if left.type.kind not in ("date", "timestamp"):
        if operator == "-":
            raise Refused(f"{left.type} - {right.type}")
        left, right = right, left
    start, by = left.type.kind, right.type
    if start == "date" and by.integral and by.kind != "bigint":
        name = call_name("date_add" if operator == "+" else "date_sub", left, right)
        return Value(f"({left.sql} {operator} {cast(right.sql, DataType('int'))})", DATE, name)
    if by.kind not in _INTERVALS:
        raise Refused(f"{left.type} {operator} {right.type}")
    if start == "date" and by.kind == "micros":
        raise Refused("a date moved by less than a day")
    if start == "date":
        return Value(f"CAST({left.sql} {operator} {right.sql} AS DATE)", DATE, _moved_name(operator, left, right))
    return Value(zoned(f"({naive(left)} {operator} {right.sql})"), TIMESTAMP, _moved_name(operator, left, right))


def _moved_name(operator: str, left: Value, right: Value) -> str | None:
    if left.name is None or right.name is None or right.type.kind == "micros":
        return None
    if left.type.kind == "date" and right.type.kind == "days":
        days = f"extractansiintervaldays({right.name})"
        return f"date_add({left.name}, {days if operator == '+' else f'(- {days})'})"
    return f"{left.name} {operator} {right.name}"


def comparable(values: Sequence[Value]) -> list[str]:
    """Return the forms of values in one type, as Spark compares them; string literals may stand for moments."""
    moments = {value.type.kind for value in values} & {"date", "timestamp"}
    if moments:
        kind = "timestamp" if "timestamp" in moments else "date"
        values = [_as_moment(value, kind) if value.type.kind == "string" else value for value in values]
    to = _compared_type(values)
    if not to.atomic or to.kind in _INTERVALS:
        raise Refused(f"a comparison of {to}")
    return [converted(value, to) for value in values]


def _compared_type(values: Sequence[Value]) -> DataType:
    to = values[0].type
    if any(value.type.kind == "decimal" for value in values) and not any(value.type.floating for value in values):
        # A whole literal beside a decimal counts with its own digits only.
        types = [value.type if value.is_null else as_decimal(value) for value in values]
        to = types[0]
        for other in types[1:]:
            to = wider(to, other)
        return to
    for value in values[1:]:
        to = wider(to, value.type)
    return to


def _as_moment(value: Value, kind: str) -> Value:
    known = moment(value.literal, kind) if isinstance(value.literal, str) else None
    if known is None:
        raise Refused(f"a string compared with a {kind}")
    return known


def comparison(operator: str, left: Value, right: Value) -> Value:
    """Return a comparison; `<=>` and its negation never give NULL."""
    a, b = comparable([left, right])
    shown = {"<>": "=", "!<=>": "<=>"}.get(operator, operator)
    name = infix(left, shown, right)
    if any(isinstance(x.literal, Decimal) and y.type.integral for x, y in ((left, right), (right, left))):
        name = None  # Spark rewrites such a comparison to one of whole numbers, and names that
    if shown != operator and name is not None:
        name = f"(NOT {name})"
    forms = {"<=>": "IS NOT DISTINCT FROM", "!<=>": "IS DISTINCT FROM"}
    return Value(f"({a} {forms.get(operator, operator)} {b})", BOOLEAN, name)


def condition(value: Value) -> str:
    """Return a boolean's form."""
    if value.type.kind not in ("boolean", "void"):
        raise Refused(f"a {value.type} as a condition")
    return value.sql if value.type.kind == "boolean" else "CAST(NULL AS BOOLEAN)"


def unified(values: Sequence[Value]) -> tuple[list[str], DataType]:
    """Return values in the one type that Spark gives a CASE, COALESCE, IN, array or column of them."""
    to = values[0].type
    for value in values[1:]:
        to = wider(to, value.type)
    return [converted(value, to) for value in values], to
