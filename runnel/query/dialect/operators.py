"""Translate operators on typed expressions: arithmetic, comparison, logic."""

from collections.abc import Sequence
from decimal import Decimal

from runnel.declare.model.column_types import SparkType
from runnel.query.data_types import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP
from runnel.query.dialect.casts import to_naive_timestamp, to_zoned_timestamp
from runnel.query.dialect.decimals import combine_decimals, divide_decimals
from runnel.query.dialect.literals import parse_datetime_literal
from runnel.query.dialect.typed_expression import (
    TypedExpression,
    Untranslatable,
    cast,
    cast_implicitly,
    fail_with,
    find_common_type,
    find_decimal_type,
    format_call_name,
)

_INTERVALS = ("months", "days", "micros")


def format_infix_name(left: TypedExpression, operator: str, right: TypedExpression) -> str | None:
    """Return the column name that Spark gives a binary operator."""
    return None if left.name is None or right.name is None else f"({left.name} {operator} {right.name})"


def translate_arithmetic(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return `left operator right` for + - * % on numbers, and for dates with days and intervals."""
    name = format_infix_name(left, operator, right)
    if operator in "+-" and (left.type.kind in ("date", "timestamp") or right.type.kind in ("date", "timestamp")):
        return _shift_datetime(operator, left, right)
    to = _find_number_type(left, right)
    if to.kind == "decimal":
        sql, to = combine_decimals(operator, left, right)
    else:
        a, b = cast_implicitly(left, to), cast_implicitly(right, to)
        sql = f"({a} {operator} {b})"
    if operator == "%" and (to.is_floating or to.kind == "decimal"):
        sql = fail_on_zero(right, sql)
    return TypedExpression(sql, to, name)


def _find_number_type(left: TypedExpression, right: TypedExpression) -> SparkType:
    if not (left.type.is_numeric and right.type.is_numeric):
        raise Untranslatable(f"arithmetic on {left.type} and {right.type}")
    if left.type.is_floating or right.type.is_floating:
        return left.type if left.type == right.type else DOUBLE
    if left.type.kind == "decimal" or right.type.kind == "decimal":
        return SparkType("decimal")
    return find_common_type(left.type, right.type)


def fail_on_zero(divisor: TypedExpression, sql: str) -> str:
    """Return `sql` that fails if the divisor is zero, as Spark does for doubles, too."""
    if divisor.literal:
        return sql
    return f"(CASE WHEN {divisor.sql} = 0 THEN {fail_with('division by zero')} ELSE {sql} END)"


def translate_division(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return `left / right`."""
    name = format_infix_name(left, "/", right)
    if not (left.type.is_numeric and right.type.is_numeric):
        raise Untranslatable(f"division of {left.type} by {right.type}")
    has_decimal = "decimal" in (left.type.kind, right.type.kind)
    if has_decimal and not (left.type.is_floating or right.type.is_floating):
        sql, to = divide_decimals(left, right)
        return TypedExpression(sql, to, name)
    sql = f"({cast_implicitly(left, DOUBLE)} / {cast_implicitly(right, DOUBLE)})"
    return TypedExpression(fail_on_zero(right, sql), DOUBLE, name)


def translate_integer_division(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return `left div right`, a bigint."""
    if not (left.type.is_integral and right.type.is_integral):
        raise Untranslatable(f"div of {left.type} by {right.type}")
    sql = f"({cast_implicitly(left, BIGINT)} // {cast_implicitly(right, BIGINT)})"
    return TypedExpression(sql, BIGINT, format_infix_name(left, "div", right))


def translate_bitwise(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return `&`, `|` or `^` of two whole numbers."""
    if not (left.type.is_integral and right.type.is_integral):
        raise Untranslatable(f"bits of {left.type} and {right.type}")
    to = find_common_type(left.type, right.type)
    a, b = cast_implicitly(left, to), cast_implicitly(right, to)
    return TypedExpression(
        f"xor({a}, {b})" if operator == "^" else f"({a} {operator} {b})", to, format_infix_name(left, operator, right)
    )


def negate(value: TypedExpression) -> TypedExpression:
    """Return `-value`."""
    if not value.type.is_numeric:
        raise Untranslatable(f"minus {value.type}")
    return TypedExpression(f"(-{value.sql})", value.type, None if value.name is None else f"(- {value.name})")


def _shift_datetime(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return a date or timestamp moved by days or by an interval."""
    if left.type.kind not in ("date", "timestamp"):
        if operator == "-":
            raise Untranslatable(f"{left.type} - {right.type}")
        left, right = right, left
    start_kind, shift_type = left.type.kind, right.type
    if start_kind == "date" and shift_type.is_integral and shift_type.kind != "bigint":
        name = format_call_name("date_add" if operator == "+" else "date_sub", left, right)
        return TypedExpression(f"({left.sql} {operator} {cast(right.sql, SparkType('int'))})", DATE, name)
    if shift_type.kind not in _INTERVALS:
        raise Untranslatable(f"{left.type} {operator} {right.type}")
    if start_kind == "date" and shift_type.kind == "micros":
        raise Untranslatable("a date moved by less than a day")
    if start_kind == "date":
        return TypedExpression(
            f"CAST({left.sql} {operator} {right.sql} AS DATE)", DATE, _format_shift_name(operator, left, right)
        )
    return TypedExpression(
        to_zoned_timestamp(f"({to_naive_timestamp(left)} {operator} {right.sql})"),
        TIMESTAMP,
        _format_shift_name(operator, left, right),
    )


def _format_shift_name(operator: str, left: TypedExpression, right: TypedExpression) -> str | None:
    if left.name is None or right.name is None or right.type.kind == "micros":
        return None
    if left.type.kind == "date" and right.type.kind == "days":
        days = f"extractansiintervaldays({right.name})"
        return f"date_add({left.name}, {days if operator == '+' else f'(- {days})'})"
    return f"{left.name} {operator} {right.name}"


def convert_for_comparison(values: Sequence[TypedExpression]) -> list[str]:
    """Return values as SQL in the common type in which Spark compares them; string literals may be dates or times."""
    datetime_kinds = {value.type.kind for value in values} & {"date", "timestamp"}
    if datetime_kinds:
        kind = "timestamp" if "timestamp" in datetime_kinds else "date"
        values = [_require_datetime_literal(value, kind) if value.type.kind == "string" else value for value in values]
    to = _find_comparison_type(values)
    if not to.is_atomic or to.kind in _INTERVALS:
        raise Untranslatable(f"a comparison of {to}")
    return [cast_implicitly(value, to) for value in values]


def _find_comparison_type(values: Sequence[TypedExpression]) -> SparkType:
    to = values[0].type
    if any(value.type.kind == "decimal" for value in values) and not any(value.type.is_floating for value in values):
        # Next to a decimal, an integer literal has only as many digits as are written.
        types = [value.type if value.is_null else find_decimal_type(value) for value in values]
        to = types[0]
        for other in types[1:]:
            to = find_common_type(to, other)
        return to
    for value in values[1:]:
        to = find_common_type(to, value.type)
    return to


def _require_datetime_literal(value: TypedExpression, kind: str) -> TypedExpression:
    parsed = parse_datetime_literal(value.literal, kind) if isinstance(value.literal, str) else None
    if parsed is None:
        raise Untranslatable(f"a string compared with a {kind}")
    return parsed


def translate_comparison(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return a comparison; `<=>` and its negation never give NULL."""
    a, b = convert_for_comparison([left, right])
    base_operator = {"<>": "=", "!<=>": "<=>"}.get(operator, operator)
    name = format_infix_name(left, base_operator, right)
    if any(isinstance(x.literal, Decimal) and y.type.is_integral for x, y in ((left, right), (right, left))):
        name = None  # Spark rewrites such a comparison to one of integers, and names that
    if base_operator != operator and name is not None:
        name = f"(NOT {name})"
    duckdb_operators = {"<=>": "IS NOT DISTINCT FROM", "!<=>": "IS DISTINCT FROM"}
    return TypedExpression(f"({a} {duckdb_operators.get(operator, operator)} {b})", BOOLEAN, name)


def require_condition(value: TypedExpression) -> str:
    """Return the SQL of a boolean; raise if the value has another type."""
    if value.type.kind not in ("boolean", "void"):
        raise Untranslatable(f"a {value.type} as a condition")
    return value.sql if value.type.kind == "boolean" else "CAST(NULL AS BOOLEAN)"


def unify_types(values: Sequence[TypedExpression]) -> tuple[list[str], SparkType]:
    """Return values as SQL in the common type that Spark gives a CASE, COALESCE, IN, array or column of them."""
    to = values[0].type
    for value in values[1:]:
        to = find_common_type(to, value.type)
    return [cast_implicitly(value, to) for value in values], to
