"""Map the columns of SQLite to Arrow types: by their declared types, or by their values."""

import re

from runnel.connect.jdbc.database import DatabaseColumn, TypeFamily

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|NUMBER)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_TIMES = ("DATETIME", "TIMESTAMP")


def build_declared_column(name: str, sql: str, kind: str) -> DatabaseColumn | None:
    """Return a column by its declared type, as SQLite reads it; None if the type is unknown.

    >>> build_declared_column("n", "t.n", "DECIMAL(12,2)").arrow_type
    'decimal(12,2)'
    """
    upper = kind.upper()
    decimal_match = _DECIMAL.search(upper)
    family: TypeFamily = "other"
    read = sql
    if decimal_match and 0 < int(decimal_match[1]) <= 38 and int(decimal_match[2] or 0) <= int(decimal_match[1]):
        scale = int(decimal_match[2] or 0)
        arrow_type = f"decimal({int(decimal_match[1])},{scale})"
        # SQLite stores a fraction as a binary double: read it as the nearest decimal.
        decimal_cases = f"WHEN 'real' THEN printf('%.{scale}f', {sql}) WHEN 'integer' THEN CAST({sql} AS TEXT)"
        read, family = f"CASE typeof({sql}) {decimal_cases} ELSE {sql} END", "number"
    elif upper.startswith(_TIMES):
        arrow_type, family = "timestamp", "time"
    elif upper == "DATE":
        arrow_type, family = "date", "time"
    elif upper.startswith("BOOL"):
        arrow_type = "bool"
    elif "INT" in upper:
        arrow_type, family = "int64", "number"
    elif any(fragment in upper for fragment in ("CHAR", "CLOB", "TEXT", "JSON", "UUID")):
        arrow_type = "string"
    elif "BLOB" in upper:
        arrow_type = "binary"
    elif any(fragment in upper for fragment in ("REAL", "FLOA", "DOUB")):
        arrow_type, family = "double", "number"
    else:
        return None
    return DatabaseColumn(name, upper, arrow_type, sql, read, _hash_sql(sql), family)


def build_column_from_values(name: str, sql: str, kind: str, value_types: set[str]) -> DatabaseColumn:
    """Return a column without a declared type by the types of its values; text if they are mixed."""
    values = value_types - {"null"}
    if values and values <= {"integer", "real"}:
        arrow_type = "int64" if values == {"integer"} else "double"
        return DatabaseColumn(name, kind.upper(), arrow_type, sql, sql, _hash_sql(sql), "number")
    if values == {"blob"}:
        return DatabaseColumn(name, kind.upper(), "binary", sql, sql, _hash_sql(sql))
    read = sql if values <= {"text"} else f"CASE WHEN {sql} IS NOT NULL THEN CAST({sql} AS TEXT) END"
    return DatabaseColumn(name, kind.upper(), "string", sql, read, _hash_sql(sql))


def _hash_sql(sql: str) -> str:
    """Return SQL that hashes a text by its bytes, which may not be UTF-8."""
    return f"CASE typeof({sql}) WHEN 'text' THEN CAST({sql} AS BLOB) ELSE {sql} END"
