"""What the types of Avro become as columns of Arrow, and its values as theirs. Pure."""

import json
from collections.abc import Callable
from datetime import time
from typing import Any
from uuid import UUID

import pyarrow as pa

Change = Callable[[Any], Any]
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: dict[str, tuple[pa.DataType, Change | None]] = {
    "date": (pa.date32(), None),
    "time-millis": (pa.string(), time.isoformat),
    "time-micros": (pa.string(), time.isoformat),
    "timestamp-millis": (pa.timestamp("us", "UTC"), None),
    "timestamp-micros": (pa.timestamp("us", "UTC"), None),
    "local-timestamp-millis": (pa.timestamp("us"), None),
    "local-timestamp-micros": (pa.timestamp("us"), None),
    "uuid": (pa.string(), UUID.__str__),
}


class Columns:
    """The columns of a record's schema. Several types at once, and a record with itself inside, become JSON text."""

    def __init__(self, schema: Any) -> None:
        names = _Names()
        kinds = {field["name"]: _kind(field["type"], names) for field in schema["fields"]}
        self.schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])
        self._changes = {name: change for name, (_, change) in kinds.items() if change is not None}

    def fit(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a record with values that its columns take."""
        for name, change in self._changes.items():
            if row[name] is not None:
                row[name] = change(row[name])
        return row


class _Names(dict[str, tuple[pa.DataType, Change | None] | None]):
    """Types that have a name, by it; None while they are looked at: they have themselves inside."""


def _kind(schema: Any, names: _Names) -> tuple[pa.DataType, Change | None]:
    """Return the column of a type, and what to make of its values first. Several types at once become JSON text."""
    if isinstance(schema, list):
        rest = [one for one in schema if one != "null"]
        return _kind(rest[0], names) if len(rest) == 1 else (pa.string(), _json)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema], None
        return names[schema] or (pa.string(), _json)
    if schema.get("name") in names:
        return names[schema["name"]] or (pa.string(), _json)
    if "name" in schema:
        names[schema["name"]] = None
    found = _inside(schema, names)
    if "name" in schema:
        names[schema["name"]] = found
    return found


def _inside(schema: dict[str, Any], names: _Names) -> tuple[pa.DataType, Change | None]:
    logical, kind = schema.get("logicalType"), schema["type"]
    if logical == "decimal":
        digits, scale = schema["precision"], schema.get("scale", 0)
        return (pa.decimal128(digits, scale), None) if digits <= 38 else (pa.string(), str)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind in ("record", "error"):
        fields = {field["name"]: _kind(field["type"], names) for field in schema["fields"]}
        return pa.struct([(name, one) for name, (one, _) in fields.items()]), _record(fields)
    if kind == "array":
        item, change = _kind(schema["items"], names)
        return pa.list_(item), (lambda values: [_maybe(change, one) for one in values]) if change else None
    if kind == "map":
        item, change = _kind(schema["values"], names)
        return pa.map_(pa.string(), item), lambda value: [(name, _maybe(change, one)) for name, one in value.items()]
    return _kind(kind, names)


def _record(fields: dict[str, tuple[pa.DataType, Change | None]]) -> Change | None:
    changes = {name: change for name, (_, change) in fields.items() if change is not None}
    if not changes:
        return None
    return lambda value: value | {name: _maybe(change, value[name]) for name, change in changes.items()}


def _maybe(change: Change | None, value: Any) -> Any:
    return value if change is None or value is None else change(value)


def _json(value: Any) -> str:
    def plain(one: object) -> str:
        return one.decode(errors="backslashreplace") if isinstance(one, bytes) else str(one)

    return json.dumps(value, default=plain, ensure_ascii=False)
