"""Avro messages: one message as a row.

A message is the bytes of one record, or those after the five of a schema registry: a zero and the schema's number. The
registry is not asked: every message is read with the schema that the source names.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

from runnel.connect.files.avro_types import Columns
from runnel.declare.model.endpoints import Kafka
from runnel.errors import Mistake

_PREFIX = 5


class Decoder:
    """Reads messages that were written with one schema."""

    def __init__(self, origin: Kafka, root: Path, at: str) -> None:
        from fastavro import parse_schema

        text = _text(origin.avro or "", root, at)
        try:
            parsed: Any = parse_schema(json.loads(text))
            columns = Columns(parsed)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Mistake) as error:
            raise _wrong(str(error) or type(error).__name__, at) from None
        except Exception as error:
            # What fastavro raises has no class in common.
            raise _wrong(str(error), at) from None
        self._avro = parsed
        self._wire = origin.wire
        self.schema = columns.schema
        self._fit = columns.fit

    def row(self, value: bytes) -> tuple[dict[str, Any] | None, str]:
        """Return the record of a message, or why there is none."""
        ways = self._ways(value)
        found = [row for start in ways if isinstance(row := self._read(value, start), dict)]
        if len(found) == 1:
            return self._fit(found[0]), ""
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
