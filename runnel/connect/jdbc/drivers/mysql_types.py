"""Map the types of MySQL and MariaDB to Arrow types."""

from typing import Any

from pymysql.constants import FIELD_TYPE, FLAG  # type: ignore[import-untyped]

from runnel.connect.jdbc.database import DatabaseColumn, TypeFamily

_BINARY = 63  # the character set of bytes
_PLAIN: dict[int, tuple[str, str, TypeFamily]] = {
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
_UNSIGNED_TYPES = {"int": "int64", "bigint": "decimal(20,0)"}  # of unsigned columns
_TEXTS = (FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.BLOB)
_BLOBS = (FIELD_TYPE.TINY_BLOB, FIELD_TYPE.MEDIUM_BLOB, FIELD_TYPE.LONG_BLOB)


def build_column(field: Any, sql: str) -> DatabaseColumn:
    """Return the column that the driver describes. Types other than numbers, times, text and bytes are read as text."""
    code, unsigned = field.type_code, bool(field.flags & FLAG.UNSIGNED)
    if code in _PLAIN:
        type_name, arrow_type, family = _PLAIN[code]
        arrow_type = _UNSIGNED_TYPES.get(type_name, arrow_type) if unsigned else arrow_type
        return DatabaseColumn(
            field.name, type_name + (" unsigned" if unsigned else ""), arrow_type, sql, sql, sql, family
        )
    if code in (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL):
        return _build_decimal_column(field, sql, unsigned)
    if code in (*_TEXTS, *_BLOBS) and not field.flags & (FLAG.ENUM | FLAG.SET):
        is_bytes = field.charsetnr == _BINARY
        return DatabaseColumn(
            field.name, "blob" if is_bytes else "text", "binary" if is_bytes else "string", sql, sql, sql
        )
    if code in (FIELD_TYPE.BIT, FIELD_TYPE.GEOMETRY):
        return DatabaseColumn(field.name, "bytes", "binary", sql, f"cast({sql} AS binary)", f"hex({sql})")
    return DatabaseColumn(field.name, "text", "string", sql, f"cast({sql} AS char)", f"cast({sql} AS char)")


def _build_decimal_column(field: Any, sql: str, unsigned: bool) -> DatabaseColumn:
    """Return a decimal column; its precision follows from the text length (with sign and point) of the driver."""
    scale = field.scale
    precision = field.length - (scale > 0) - (not unsigned)
    if not 0 < precision <= 38 or scale > precision:
        precision, scale = 38, min(scale, 18)
    kind = f"decimal({precision},{scale})"
    return DatabaseColumn(field.name, kind, kind, sql, sql, sql, "number")
