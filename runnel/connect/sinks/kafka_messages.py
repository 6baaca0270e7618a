"""Build the messages of a change for Kafka: one for each added row, and a tombstone for each removed key.

The header `runnel-key` has a digest of the message. So it is the same if the message is sent again, from any process.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, StructType

from runnel.connect.kafka.producer import OutgoingMessage
from runnel.connect.sinks.json_rows import encode_json
from runnel.connect.sinks.net_rows import ADDED_VIEW, removed_keys_sql
from runnel.connect.sinks.table_change import BATCH_ROWS
from runnel.lake.diff.compared_columns import ComparedColumn

if TYPE_CHECKING:
    import duckdb

KEY_HEADER, COMMIT_HEADER = "runnel-key", "runnel-commit"
_DIGEST_LENGTH = 24


@dataclass(frozen=True)
class MessageBuilder:
    """Builds the messages of one delivery, or of a bucket of its rows; `key` are the columns of a message's key."""

    delivery_key: str
    commit: str
    columns: tuple[ComparedColumn, ...]
    key: tuple[str, ...]

    def build_messages(self, con: "duckdb.DuckDBPyConnection", *, has_removed_rows: bool) -> Iterator[OutgoingMessage]:
        """Yield added rows, then removed keys, from the views of a connection, always in the same order."""
        order = ", ".join(column.key_expression for column in self.columns)
        previous_digest, copies = "", 0
        for row in _read_rows(con, f"FROM {ADDED_VIEW} ORDER BY {order}"):
            value = encode_json(row).encode()
            digest = _compute_digest(self._make_comparable(row, value))
            copies = copies + 1 if digest == previous_digest else 1  # equal rows follow each other
            previous_digest = digest
            yield self._build_message(value, row, digest if copies == 1 else f"{digest}-{copies}")
        if self.key and has_removed_rows:
            for row in _read_rows(con, f"FROM ({removed_keys_sql(self.key)}) ORDER BY ALL"):
                key_text = self._encode_key(row) or b""
                yield self._build_message(None, row, _compute_digest(b"removed " + key_text))

    def _build_message(self, value: bytes | None, row: dict[str, Any], digest: str) -> OutgoingMessage:
        headers = [(COMMIT_HEADER, self.commit.encode()), (KEY_HEADER, f"{self.delivery_key}/{digest}".encode())]
        return OutgoingMessage(value, self._encode_key(row), headers)

    def _encode_key(self, row: dict[str, Any]) -> bytes | None:
        return encode_json({name: row[name] for name in self.key}).encode() if self.key else None

    def _make_comparable(self, row: dict[str, Any], value: bytes) -> bytes:
        """Return a text that is the same for rows that DuckDB takes for equal: maps have no order, -0.0 is 0.0."""
        if not self._has_maps and b"-0.0" not in value:
            return value
        return encode_json(
            {column.name: _make_value_comparable(row[column.name], column.kind) for column in self.columns}
        ).encode()

    @cached_property
    def _has_maps(self) -> bool:
        return any(_contains_map(column.kind) for column in self.columns)


def _read_rows(con: "duckdb.DuckDBPyConnection", sql: str) -> Iterator[dict[str, Any]]:
    with con.sql(sql).to_arrow_reader(BATCH_ROWS) as reader:
        for batch in reader:
            yield from batch.to_pylist()


def _compute_digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:_DIGEST_LENGTH]


def _contains_map(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_contains_map(field.field_type) for field in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ListType) and _contains_map(kind.element_type))


def _make_value_comparable(value: Any, kind: IcebergType) -> Any:
    if value is None:
        return None
    if isinstance(kind, FloatType | DoubleType):
        return value + 0.0
    if isinstance(kind, ListType):
        return [_make_value_comparable(item, kind.element_type) for item in value]
    if isinstance(kind, StructType):
        return {field.name: _make_value_comparable(value[field.name], field.field_type) for field in kind.fields}
    if isinstance(kind, MapType):
        pairs = value.items() if isinstance(value, dict) else value
        entries = [
            [_make_value_comparable(name, kind.key_type), _make_value_comparable(item, kind.value_type)]
            for name, item in pairs
        ]
        return sorted(entries, key=encode_json)
    return value
