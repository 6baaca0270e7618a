"""Decode Avro messages, one message to a row.

A message is the bytes of one record, with or without the five-byte prefix of a schema registry: a zero and the schema's
number. The registry is not queried: every message is read with the schema that the source names.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

from runnel.connect.files.convert.avro_types import AvroColumns
from runnel.declare.model.endpoints import Kafka
from runnel.errors import Mistake

_PREFIX_BYTES = 5


class AvroDecoder:
    """Decodes messages that were written with one schema."""

    def __init__(self, origin: Kafka, root: Path, at: str) -> None:
        from fastavro import parse_schema

        text = read_schema(origin.avro or "", root, at)
        try:
            parsed: Any = parse_schema(json.loads(text))
            columns = AvroColumns(parsed)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Mistake) as error:
            raise _schema_error(str(error) or type(error).__name__, at) from None
        except Exception as error:
            # The exceptions of fastavro have no common base class.
            raise _schema_error(str(error), at) from None
        self._avro_schema = parsed
        self._wire = origin.wire
        self.schema = columns.schema
        self._convert_row = columns.convert_record

    def decode(self, value: bytes) -> tuple[dict[str, Any] | None, str]:
        """Return the record of a message, or None and the reason why it can't be decoded."""
        starts = self._possible_starts(value)
        rows = [row for start in starts if isinstance(row := self._decode_at(value, start), dict)]
        if len(rows) == 1:
            return self._convert_row(rows[0]), ""
        if len(rows) > 1:
            return None, 'it can be read with and without a registry\'s prefix; say wire="plain" or wire="confluent"'
        if not starts:
            return None, 'it has no prefix of a schema registry, which wire="confluent" expects'
        return None, f"it is not Avro of this schema: {self._decode_at(value, starts[0])}"

    def _possible_starts(self, value: bytes) -> list[int]:
        """Return the byte positions at which the record may begin."""
        has_prefix = value[:1] == b"\0" and len(value) >= _PREFIX_BYTES
        if self._wire == "plain":
            return [0]
        if self._wire == "confluent":
            return [_PREFIX_BYTES] if has_prefix else []
        return [0, _PREFIX_BYTES] if has_prefix else [0]

    def _decode_at(self, value: bytes, start: int) -> dict[str, Any] | str:
        from fastavro import schemaless_reader

        stream = BytesIO(value)
        stream.seek(start)
        try:
            row = schemaless_reader(stream, self._avro_schema, None)
        except EOFError:
            return "it ends too early"
        except Exception as error:
            # Bytes that are not Avro make fastavro raise all kinds of exceptions.
            return str(error) or type(error).__name__
        remaining_bytes = len(value) - stream.tell()
        return row if remaining_bytes == 0 else f"{remaining_bytes:,} bytes are left over"  # type: ignore[return-value]


def read_schema(avro: str, root: Path, at: str) -> str:
    """Return the schema that a source names: as JSON, or as a path below the project's folder."""
    if avro.startswith("{"):
        return avro
    try:
        return (root / avro).read_text()
    except (OSError, UnicodeDecodeError) as error:
        what = f"the Avro schema {avro} can't be read: {getattr(error, 'strerror', None) or error}"
        fix = "correct avro= of rn.kafka: a path from the project's folder on, or the schema itself"
        raise Mistake("SOURCE_KAFKA_AVRO", what, at=at, fix=fix) from None


def _schema_error(reason: str, at: str) -> Mistake:
    what = f"the Avro schema of rn.kafka can't be used: {reason}"
    return Mistake("SOURCE_KAFKA_AVRO", what, at=at, fix="it must be a record, whose fields become columns")
