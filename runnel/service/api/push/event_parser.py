"""Parse the events of a request: one JSON object, an array of objects, or JSON lines. Pure.

All or nothing: if one event is malformed, the error names its location, and no event is accepted. The text of an
event stays as it was sent, except for line ends within it, so that no digit of a number is lost.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.errors import RunnelError
from runnel.lake.flow_state.inbox_writer import hash_texts

MAX_BYTES = 8 * 2**20
MAX_EVENTS = 100_000
JSON_MEDIA_TYPE = "application/json"
LINES_MEDIA_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_WHITESPACE = " \t\r\n"
_WHITESPACE_RUN = re.compile(r"[ \t\r\n]*")
_JSON_TYPE_NAMES = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
NumberedEvent = tuple[int, str, dict[str, Any]]


@dataclass(frozen=True)
class ParsedEvents:
    """Events as text without line ends, and the hashes of their keys; `keys` is empty if the source has no key."""

    events: list[str]
    keys: list[str | None]


def parse_events(body: bytes, media_type: str, key_fields: Sequence[str] = ()) -> ParsedEvents:
    """Return the events of a body of a media type; `key_fields` are the fields by which an event is known."""
    text = _decode_utf8(body)
    numbered_events = _parse_lines(text) if media_type in LINES_MEDIA_TYPES else _parse_document(text)
    events: list[str] = []
    keys: list[str | None] = []
    for number, event, record in numbered_events:
        if number > MAX_EVENTS:
            raise too_many_error()
        events.append(event)
        if key_fields:
            keys.append(hash_key(record, key_fields))
    return ParsedEvents(events, keys)


def hash_key(record: dict[str, Any], names: Sequence[str]) -> str | None:
    """Return the hash of the key fields' values; None if one is missing. Field names are not case-sensitive.

    >>> hash_key({"ID": 7}, ["id"]) == hash_key({"id": "7"}, ["id"]), hash_key({"id": None}, ["id"])
    (True, None)
    """
    key_values = [record.get(name) for name in names]
    if None in key_values:
        lowercased = {name.lower(): value for name, value in record.items()}
        key_values = [lowercased.get(name.lower()) for name in names]
        if None in key_values:
            return None
    return hash_texts(
        "event",
        *(
            key_value if isinstance(key_value, str) else json.dumps(key_value, sort_keys=True)
            for key_value in key_values
        ),
    )


def decompress(body: bytes) -> bytes:
    """Decompress a gzip body."""
    decompressor = zlib.decompressobj(wbits=31)
    try:
        decompressed = decompressor.decompress(body, MAX_BYTES + 1)
    except zlib.error as error:
        raise _malformed_error("the body", f"it is not gzip: {error}") from None
    if len(decompressed) > MAX_BYTES:
        raise too_large_error()
    if not decompressor.eof:
        raise _malformed_error("the body", "it is not complete gzip: it ends too early")
    return decompressed


def too_large_error() -> RunnelError:
    """Return the error for a body that is too large."""
    what = f"the body of a request may have {MAX_BYTES // 2**20} MiB at most, also after decompression"
    return RunnelError("EVENTS_TOO_LARGE", what, fix="send it in parts")


def too_many_error() -> RunnelError:
    """Return the error for a request with too many events."""
    what = f"a request may have {MAX_EVENTS:,} events at most"
    return RunnelError("EVENTS_TOO_LARGE", what, fix="send them in parts")


def _decode_utf8(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise _malformed_error(f"line {line}", f"byte 0x{body[error.start]:02x} is not UTF-8") from None


def _parse_lines(text: str) -> Iterator[NumberedEvent]:
    """Yield the object of each line; empty lines are skipped."""
    number = 0
    for line, raw in enumerate(text.split("\n"), start=1):
        event = raw.strip(_WHITESPACE)
        if not event:
            continue
        number += 1
        location = f"line {line}"
        record, end = _parse_value(event, 0, location)
        if end != len(event):
            raise _malformed_error(location, f"there is more after the object, at position {end + 1}")
        yield number, event.replace("\r", " "), _require_object(record, location)


def _parse_document(text: str) -> Iterator[NumberedEvent]:
    """Yield the single object of a document, or the objects of its array."""
    position = _skip_whitespace(text, 0)
    if text[position : position + 1] != "[":
        record, end = _parse_value(text, position, "the body")
        _refuse_more(text, end)
        yield 1, _join_lines(text[position:end]), _require_object(record, "the body")
        return
    position, number = _skip_whitespace(text, position + 1), 0
    if text[position : position + 1] == "]":
        _refuse_more(text, position + 1)
        return
    while True:
        number += 1
        location = f"element {number}"
        record, end = _parse_value(text, position, location)
        yield number, _join_lines(text[position:end]), _require_object(record, location)
        position = _skip_whitespace(text, end)
        if text[position : position + 1] == "]":
            _refuse_more(text, position + 1)
            return
        if text[position : position + 1] != ",":
            raise _malformed_error(location, "neither a comma nor the end of the array follows it")
        position = _skip_whitespace(text, position + 1)


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE_RUN.match(text, position)
    assert match is not None
    return match.end()


def _refuse_more(text: str, position: int) -> None:
    if _skip_whitespace(text, position) < len(text):
        fix = f"send several events as an array, or one in each line as {LINES_MEDIA_TYPES[0]}"
        raise _malformed_error("the body", f"there is more after its end, at position {position + 1}", fix)


def _join_lines(event: str) -> str:
    """Join an event of several lines into one: JSON allows line ends only between values, where they are blanks."""
    return event.replace("\n", " ").replace("\r", " ") if "\n" in event or "\r" in event else event


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def _parse_value(text: str, position: int, location: str) -> tuple[Any, int]:
    try:
        return _decode(text, position)
    except json.JSONDecodeError as error:
        reason = f"it is not JSON: {error.msg[0].lower()}{error.msg[1:]}, at position {error.pos - position + 1}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error).partition(";")[0]  # a number with too many digits, or NaN
    raise _malformed_error(location, reason) from None


def _require_object(record: Any, location: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise _malformed_error(
            location, f"it is {_JSON_TYPE_NAMES.get(type(record), 'a number')}, and an event is an object"
        )
    return record


def _malformed_error(
    location: str, reason: str, fix: str = "correct it; no event of the request was accepted"
) -> RunnelError:
    return RunnelError("EVENTS_MALFORMED", f"{location} can't be read: {reason}", at=location, fix=fix)
