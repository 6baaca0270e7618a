"""A translated expression: its DuckDB SQL, its Spark type and the name that Spark gives it."""

from dataclasses import dataclass, replace
from decimal import Decimal

from runnel.declare.model.column_types import INTEGRAL_DIGITS, MAX_DIGITS, SparkType, decimal
from runnel.query.data_types import DOUBLE, TIMESTAMP, VOID, format_duckdb_type

EXACT_DIGITS = 15
"""A decimal of at most so many digits converts to the same double in both engines."""


class Untranslatable(Exception):
    """Part of the query has no DuckDB SQL with the same meaning; the message says which part."""


@dataclass(frozen=True, slots=True)
class TypedExpression:
    """A translated expression.

    `name` is what Spark would call the column, None if that is not known. `literal` is the value of a literal.
    """

    sql: str
    type: SparkType
    name: str | None
    literal: int | str | Decimal | bool | None = None

    def with_name(self, name: str | None) -> "TypedExpression":
        """Return it under another name."""
        return replace(self, name=name)

    @property
    def is_null(self) -> bool:
        """Return whether it is the literal NULL."""
        return self.type == VOID


def quote_string(value: str) -> str:
    """Return a DuckDB string literal.

    >>> quote_string("it's")
    "'it''s'"
    """
    if "\0" in value:
        raise Untranslatable("a string with a NUL character")
    return "'" + value.replace("'", "''") + "'"


def cast(sql: str, to: SparkType) -> str:
    """Return a DuckDB cast."""
    return f"CAST({sql} AS {format_duckdb_type(to)})"


def fail_with(message: str) -> str:
    """Return a DuckDB expression that fails if it is evaluated; Spark then answers the query."""
    return f"error({quote_string(message)})"


def find_decimal_type(value: TypedExpression) -> SparkType:
    """Return the decimal type that Spark gives an integer or decimal next to a decimal; literals count exactly."""
    if value.type.kind == "decimal":
        return value.type
    if isinstance(value.literal, int) and not isinstance(value.literal, bool):
        return decimal(len(str(abs(value.literal))), 0)
    if value.type.is_integral:
        return decimal(INTEGRAL_DIGITS[value.type.kind], 0)
    raise Untranslatable(f"a decimal combined with a {value.type}")


def find_common_type(a: SparkType, b: SparkType) -> SparkType:
    """Return the common type in which values of both types are compared or put into one column."""
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if a.is_integral and b.is_integral:
        return max(a, b, key=lambda t: INTEGRAL_DIGITS[t.kind])
    if a.is_numeric and b.is_numeric:
        if a.is_floating or b.is_floating:
            return DOUBLE
        left, right = (t if t.kind == "decimal" else decimal(INTEGRAL_DIGITS[t.kind], 0) for t in (a, b))
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale
        # Too many digits: Spark keeps those before the point.
        return decimal(min(digits, MAX_DIGITS), max(scale - max(digits - MAX_DIGITS, 0), 0))
    if {a.kind, b.kind} == {"date", "timestamp"}:
        return TIMESTAMP
    raise Untranslatable(f"a combination of {a} and {b}")


def cast_implicitly(value: TypedExpression, to: SparkType) -> str:
    """Return the DuckDB SQL of `value` in the wider type `to`, as Spark's implicit cast gives it."""
    source_type = value.type
    if source_type == to:
        return value.sql
    if source_type == VOID:
        return cast("NULL", to)
    if source_type.kind == "decimal" and to.is_floating and source_type.precision > EXACT_DIGITS:
        raise Untranslatable(f"{source_type} as a double")
    if source_type.kind == "date" and to.kind == "timestamp":
        return f"make_timestamptz(epoch_us({value.sql}))"
    if (source_type.is_numeric and to.is_numeric) or source_type.kind == to.kind:
        return cast(value.sql, to)
    raise Untranslatable(f"{source_type} as {to}")


def hide_statistics(sql: str, to: SparkType) -> str:
    """Return the SQL of a value read from a table, with the column statistics of doubles hidden from DuckDB.

    Parquet's minimum and maximum ignore NaN; DuckDB would use them to skip rows and fold comparisons.
    """
    return f"(CASE WHEN isnan({sql}) THEN 'nan' ELSE {sql} END)" if to.is_floating else sql


def format_call_name(function: str, *arguments: TypedExpression | str) -> str | None:
    """Return Spark's name of a function call."""
    names = [argument if isinstance(argument, str) else argument.name for argument in arguments]
    return None if None in names else f"{function}({', '.join(n for n in names if n is not None)})"


def extract_field(value: TypedExpression, name: str, *, bare: bool) -> TypedExpression:
    """Return a field of a struct; `bare` if it is a whole SELECT entry, which Spark names by the field alone."""
    if value.type.kind != "struct":
        raise Untranslatable(f"a field of a {value.type}")
    matches = [field for field in value.type.children if field.name.lower() == name.lower()]
    if len(matches) != 1:
        raise Untranslatable(f"the field `{name}`")
    exact_name, to = matches[0].name, matches[0].type
    spark_name = name if bare else None if value.name is None else f"{value.name}.{exact_name}"
    return TypedExpression(
        hide_statistics(f"struct_extract({value.sql}, {quote_string(exact_name)})", to), to, spark_name
    )
