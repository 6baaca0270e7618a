"""How the columns of SQLite are read: by what they are declared as, else by which values they have."""

import re

from runnel.connect.jdbc.database import Column, Family

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|NUMBER)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_TIMES = ("DATETIME", "TIMESTAMP")


def declared(name: str, sql: str, kind: str) -> Column | None:
    """Return a column by its declared type, as SQLite reads it; None where that says nothing.

    >>> declared("n", "t.n", "DECIMAL(12,2)").type
    'decimal(12,2)'
    """
    upper = kind.upper()
    exact = _DECIMAL.search(upper)
    family: Family = "other"
    read = sql
    if exact and 0 < int(exact[1]) <= 38 and int(exact[2] or 0) <= int(exact[1]):
        scale = int(exact[2] or 0)
        made = f"decimal({int(exact[1])},{scale})"
        # A number with a fraction is kept in binary: the decimal nearest to it is meant.
        exactly = f"WHEN 'real' THEN printf('%.{scale}f', {sql}) WHEN 'integer' THEN CAST({sql} AS TEXT)"
        read, family = f"CASE typeof({sql}) {exactly} ELSE {sql} END", "number"
    elif upper.startswith(_TIMES):
        made, family = "timestamp", "time"
    elif upper == "DATE":
        made, family = "date", "time"
    elif upper.startswith("BOOL"):
        made = "bool"
    elif "INT" in upper:
        made, family = "int64", "number"
    elif any(word in upper for word in ("CHAR", "CLOB", "TEXT", "JSON", "UUID")):
        made = "string"
    elif "BLOB" in upper:
        made = "binary"
    elif any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        made, family = "double", "number"
    else:
        return None
    return Column(name, upper, made, sql, read, _hashed(sql), family)


def found_in(name: str, sql: str, kind: str, kinds: set[str]) -> Column:
    """Return a column of no declared type by the types of its values; text where they are mixed."""
    values = kinds - {"null"}
    if values and values <= {"integer", "real"}:
        made = "int64" if values == {"integer"} else "double"
        return Column(name, kind.upper(), made, sql, sql, _hashed(sql), "number")
    if values == {"blob"}:
        return Column(name, kind.upper(), "binary", sql, sql, _hashed(sql))
    read = sql if values <= {"text"} else f"CASE WHEN {sql} IS NOT NULL THEN CAST({sql} AS TEXT) END"
    return Column(name, kind.upper(), "string", sql, read, _hashed(sql))


def _hashed(sql: str) -> str:
    """Return the bytes of a text, which may not be UTF-8."""
    return f"CASE typeof({sql}) WHEN 'text' THEN CAST({sql} AS BLOB) ELSE {sql} END"
