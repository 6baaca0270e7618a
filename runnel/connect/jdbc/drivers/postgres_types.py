"""Map the types of PostgreSQL to Arrow types: most directly, decimals as scaled integers, the rest as text."""

from dataclasses import dataclass

from runnel.connect.jdbc.database import DatabaseColumn, TypeFamily

MAX_PRECISION = 38  # digits of a decimal
MAX_LONG_DIGITS = 18  # digits that surely fit a long
_NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric")
_TIMES = ("date", "timestamp", "timestamptz")
_PLAIN = {
    "bool": "bool",
    "int2": "int32",
    "int4": "int32",
    "int8": "int64",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "varchar": "string",
    "bpchar": "string",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
}


@dataclass(frozen=True)
class PostgresType:
    """A type as the server describes it."""

    name: str
    is_enum: bool = False
    precision: int | None = None
    scale: int | None = None


def build_column(name: str, sql: str, kind: PostgresType) -> DatabaseColumn:
    """Return a column that is read by `sql`."""
    family: TypeFamily = "number" if kind.name in _NUMBERS else "time" if kind.name in _TIMES else "other"
    if kind.name == "numeric":
        return _build_numeric_column(name, sql, kind)
    if kind.name in _PLAIN:
        return DatabaseColumn(name, kind.name, _PLAIN[kind.name], sql, sql, sql, family)
    if kind.name == "oid":
        return DatabaseColumn(name, kind.name, "int64", sql, f"{sql}::int8", sql, "number")
    if kind.name.startswith("_") and kind.name[1:] in _PLAIN:
        # The driver silently flattens arrays of several dimensions, so the SQL makes such a value fail.
        failing = f"('several dimensions: ' || {sql}::text)::{kind.name}"
        read = f"CASE WHEN array_ndims({sql}) > 1 THEN {failing} ELSE {sql} END"
        return DatabaseColumn(name, kind.name, f"list<{_PLAIN[kind.name[1:]]}>", sql, read, f"{sql}::text")
    return DatabaseColumn(name, kind.name, "string", sql, f"{sql}::text", f"{sql}::text")


def _build_numeric_column(name: str, sql: str, kind: PostgresType) -> DatabaseColumn:
    """Return a decimal column. One of few digits is read as a scaled integer, which is far faster than text.

    That fails for NaN; then the column is read as text, by `safe`.
    """
    precision, scale = kind.precision, kind.scale
    if precision is None or scale is None or precision > MAX_PRECISION or scale > precision:
        return DatabaseColumn(name, kind.name, f"decimal({MAX_PRECISION},18)", sql, sql, sql, "number")
    arrow_type = f"decimal({precision},{scale})"
    type_name = f"numeric({precision},{scale})"
    if precision > MAX_LONG_DIGITS:
        return DatabaseColumn(name, type_name, arrow_type, sql, sql, sql, "number")
    scaled_sql = f"({sql} * {10**scale})::int8" if scale else f"{sql}::int8"
    return DatabaseColumn(name, type_name, arrow_type, sql, scaled_sql, sql, "number", safe=sql)
