"""How the types of MySQL and MariaDB are read."""

from typing import Any

from pymysql.constants import FIELD_TYPE, FLAG  # type: ignore[import-untyped]

from runnel.connect.jdbc.database import Column, Family

_BINARY = 63  # the character set of bytes
_PLAIN: dict[int, tuple[str, str, Family]] = {
    FIELD_TYPE.TINY: ("tinyint", "int32", "number"),
    FIELD_TYPE.SHORT: ("smallint", "int32", "number"),
    FIELD_TYPE.INT24: ("mediumint", "int32", "number"),
    FIELD_TYPE.LONG: ("int", "int32", "number"),
    FIELD_TYPE.LONGLONG: ("bigint", "int64", "number"),
    FIELD_TYPE.YEAR: ("year", "int32", "number"),
    FIELD_TYPE.FLOAT: ("float", "float", "number"),
    FIELD_TYPE.DOUBLE: ("double", "double", "number"),
    FIELD_TYPE.DATE: ("date", "date", "time"),
    FIELD_TYPE.DATETIME: ("datetime", "timestamp", "time"),
    FIELD_TYPE.TIMESTAMP: ("timestamp", "timestamptz", "time"),
}
_WIDER = {"int": "int64", "bigint": "decimal(20,0)"}  # where it has no sign
_TEXTS = (FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.BLOB)
_BLOBS = (FIELD_TYPE.TINY_BLOB, FIELD_TYPE.MEDIUM_BLOB, FIELD_TYPE.LONG_BLOB)


def typed(field: Any, sql: str) -> Column:
    """Return a column as the driver describes it. What is neither number, time, text nor bytes is read as text."""
    code, unsigned = field.type_code, bool(field.flags & FLAG.UNSIGNED)
    if code in _PLAIN:
        called, made, family = _PLAIN[code]
        made = _WIDER.get(called, made) if unsigned else made
        return Column(field.name, called + (" unsigned" if unsigned else ""), made, sql, sql, sql, family)
    if code in (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL):
        return _decimal(field, sql, unsigned)
    if code in (*_TEXTS, *_BLOBS) and not field.flags & (FLAG.ENUM | FLAG.SET):
        is_bytes = field.charsetnr == _BINARY
        return Column(field.name, "blob" if is_bytes else "text", "binary" if is_bytes else "string", sql, sql, sql)
    if code in (FIELD_TYPE.BIT, FIELD_TYPE.GEOMETRY):
        return Column(field.name, "bytes", "binary", sql, f"cast({sql} AS binary)", f"hex({sql})")
    return Column(field.name, "text", "string", sql, f"cast({sql} AS char)", f"cast({sql} AS char)")


def _decimal(field: Any, sql: str, unsigned: bool) -> Column:
    """Return a decimal: the driver says how long its text may be, with sign and point."""
    scale = field.scale
    precision = field.length - (scale > 0) - (not unsigned)
    if not 0 < precision <= 38 or scale > precision:
        precision, scale = 38, min(scale, 18)
    kind = f"decimal({precision},{scale})"
    return Column(field.name, kind, kind, sql, sql, sql, "number")
