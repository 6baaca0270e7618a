"""A message, and what it says beside its value: its key, headers, topic, partition, offset and timestamp."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Protocol

from runnel.declare.api.kafka import INCLUDED

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class Message(Protocol):
    """A message as a consumer gives it, which always knows where it stands."""

    def topic(self) -> str: ...  # noqa: D102
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def error(self) -> "KafkaError | None": ...  # noqa: D102
    def __len__(self) -> int: ...


def text_of(raw: bytes | str | None) -> str | None:
    r"""Return bytes as text; what is not UTF-8 is shown.

    >>> text_of(b"caf\xe9"), text_of(None)
    ('caf\\xe9', None)
    """
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw


def headers_of(message: Message) -> str | None:
    """Return headers as a JSON object; None where there are none. One that comes several times has a list."""
    found: dict[str, Any] = {}
    several: set[str] = set()
    for name, raw in message.headers() or ():
        value = text_of(raw)
        if name not in found:
            found[name] = value
        elif name in several:
            found[name].append(value)
        else:
            found[name] = [found[name], value]
            several.add(name)
    return json.dumps(found, ensure_ascii=False) if found else None


def time_of(message: Message) -> datetime | None:
    """Return when a message was written; None where it does not say."""
    kind, milliseconds = message.timestamp()
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if kind and milliseconds >= 0 else None


VALUES: dict[str, Callable[[Message], Any]] = {
    "key": lambda message: text_of(message.key()),
    "headers": headers_of,
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": time_of,
}


def said(message: Message, names: Sequence[str]) -> str:
    """Return these things as JSON by the names of their columns, without braces. Written by hand: it is done often."""
    return ", ".join([f'"{INCLUDED[name].name}": {_JSON[name](message)}' for name in names])


def _json(text: str | None) -> str:
    return "null" if text is None else encode_basestring_ascii(text)


def _time_json(message: Message) -> str:
    kind, milliseconds = message.timestamp()
    if not kind or milliseconds < 0:
        return "null"
    return f'"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"'


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


_JSON: dict[str, Callable[[Message], object]] = {
    "key": lambda message: _json(text_of(message.key())),
    "headers": lambda message: _json(headers_of(message)),
    "topic": lambda message: _json(message.topic()),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": _time_json,
}
