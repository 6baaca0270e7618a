"""Decimal arithmetic with Spark's precision and scale, and division that rounds exactly."""

from decimal import Decimal

from runnel.declare.model.column_types import MAX_DIGITS, SparkType, decimal
from runnel.query.dialect.typed_expression import (
    TypedExpression,
    Untranslatable,
    cast,
    fail_with,
    find_decimal_type,
    quote_string,
)

_MIN_SCALE = 6
_SPARK_QUOTIENT_SCALE = 39


def limit_precision(precision: int, scale: int) -> SparkType:
    """Return Spark's type for a decimal with too many digits: digits before the point win over those after.

    >>> str(limit_precision(49, 6)), str(limit_precision(81, 43))
    ('decimal(38,6)', 'decimal(38,6)')
    """
    if precision <= MAX_DIGITS:
        return decimal(precision, scale)
    integer_digits = precision - scale
    return decimal(MAX_DIGITS, max(MAX_DIGITS - integer_digits, min(scale, _MIN_SCALE)))


def combine_decimals(operator: str, left: TypedExpression, right: TypedExpression) -> tuple[str, SparkType]:
    """Return `left operator right` for +, -, * and % if at least one is a decimal and neither is a double."""
    a, b = find_decimal_type(left), find_decimal_type(right)
    if operator == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        scale = max(a.scale, b.scale)
        integer_digits = (min if operator == "%" else max)(a.precision - a.scale, b.precision - b.scale)
        precision = integer_digits + scale + (operator != "%")
    result = limit_precision(precision, scale)
    if result.scale != scale:
        raise Untranslatable(f"{a} {operator} {b} loses digits")
    left_sql, right_sql = _cast_if_needed(left, a), _cast_if_needed(right, b)
    if operator == "%":
        common = decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        if common.precision > MAX_DIGITS:
            raise Untranslatable(f"{a} % {b}")
        left_sql, right_sql = cast(left_sql, common), cast(right_sql, common)
    return f"({left_sql} {operator} {right_sql})", result


def _cast_if_needed(value: TypedExpression, to: SparkType) -> str:
    return value.sql if value.type == to else cast(value.sql, to)


def find_quotient_type(a: SparkType, b: SparkType) -> SparkType:
    """Return the type of a quotient of decimals."""
    scale = max(_MIN_SCALE, a.scale + b.precision + 1)
    return limit_precision(a.precision - a.scale + b.scale + scale, scale)


def divide_decimals(left: TypedExpression, right: TypedExpression) -> tuple[str, SparkType]:
    """Return the quotient of two decimals (or integers), rounded half up in integer arithmetic, never in doubles."""
    a, b = find_decimal_type(left), find_decimal_type(right)
    result = find_quotient_type(a, b)
    return divide_exactly(_cast_if_needed(left, a), a, _cast_if_needed(right, b), b, result), result


def divide_exactly(left: str, a: SparkType, right: str, b: SparkType, result: SparkType) -> str:
    """Return `left / right` as DuckDB SQL of type `result`; a zero divisor fails.

    The unscaled numbers are divided as HUGEINT. Spark first rounds to 39 places, so the divisor must be small enough
    for that to make no difference. On overflow the query fails in DuckDB, and Spark answers it.
    """
    shift = result.scale - a.scale + b.scale
    if shift < 0:
        raise Untranslatable(f"{a} / {b} loses digits")
    numerator = f"({_unscaled_sql(left, a)} * {_power_of_ten(shift)})"
    denominator = _unscaled_sql(right, b)
    # Integer division truncates and fails on a zero divisor; adding half a divisor makes it round half up.
    rounded = f"(2 * {numerator} + sign({numerator}) * abs({denominator})) // (2 * {denominator})"
    if b.precision + result.scale > _SPARK_QUOTIENT_SCALE:
        limit = _power_of_ten(_SPARK_QUOTIENT_SCALE - result.scale)
        too_large = fail_with("a divisor of too many digits")
        rounded = f"CASE WHEN abs({denominator}) >= {limit} THEN {too_large} ELSE {rounded} END"
    unit = cast(quote_string(f"{Decimal(1).scaleb(-result.scale):f}"), decimal(result.scale + 1, result.scale))
    return cast(f"CAST(({rounded}) AS DECIMAL(38,0)) * {unit}", result)


def _unscaled_sql(sql: str, of: SparkType) -> str:
    if not of.scale:
        return f"CAST({sql} AS HUGEINT)"
    return f"CAST({cast(sql, decimal(MAX_DIGITS, of.scale))} * {_power_of_ten(of.scale, 'DECIMAL(38,0)')} AS HUGEINT)"


def _power_of_ten(exponent: int, to: str = "HUGEINT") -> str:
    return f"CAST('1{'0' * exponent}' AS {to})"
