"""Translate casts for which both engines give the same value, or both fail."""

from runnel.declare.model.column_types import SparkType, decimal
from runnel.query.data_types import BIGINT, DATE, DOUBLE, TIMESTAMP
from runnel.query.dialect.literals import parse_datetime_literal
from runnel.query.dialect.typed_expression import (
    EXACT_DIGITS,
    TypedExpression,
    Untranslatable,
    cast,
    cast_implicitly,
    fail_with,
    quote_string,
)

_WHITESPACE = quote_string("".join(map(chr, range(1, 33))))
_INTEGER = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP = _DATE + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_NON_FINITE = ("nan", "infinity", "-infinity", "inf", "-inf")
_TRUE, _FALSE = ("'t','true','y','yes','1'", "'f','false','n','no','0'")


def cast_like_spark(value: TypedExpression, to: SparkType, *, is_try: bool = False) -> str:
    """Return the DuckDB form of `CAST(value AS to)`, or of `TRY_CAST` if it `is_try`."""
    source_type = value.type
    if source_type == to:
        return value.sql
    if source_type.kind == "void":
        return cast("NULL", to)
    if is_try and not (source_type.kind == "string" and (to.is_integral or to.kind in ("double", "decimal"))):
        raise Untranslatable(f"TRY_CAST of {source_type} to {to}")
    if source_type.kind == "string":
        return _cast_string(value, to, is_try)
    if to.kind == "string":
        return cast_to_string(value)
    if source_type.is_numeric and to.is_numeric:
        return _cast_number(value, to)
    if source_type.kind == "boolean" and to.is_numeric and to.kind != "decimal":
        return cast(value.sql, to)
    if source_type.is_numeric and to.kind == "boolean":
        return f"({value.sql} <> 0)"
    if source_type.kind == "timestamp" and to.kind == "date":
        return cast(to_naive_timestamp(value), DATE)
    if source_type.kind == "date" and to.kind == "timestamp":
        return cast_implicitly(value, TIMESTAMP)
    if source_type.kind == "timestamp" and to == BIGINT:
        micros = f"epoch_us({value.sql})"
        return f"(({micros} - (({micros} % 1000000) + 1000000) % 1000000) // 1000000)"
    raise Untranslatable(f"CAST of {source_type} to {to}")


def _cast_number(value: TypedExpression, to: SparkType) -> str:
    source_type = value.type
    if to.is_integral and not source_type.is_integral:
        return cast(f"trunc({value.sql})", to)
    if source_type.is_floating and to.kind == "decimal":
        raise Untranslatable(f"CAST of {source_type} to {to}")
    if source_type.kind == "decimal" and to.is_floating and (source_type.precision > EXACT_DIGITS or to != DOUBLE):
        raise Untranslatable(f"CAST of {source_type} to {to}")
    if source_type.kind in ("int", "bigint") and to.kind == "float":
        raise Untranslatable(f"CAST of {source_type} to {to}")
    return cast(value.sql, to)


def to_naive_timestamp(value: TypedExpression) -> str:
    """Return a timestamp as DuckDB's plain TIMESTAMP in UTC; dates become midnight."""
    if value.type.kind == "timestamp":
        return f"make_timestamp(epoch_us({value.sql}))"
    if value.type.kind in ("date", "timestamp_ntz"):
        return f"CAST({value.sql} AS TIMESTAMP)"
    raise Untranslatable(f"a {value.type} as a time")


def to_zoned_timestamp(sql: str) -> str:
    """Return a plain TIMESTAMP in UTC as Spark's timestamp."""
    return f"make_timestamptz(epoch_us({sql}))"


def cast_to_string(value: TypedExpression) -> str:
    """Return `CAST(value AS STRING)`."""
    source_type = value.type
    if source_type.kind == "string":
        return value.sql
    if source_type.is_integral or source_type.kind == "boolean":
        return f"CAST({value.sql} AS VARCHAR)"
    if source_type.kind == "decimal":
        if source_type.scale > 6 or source_type.precision == 38:
            # Java writes very small values with an exponent.
            raise Untranslatable(f"CAST of {source_type} to string")
        # DuckDB omits the zero before the decimal point if the type has no digit for it.
        return f"CAST({cast(value.sql, decimal(source_type.precision + 1, source_type.scale))} AS VARCHAR)"
    if source_type.kind in ("date", "timestamp", "timestamp_ntz"):
        return require_usual_year(
            value, f"CAST({value.sql if source_type.kind == 'date' else to_naive_timestamp(value)} AS VARCHAR)"
        )
    raise Untranslatable(f"CAST of {source_type} to string")


def require_usual_year(value: TypedExpression, sql: str) -> str:
    """Return `sql` that fails outside the years 1 to 9999, because the engines format those differently."""
    day = value.sql if value.type.kind == "date" else to_naive_timestamp(value)
    is_usual = f"{day} >= DATE '0001-01-01' AND {day} < DATE '10000-01-01'"
    return f"(CASE WHEN {day} IS NULL THEN NULL WHEN {is_usual} THEN {sql} ELSE {fail_with('an unusual year')} END)"


def _cast_string(value: TypedExpression, to: SparkType, is_try: bool) -> str:
    if isinstance(value.literal, str) and to.kind in ("date", "timestamp"):
        parsed = parse_datetime_literal(value.literal, to.kind)
        if parsed is not None:
            return parsed.sql
    if to.kind == "double" and isinstance(value.literal, str) and value.literal.lower() in _NON_FINITE:
        return f"CAST({quote_string(value.literal)} AS DOUBLE)"
    trimmed = f"trim({value.sql}, {_WHITESPACE})"
    if to.kind == "boolean":
        lowered = f"lower({trimmed})"
        return (
            f"(CASE WHEN {value.sql} IS NULL THEN NULL WHEN {lowered} IN ({_TRUE}) THEN TRUE "
            f"WHEN {lowered} IN ({_FALSE}) THEN FALSE ELSE {fail_with('not a boolean')} END)"
        )
    accepted_forms = {"double": (_NUMBER + "([eE][+-]?[0-9]{1,3})?", DOUBLE), "decimal": (_NUMBER, to)}
    accepted_forms |= {"date": (_DATE, DATE), "timestamp": (_TIMESTAMP, SparkType("timestamp_ntz"))}
    if to.is_integral:
        accepted_forms[to.kind] = (_INTEGER, to)
    if to.kind not in accepted_forms:
        raise Untranslatable(f"CAST of string to {to}")
    regex, duckdb_type = accepted_forms[to.kind]
    cast_sql = f"{'TRY_' if is_try and to.kind != 'double' else ''}{cast(trimmed, duckdb_type)}"
    fallback = fail_with(f"not a plain {to}")
    if is_try and to.is_integral:
        fallback = "NULL"
    result = to_zoned_timestamp(cast_sql) if to.kind == "timestamp" else cast_sql
    return (
        f"(CASE WHEN {value.sql} IS NULL THEN NULL WHEN regexp_full_match({trimmed}, "
        f"{quote_string(regex)}) THEN {result} "
        f"ELSE {fallback} END)"
    )
