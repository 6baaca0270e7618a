"""Read the metadata of a message: its key, headers, topic, partition, offset and timestamp."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Protocol

from runnel.declare.api.kafka import INCLUDE_COLUMNS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class KafkaMessage(Protocol):
    """A message of a consumer, which always has a topic, partition and offset."""

    def topic(self) -> str: ...  # noqa: D102
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def error(self) -> "KafkaError | None": ...  # noqa: D102
    def __len__(self) -> int: ...


def decode_text(raw: bytes | str | None) -> str | None:
    r"""Return bytes as text; bytes that are not UTF-8 are escaped.

    >>> decode_text(b"caf\xe9"), decode_text(None)
    ('caf\\xe9', None)
    """
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw


def encode_headers(message: KafkaMessage) -> str | None:
    """Return headers as a JSON object; None if there are none. A repeated header has a list of values."""
    headers: dict[str, Any] = {}
    repeated: set[str] = set()
    for name, raw in message.headers() or ():
        value = decode_text(raw)
        if name not in headers:
            headers[name] = value
        elif name in repeated:
            headers[name].append(value)
        else:
            headers[name] = [headers[name], value]
            repeated.add(name)
    return json.dumps(headers, ensure_ascii=False) if headers else None


def read_timestamp(message: KafkaMessage) -> datetime | None:
    """Return when a message was written; None if it has no timestamp."""
    kind, milliseconds = message.timestamp()
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if kind and milliseconds >= 0 else None


METADATA_VALUES: dict[str, Callable[[KafkaMessage], Any]] = {
    "key": lambda message: decode_text(message.key()),
    "headers": encode_headers,
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": read_timestamp,
}


def encode_metadata(message: KafkaMessage, names: Sequence[str]) -> str:
    """Return metadata as JSON by column name, without braces. Encoded by hand because it runs for every message."""
    return ", ".join([f'"{INCLUDE_COLUMNS[name].name}": {_METADATA_JSON[name](message)}' for name in names])


def _encode_string(text: str | None) -> str:
    return "null" if text is None else encode_basestring_ascii(text)


def _encode_timestamp(message: KafkaMessage) -> str:
    kind, milliseconds = message.timestamp()
    if not kind or milliseconds < 0:
        return "null"
    return f'"{_format_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"'


@lru_cache(maxsize=1024)
def _format_second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


_METADATA_JSON: dict[str, Callable[[KafkaMessage], object]] = {
    "key": lambda message: _encode_string(decode_text(message.key())),
    "headers": lambda message: _encode_string(encode_headers(message)),
    "topic": lambda message: _encode_string(message.topic()),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": _encode_timestamp,
}
