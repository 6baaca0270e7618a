"""Avro messages: what a schema's fields become as columns, and one message as a row.

A message is the bytes of one record, or those after the five of a schema registry: a zero and the schema's number. The
registry is not asked: every message is read with the schema that the source names.
"""

import json
from collections.abc import Callable
from datetime import time
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from runnel.declare.origin import Kafka
from runnel.errors import Mistake

Change = Callable[[Any], Any]
_PREFIX = 5
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


class Decoder:
    """Reads messages that were written with one schema."""

    def __init__(self, origin: Kafka, root: Path, at: str) -> None:
        from fastavro import parse_schema

        text = _text(origin.avro or "", root, at)
        try:
            parsed: Any = parse_schema(json.loads(text))
            names = _Names()
            kinds = {field["name"]: _kind(field["type"], names) for field in parsed["fields"]}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Mistake) as error:
            raise _wrong(str(error) or type(error).__name__, at) from None
        except Exception as error:
            # What fastavro raises has no class in common.
            raise _wrong(str(error), at) from None
        self._avro = parsed
        self._wire = origin.wire
        self.schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])
        self._changes = {name: change for name, (_, change) in kinds.items() if change is not None}

    def row(self, value: bytes) -> tuple[dict[str, Any] | None, str]:
        """Return the record of a message, or why there is none."""
        ways = self._ways(value)
        found = [row for start in ways if isinstance(row := self._read(value, start), dict)]
        if len(found) == 1:
            for name, change in self._changes.items():
                if found[0][name] is not None:
                    found[0][name] = change(found[0][name])
            return found[0], ""
        if len(found) > 1:
            return None, 'it can be read with and without a registry\'s prefix; say wire="plain" or wire="confluent"'
        if not ways:
            return None, 'it has no prefix of a schema registry, which wire="confluent" expects'
        return None, f"it is not Avro of this schema: {self._read(value, ways[0])}"

    def _ways(self, value: bytes) -> list[int]:
        """Return where the record may begin."""
        prefixed = value[:1] == b"\0" and len(value) >= _PREFIX
        if self._wire == "plain":
            return [0]
        if self._wire == "confluent":
            return [_PREFIX] if prefixed else []
        return [0, _PREFIX] if prefixed else [0]

    def _read(self, value: bytes, start: int) -> dict[str, Any] | str:
        from fastavro import schemaless_reader

        stream = BytesIO(value)
        stream.seek(start)
        try:
            row = schemaless_reader(stream, self._avro, None)
        except EOFError:
            return "it ends too early"
        except Exception as error:
            # Bytes that are something else make fastavro fail in every way there is.
            return str(error) or type(error).__name__
        left = len(value) - stream.tell()
        return row if left == 0 else f"{left:,} bytes are left over"  # type: ignore[return-value]


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


def _text(avro: str, root: Path, at: str) -> str:
    if avro.startswith("{"):
        return avro
    try:
        return (root / avro).read_text()
    except (OSError, UnicodeDecodeError) as error:
        what = f"the Avro schema {avro} can't be read: {getattr(error, 'strerror', None) or error}"
        fix = "correct avro= of rn.kafka: a path from the project's folder on, or the schema itself"
        raise Mistake("SOURCE_KAFKA_AVRO", what, at=at, fix=fix) from None


def _wrong(why: str, at: str) -> Mistake:
    what = f"the Avro schema of rn.kafka can't be used: {why}"
    return Mistake("SOURCE_KAFKA_AVRO", what, at=at, fix="it must be a record, whose fields become columns")
