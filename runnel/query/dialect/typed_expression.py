"""A translated expression: its DuckDB form, its Spark type and the name that Spark gives it."""

from dataclasses import dataclass, replace
from decimal import Decimal

from runnel.query.data_types import DOUBLE, INTEGRAL, TIMESTAMP, VOID, DataType, decimal

MOST_DIGITS = 38
EXACT_DIGITS = 15
"""A decimal of so few digits becomes a double without doubt about the last bit."""


class Refused(Exception):
    """Something in the query has no faithful form in DuckDB; the message says what."""


@dataclass(frozen=True, slots=True)
class Value:
    """A translated expression.

    `name` is what Spark would call the column, None if that is not known. `literal` is the value of a literal.
    """

    sql: str
    type: DataType
    name: str | None
    literal: int | str | Decimal | bool | None = None

    def named(self, name: str | None) -> "Value":
        """Return it under another name."""
        return replace(self, name=name)

    @property
    def is_null(self) -> bool:
        """Tell whether it is the literal NULL."""
        return self.type == VOID


def text(value: str) -> str:
    """Return a DuckDB string literal.

    >>> text("it's")
    "'it''s'"
    """
    if "\0" in value:
        raise Refused("a string with a NUL character")
    return "'" + value.replace("'", "''") + "'"


def cast(sql: str, to: DataType) -> str:
    """Return a DuckDB cast."""
    return f"CAST({sql} AS {to.duckdb})"


def failing(message: str) -> str:
    """Return a DuckDB expression that fails when it is reached; the query then goes to Spark, which decides."""
    return f"error({text(message)})"


def as_decimal(value: Value) -> DataType:
    """Return the decimal type that Spark gives a whole number or decimal beside a decimal; literals count exactly."""
    if value.type.kind == "decimal":
        return value.type
    if isinstance(value.literal, int) and not isinstance(value.literal, bool):
        return decimal(len(str(abs(value.literal))), 0)
    if value.type.integral:
        return decimal(INTEGRAL[value.type.kind], 0)
    raise Refused(f"a decimal beside a {value.type}")


def wider(a: DataType, b: DataType) -> DataType:
    """Return the type in which values of both are compared or put into one column."""
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if a.integral and b.integral:
        return max(a, b, key=lambda t: INTEGRAL[t.kind])
    if a.numeric and b.numeric:
        if a.floating or b.floating:
            return DOUBLE
        left, right = (t if t.kind == "decimal" else decimal(INTEGRAL[t.kind], 0) for t in (a, b))
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale
        # Too many digits: Spark keeps those before the point.
        return decimal(min(digits, MOST_DIGITS), max(scale - max(digits - MOST_DIGITS, 0), 0))
    if {a.kind, b.kind} == {"date", "timestamp"}:
        return TIMESTAMP
    raise Refused(f"{a} and {b} together")


def converted(value: Value, to: DataType) -> str:
    """Return the DuckDB form of `value` in the wider type `to`, as Spark's implicit cast gives it."""
    have = value.type
    if have == to:
        return value.sql
    if have == VOID:
        return cast("NULL", to)
    if have.kind == "decimal" and to.floating and have.precision > EXACT_DIGITS:
        raise Refused(f"{have} as a double")
    if have.kind == "date" and to.kind == "timestamp":
        return f"make_timestamptz(epoch_us({value.sql}))"
    if (have.numeric and to.numeric) or have.kind == to.kind:
        return cast(value.sql, to)
    raise Refused(f"{have} as {to}")


def stored(sql: str, to: DataType) -> str:
    """Return a value as it comes out of a table, with doubles freed of statistics.

    Parquet's smallest and largest values leave NaN out; DuckDB would skip rows and fold comparisons by them.
    """
    return f"(CASE WHEN isnan({sql}) THEN 'nan' ELSE {sql} END)" if to.floating else sql


def call_name(function: str, *arguments: Value | str) -> str | None:
    """Return Spark's name of a function call."""
    names = [argument if isinstance(argument, str) else argument.name for argument in arguments]
    return None if None in names else f"{function}({', '.join(n for n in names if n is not None)})"


def field_of(value: Value, name: str, *, bare: bool) -> Value:
    """Return a field of a struct; `bare` if nothing stands around it, when Spark names it by the field alone."""
    if value.type.kind != "struct":
        raise Refused(f"a field of a {value.type}")
    found = [i for i, known in enumerate(value.type.names) if known.lower() == name.lower()]
    if len(found) != 1:
        raise Refused(f"the field `{name}`")
    exact = value.type.names[found[0]]
    own = name if bare else None if value.name is None else f"{value.name}.{exact}"
    to = value.type.children[found[0]]
    return Value(stored(f"struct_extract({value.sql}, {text(exact)})", to), to, own)
