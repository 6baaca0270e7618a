"""Decimal arithmetic with Spark's digits, and division that rounds exactly."""

from decimal import Decimal

from runnel.query.data_types import DataType, decimal
from runnel.query.dialect.typed_expression import MOST_DIGITS, Refused, Value, as_decimal, cast, failing, text

_MIN_SCALE = 6
_SPARK_QUOTIENT_SCALE = 39


def adjusted(precision: int, scale: int) -> DataType:
    """Return the type that Spark keeps of one with too many digits: digits before the point win over those after.

    >>> str(adjusted(49, 6)), str(adjusted(81, 43))
    ('decimal(38,6)', 'decimal(38,6)')
    """
    if precision <= MOST_DIGITS:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, _MIN_SCALE)))


def combined(operator: str, left: Value, right: Value) -> tuple[str, DataType]:
    """Return `left operator right` for +, -, * and % where at least one is a decimal and the other no double."""
    a, b = as_decimal(left), as_decimal(right)
    if operator == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        scale = max(a.scale, b.scale)
        whole = (min if operator == "%" else max)(a.precision - a.scale, b.precision - b.scale)
        precision = whole + scale + (operator != "%")
    result = adjusted(precision, scale)
    if result.scale != scale:
        raise Refused(f"{a} {operator} {b} loses digits")
    left_sql, right_sql = _as(left, a), _as(right, b)
    if operator == "%":
        common = decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        if common.precision > MOST_DIGITS:
            raise Refused(f"{a} % {b}")
        left_sql, right_sql = cast(left_sql, common), cast(right_sql, common)
    return f"({left_sql} {operator} {right_sql})", result


def _as(value: Value, to: DataType) -> str:
    return value.sql if value.type == to else cast(value.sql, to)


def quotient_type(a: DataType, b: DataType) -> DataType:
    """Return the type of a quotient of decimals."""
    scale = max(_MIN_SCALE, a.scale + b.precision + 1)
    return adjusted(a.precision - a.scale + b.scale + scale, scale)


def divided(left: Value, right: Value) -> tuple[str, DataType]:
    """Return the quotient of two decimals (or whole numbers), rounded half up on whole numbers, never on doubles."""
    a, b = as_decimal(left), as_decimal(right)
    result = quotient_type(a, b)
    return quotient(_as(left, a), a, _as(right, b), b, result), result


def quotient(left: str, a: DataType, right: str, b: DataType, result: DataType) -> str:
    """Return `left / right` as DuckDB SQL of type `result`; a zero divisor fails.

    The unscaled numbers are divided as HUGEINT. Spark first rounds to 39 places, so the divisor must stay small
    enough for that to make no difference. What overflows fails, and goes to Spark.
    """
    shift = result.scale - a.scale + b.scale
    if shift < 0:
        raise Refused(f"{a} / {b} loses digits")
    n = f"({_unscaled(left, a)} * {_power(shift)})"
    d = _unscaled(right, b)
    # Whole division cuts towards zero and fails on a zero divisor; half a divisor more makes it round half up.
    rounded = f"(2 * {n} + sign({n}) * abs({d})) // (2 * {d})"
    if b.precision + result.scale > _SPARK_QUOTIENT_SCALE:
        limit = _power(_SPARK_QUOTIENT_SCALE - result.scale)
        large = failing("a divisor of too many digits")
        rounded = f"CASE WHEN abs({d}) >= {limit} THEN {large} ELSE {rounded} END"
    unit = cast(text(f"{Decimal(1).scaleb(-result.scale):f}"), decimal(result.scale + 1, result.scale))
    return cast(f"CAST(({rounded}) AS DECIMAL(38,0)) * {unit}", result)


def _unscaled(sql: str, of: DataType) -> str:
    if not of.scale:
        return f"CAST({sql} AS HUGEINT)"
    return f"CAST({cast(sql, decimal(MOST_DIGITS, of.scale))} * {_power(of.scale, 'DECIMAL(38,0)')} AS HUGEINT)"


def _power(exponent: int, to: str = "HUGEINT") -> str:
    return f"CAST('1{'0' * exponent}' AS {to})"
