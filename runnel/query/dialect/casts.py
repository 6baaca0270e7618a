"""Casts, where both engines give the same value or both fail."""

from runnel.query.data_types import BIGINT, DATE, DOUBLE, TIMESTAMP, DataType, decimal
from runnel.query.dialect.literals import moment
from runnel.query.dialect.typed_expression import EXACT_DIGITS, Refused, Value, cast, converted, failing, text

_BLANK = text("".join(map(chr, range(1, 33))))
_WHOLE = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP = _DATE + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_NO_NUMBERS = ("nan", "infinity", "-infinity", "inf", "-inf")
_TRUE, _FALSE = ("'t','true','y','yes','1'", "'f','false','n','no','0'")


def cast_to(value: Value, to: DataType, *, tries: bool = False) -> str:
    """Return the DuckDB form of `CAST(value AS to)`, or of `TRY_CAST` if it `tries`."""
    have = value.type
    if have == to:
        return value.sql
    if have.kind == "void":
        return cast("NULL", to)
    if tries and not (have.kind == "string" and (to.integral or to.kind in ("double", "decimal"))):
        raise Refused(f"TRY_CAST of {have} to {to}")
    if have.kind == "string":
        return _from_string(value, to, tries)
    if to.kind == "string":
        return to_string(value)
    if have.numeric and to.numeric:
        return _number(value, to)
    if have.kind == "boolean" and to.numeric and to.kind != "decimal":
        return cast(value.sql, to)
    if have.numeric and to.kind == "boolean":
        return f"({value.sql} <> 0)"
    if have.kind == "timestamp" and to.kind == "date":
        return cast(naive(value), DATE)
    if have.kind == "date" and to.kind == "timestamp":
        return converted(value, TIMESTAMP)
    if have.kind == "timestamp" and to == BIGINT:
        micros = f"epoch_us({value.sql})"
        return f"(({micros} - (({micros} % 1000000) + 1000000) % 1000000) // 1000000)"
    raise Refused(f"CAST of {have} to {to}")


def _number(value: Value, to: DataType) -> str:
    have = value.type
    if to.integral and not have.integral:
        return cast(f"trunc({value.sql})", to)
    if have.floating and to.kind == "decimal":
        raise Refused(f"CAST of {have} to {to}")
    if have.kind == "decimal" and to.floating and (have.precision > EXACT_DIGITS or to != DOUBLE):
        raise Refused(f"CAST of {have} to {to}")
    if have.kind in ("int", "bigint") and to.kind == "float":
        raise Refused(f"CAST of {have} to {to}")
    return cast(value.sql, to)


def naive(value: Value) -> str:
    """Return a timestamp as DuckDB's plain TIMESTAMP in UTC; dates become midnight."""
    if value.type.kind == "timestamp":
        return f"make_timestamp(epoch_us({value.sql}))"
    if value.type.kind in ("date", "timestamp_ntz"):
        return f"CAST({value.sql} AS TIMESTAMP)"
    raise Refused(f"a {value.type} as a time")


def zoned(sql: str) -> str:
    """Return a plain TIMESTAMP in UTC as Spark's timestamp."""
    return f"make_timestamptz(epoch_us({sql}))"


def to_string(value: Value) -> str:
    """Return `CAST(value AS STRING)`."""
    have = value.type
    if have.kind == "string":
        return value.sql
    if have.integral or have.kind == "boolean":
        return f"CAST({value.sql} AS VARCHAR)"
    if have.kind == "decimal":
        if have.scale > 6 or have.precision == 38:
            # Java writes very small values with an exponent.
            raise Refused(f"CAST of {have} to string")
        # DuckDB leaves out the zero before the point where the type has no room for it.
        return f"CAST({cast(value.sql, decimal(have.precision + 1, have.scale))} AS VARCHAR)"
    if have.kind in ("date", "timestamp", "timestamp_ntz"):
        return usual_years(value, f"CAST({value.sql if have.kind == 'date' else naive(value)} AS VARCHAR)")
    raise Refused(f"CAST of {have} to string")


def usual_years(value: Value, sql: str) -> str:
    """Return `sql`, failing outside the years 1 to 9999, which the engines write differently."""
    day = value.sql if value.type.kind == "date" else naive(value)
    usual = f"{day} >= DATE '0001-01-01' AND {day} < DATE '10000-01-01'"
    return f"(CASE WHEN {day} IS NULL THEN NULL WHEN {usual} THEN {sql} ELSE {failing('an unusual year')} END)"


def _from_string(value: Value, to: DataType, tries: bool) -> str:
    if isinstance(value.literal, str) and to.kind in ("date", "timestamp"):
        known = moment(value.literal, to.kind)
        if known is not None:
            return known.sql
    if to.kind == "double" and isinstance(value.literal, str) and value.literal.lower() in _NO_NUMBERS:
        return f"CAST({text(value.literal)} AS DOUBLE)"
    trimmed = f"trim({value.sql}, {_BLANK})"
    if to.kind == "boolean":
        low = f"lower({trimmed})"
        return (
            f"(CASE WHEN {value.sql} IS NULL THEN NULL WHEN {low} IN ({_TRUE}) THEN TRUE "
            f"WHEN {low} IN ({_FALSE}) THEN FALSE ELSE {failing('not a boolean')} END)"
        )
    forms = {"double": (_NUMBER + "([eE][+-]?[0-9]{1,3})?", DOUBLE), "decimal": (_NUMBER, to)}
    forms |= {"date": (_DATE, DATE), "timestamp": (_TIMESTAMP, DataType("timestamp_ntz"))}
    if to.integral:
        forms[to.kind] = (_WHOLE, to)
    if to.kind not in forms:
        raise Refused(f"CAST of string to {to}")
    form, through = forms[to.kind]
    inner = f"{'TRY_' if tries and to.kind != 'double' else ''}{cast(trimmed, through)}"
    otherwise = failing(f"not a plain {to}")
    if tries and to.integral:
        otherwise = "NULL"
    whole = zoned(inner) if to.kind == "timestamp" else inner
    return (
        f"(CASE WHEN {value.sql} IS NULL THEN NULL WHEN regexp_full_match({trimmed}, {text(form)}) THEN {whole} "
        f"ELSE {otherwise} END)"
    )
