"""How the types of PostgreSQL are read: most as they are, numbers with a scale as whole numbers, the rest as text."""

from dataclasses import dataclass

from runnel.connect.jdbc.database import Column, Family

LONGEST = 38  # digits of a decimal
LONGEST_WHOLE = 18  # digits that surely fit a long
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
class Typed:
    """A type as the server describes it."""

    name: str
    is_enum: bool = False
    precision: int | None = None
    scale: int | None = None


def typed(name: str, sql: str, kind: Typed) -> Column:
    """Return a column that is read by `sql`."""
    family: Family = "number" if kind.name in _NUMBERS else "time" if kind.name in _TIMES else "other"
    if kind.name == "numeric":
        return _numeric(name, sql, kind)
    if kind.name in _PLAIN:
        return Column(name, kind.name, _PLAIN[kind.name], sql, sql, sql, family)
    if kind.name == "oid":
        return Column(name, kind.name, "int64", sql, f"{sql}::int8", sql, "number")
    if kind.name.startswith("_") and kind.name[1:] in _PLAIN:
        # Of several dimensions the driver would make one, silently: such a value is made to fail.
        failing = f"('several dimensions: ' || {sql}::text)::{kind.name}"
        read = f"CASE WHEN array_ndims({sql}) > 1 THEN {failing} ELSE {sql} END"
        return Column(name, kind.name, f"list<{_PLAIN[kind.name[1:]]}>", sql, read, f"{sql}::text")
    return Column(name, kind.name, "string", sql, f"{sql}::text", f"{sql}::text")


def _numeric(name: str, sql: str, kind: Typed) -> Column:
    """Return a decimal. One of few digits comes as a whole number, which is far quicker than text.

    NaN makes that fail; then it is read as text, by `safe`.
    """
    precision, scale = kind.precision, kind.scale
    if precision is None or scale is None or precision > LONGEST or scale > precision:
        return Column(name, kind.name, f"decimal({LONGEST},18)", sql, sql, sql, "number")
    made = f"decimal({precision},{scale})"
    called = f"numeric({precision},{scale})"
    if precision > LONGEST_WHOLE:
        return Column(name, called, made, sql, sql, sql, "number")
    whole = f"({sql} * {10**scale})::int8" if scale else f"{sql}::int8"
    return Column(name, called, made, sql, whole, sql, "number", safe=sql)
