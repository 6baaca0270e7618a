"""Convert Avro types to Arrow types, and Avro values to Arrow values. Pure."""

import json
from collections.abc import Callable
from datetime import time
from typing import Any
from uuid import UUID

import pyarrow as pa

ValueConverter = Callable[[Any], Any]
_PRIMITIVE_TYPES: dict[str, pa.DataType] = {
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
_LOGICAL_TYPES: dict[str, tuple[pa.DataType, ValueConverter | None]] = {
    "date": (pa.date32(), None),
    "time-millis": (pa.string(), time.isoformat),
    "time-micros": (pa.string(), time.isoformat),
    "timestamp-millis": (pa.timestamp("us", "UTC"), None),
    "timestamp-micros": (pa.timestamp("us", "UTC"), None),
    "local-timestamp-millis": (pa.timestamp("us"), None),
    "local-timestamp-micros": (pa.timestamp("us"), None),
    "uuid": (pa.string(), UUID.__str__),
}


class AvroColumns:
    """The columns of a record's schema. Unions of several types and recursive records become JSON text."""

    def __init__(self, schema: Any) -> None:
        names = _NamedTypes()
        kinds = {field["name"]: _convert_type(field["type"], names) for field in schema["fields"]}
        self.schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])
        self._converters = {name: converter for name, (_, converter) in kinds.items() if converter is not None}

    def convert_record(self, row: dict[str, Any]) -> dict[str, Any]:
        """Convert the values of a record to those of its Arrow columns."""
        for name, converter in self._converters.items():
            if row[name] is not None:
                row[name] = converter(row[name])
        return row


class _NamedTypes(dict[str, tuple[pa.DataType, ValueConverter | None] | None]):
    """Named types by name; None while a type is being converted, which tells that it contains itself."""


def _convert_type(schema: Any, names: _NamedTypes) -> tuple[pa.DataType, ValueConverter | None]:
    """Return the Arrow type of an Avro type and the converter of its values. Unions of types become JSON text."""
    if isinstance(schema, list):
        types = [branch_type for branch_type in schema if branch_type != "null"]
        return _convert_type(types[0], names) if len(types) == 1 else (pa.string(), _to_json_text)
    if isinstance(schema, str):
        if schema in _PRIMITIVE_TYPES:
            return _PRIMITIVE_TYPES[schema], None
        return names[schema] or (pa.string(), _to_json_text)
    if schema.get("name") in names:
        return names[schema["name"]] or (pa.string(), _to_json_text)
    if "name" in schema:
        names[schema["name"]] = None
    converted = _convert_complex_type(schema, names)
    if "name" in schema:
        names[schema["name"]] = converted
    return converted


def _convert_complex_type(schema: dict[str, Any], names: _NamedTypes) -> tuple[pa.DataType, ValueConverter | None]:
    logical, kind = schema.get("logicalType"), schema["type"]
    if logical == "decimal":
        digits, scale = schema["precision"], schema.get("scale", 0)
        return (pa.decimal128(digits, scale), None) if digits <= 38 else (pa.string(), str)
    if logical in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[logical]
    if kind in ("record", "error"):
        fields = {field["name"]: _convert_type(field["type"], names) for field in schema["fields"]}
        return pa.struct([(name, element) for name, (element, _) in fields.items()]), _make_record_converter(fields)
    if kind == "array":
        item, converter = _convert_type(schema["items"], names)
        return pa.list_(item), (
            lambda values: [_convert_if_set(converter, element) for element in values]
        ) if converter else None
    if kind == "map":
        item, converter = _convert_type(schema["values"], names)
        return pa.map_(pa.string(), item), lambda value: [
            (name, _convert_if_set(converter, element)) for name, element in value.items()
        ]
    return _convert_type(kind, names)


def _make_record_converter(fields: dict[str, tuple[pa.DataType, ValueConverter | None]]) -> ValueConverter | None:
    converters = {name: converter for name, (_, converter) in fields.items() if converter is not None}
    if not converters:
        return None
    return lambda value: (
        value | {name: _convert_if_set(converter, value[name]) for name, converter in converters.items()}
    )


def _convert_if_set(converter: ValueConverter | None, value: Any) -> Any:
    return value if converter is None or value is None else converter(value)


def _to_json_text(value: Any) -> str:
    def to_text(item: object) -> str:
        return item.decode(errors="backslashreplace") if isinstance(item, bytes) else str(item)

    return json.dumps(value, default=to_text, ensure_ascii=False)
