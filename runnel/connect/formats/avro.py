"""Avro as Parquet, with its logical types. The schema is the one in the file."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.connect.formats.scratched import parquet_path
from runnel.connect.globs import File
from runnel.connect.scratch import Scratch
from runnel.errors import Mistake

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 50_000


def parquet(file: File, scratch: Scratch) -> File:
    """Return a Parquet file in the place of one of Avro."""
    import fastavro
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = parquet_path(file, scratch)
    try:
        with open(file.path, "rb") as stream:  # noqa: PTH123
            reader = fastavro.reader(stream)
            fields = _fields(file, reader.writer_schema)
            mixed = [field.name for field, is_mixed in fields if is_mixed]
            schema = pa.schema([field for field, _ in fields])
            with pq.ParquetWriter(target, schema, compression="zstd") as writer:
                for rows in _batches(reader, mixed):
                    writer.write_table(pa.Table.from_pylist(rows, schema))
    except Mistake:
        raise
    except (EOFError, ValueError, TypeError, KeyError, IndexError, OSError, OverflowError, pa.ArrowException) as error:
        why = "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
        what = f"{file.name} is not a whole Avro file: {why.splitlines()[0]}"
        raise Mistake("LOAD_NOT_AVRO", what, at=file.name, fix="copy or write it again") from error
    return scratch.instead(file, target)


def _batches(rows: Iterator[Any], mixed: list[str]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(islice(rows, _BATCH)):
        for row in batch if mixed else ():
            for name in mixed:
                row[name] = None if row[name] is None else json.dumps(row[name], default=str)
        yield batch


def _fields(file: File, schema: Any) -> "list[tuple[pa.Field[Any], bool]]":
    """Return the columns, and whether each is of several types and so becomes JSON text."""
    import pyarrow as pa

    if not isinstance(schema, dict) or schema.get("type") != "record":
        what = f"{file.name} has values that are no records"
        raise Mistake("LOAD_NOT_AVRO", what, at=file.name, fix="write records")
    found = []
    known: dict[str, Any] = {}
    for field in schema["fields"]:
        kind = _kind(field["type"], known)
        found.append((pa.field(field["name"], kind or pa.string()), kind is None))
    return found


def _kind(schema: Any, known: dict[str, Any]) -> "pa.DataType | None":
    """Return the Arrow type of an Avro type; None where it is several types, or has itself inside."""
    import pyarrow as pa

    if isinstance(schema, list):
        rest = [one for one in schema if one != "null"]
        return _kind(rest[0], known) if len(rest) == 1 else None
    if isinstance(schema, str):
        return known[schema] if schema in known else _plain().get(schema)
    name, logical = schema["type"], schema.get("logicalType")
    if isinstance(name, dict | list):
        return _kind(name, known)
    if name == "array":
        item = _kind(schema["items"], known)
        return pa.list_(item) if item is not None else None
    if name == "map":
        item = _kind(schema["values"], known)
        return pa.map_(pa.string(), item) if item is not None else None
    called = schema.get("name")
    kind = _named(schema, name, logical, known)
    if called:
        known[called] = kind
    return kind


def _named(schema: Any, name: str, logical: str | None, known: dict[str, Any]) -> "pa.DataType | None":
    """Return the type of what may have a name, or a logical type."""
    import pyarrow as pa

    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0)) if schema["precision"] <= 38 else None
    if logical in _logical():
        return _logical()[logical]
    if name in ("record", "error"):
        known[schema["name"]] = None
        parts = [(field["name"], _kind(field["type"], known)) for field in schema["fields"]]
        whole = {called: kind for called, kind in parts if kind is not None}
        return (
            pa.struct([pa.field(called, kind) for called, kind in whole.items()]) if len(whole) == len(parts) else None
        )
    return pa.string() if name == "enum" else pa.binary() if name == "fixed" else _kind(name, known)


def _plain() -> "dict[str, pa.DataType]":
    import pyarrow as pa

    return {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }


def _logical() -> "dict[str, pa.DataType]":
    import pyarrow as pa

    return {
        "date": pa.date32(),
        "time-millis": pa.time64("us"),
        "time-micros": pa.time64("us"),
        "timestamp-millis": pa.timestamp("us", "UTC"),
        "timestamp-micros": pa.timestamp("us", "UTC"),
        "local-timestamp-millis": pa.timestamp("us"),
        "local-timestamp-micros": pa.timestamp("us"),
        "uuid": pa.string(),
    }
