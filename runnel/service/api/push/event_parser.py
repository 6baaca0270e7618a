"""Read the events of a request: one JSON object, an array of them, or one in each line. Pure.

All or nothing: what is wrong with one of them is told, with its place, and none is taken. An event stays as it was
written, but for the ends of lines in it, so that no digit of a number is lost.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.errors import RunnelError
from runnel.lake.flow_state.inbox_writer import digest

MOST_BYTES = 8 * 2**20
MOST_EVENTS = 100_000
JSON = "application/json"
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_BLANK = " \t\r\n"
_GAP = re.compile(r"[ \t\r\n]*")
_KINDS = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
Placed = tuple[int, str, dict[str, Any]]


@dataclass(frozen=True)
class Read:
    """Events as text, each without a line's end, and the hashes by which they are known; none where by nothing."""

    events: list[str]
    keys: list[str | None]


def read(body: bytes, kind: str, key: Sequence[str] = ()) -> Read:
    """Return the events of a body of a media type; `key` are the fields by which an event is known."""
    text = _decoded(body)
    found = _lines(text) if kind in LINES else _values(text)
    events: list[str] = []
    keys: list[str | None] = []
    for number, event, record in found:
        if number > MOST_EVENTS:
            raise too_many()
        events.append(event)
        if key:
            keys.append(key_of(record, key))
    return Read(events, keys)


def key_of(record: dict[str, Any], names: Sequence[str]) -> str | None:
    """Return the hash of the values of some fields, whatever the case of their names; None where one is missing.

    >>> key_of({"ID": 7}, ["id"]) == key_of({"id": "7"}, ["id"]), key_of({"id": None}, ["id"])
    (True, None)
    """
    found = [record.get(name) for name in names]
    if None in found:
        lower = {name.lower(): value for name, value in record.items()}
        found = [lower.get(name.lower()) for name in names]
        if None in found:
            return None
    return digest("event", *(one if isinstance(one, str) else json.dumps(one, sort_keys=True) for one in found))


def unpacked(body: bytes) -> bytes:
    """Return what was packed by gzip."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(body, MOST_BYTES + 1)
    except zlib.error as error:
        raise _malformed("the body", f"it is not gzip: {error}") from None
    if len(found) > MOST_BYTES:
        raise too_large()
    if not unpacking.eof:
        raise _malformed("the body", "it is not gzip: it ends in the middle")
    return found


def too_large() -> RunnelError:
    """Return that a body is larger than it may be."""
    what = f"the body of a request may have {MOST_BYTES // 2**20} MiB at most, also unpacked"
    return RunnelError("EVENTS_TOO_LARGE", what, fix="send it in parts")


def too_many() -> RunnelError:
    """Return that there are more events than there may be."""
    what = f"a request may have {MOST_EVENTS:,} events at most"
    return RunnelError("EVENTS_TOO_LARGE", what, fix="send them in parts")


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise _malformed(f"line {line}", f"byte 0x{body[error.start]:02x} is not UTF-8") from None


def _lines(text: str) -> Iterator[Placed]:
    """Yield the objects of lines; empty lines are none."""
    number = 0
    for line, raw in enumerate(text.split("\n"), start=1):
        event = raw.strip(_BLANK)
        if not event:
            continue
        number += 1
        place = f"line {line}"
        record, end = _parsed(event, 0, place)
        if end != len(event):
            raise _malformed(place, f"there is more after the object, at position {end + 1}")
        yield number, event.replace("\r", " "), _object(record, place)


def _values(text: str) -> Iterator[Placed]:
    """Yield the one object of a document, or those of its array."""
    at = _after_gap(text, 0)
    if text[at : at + 1] != "[":
        record, end = _parsed(text, at, "the body")
        _refuse_more(text, end)
        yield 1, _joined(text[at:end]), _object(record, "the body")
        return
    at, number = _after_gap(text, at + 1), 0
    if text[at : at + 1] == "]":
        _refuse_more(text, at + 1)
        return
    while True:
        number += 1
        place = f"element {number}"
        record, end = _parsed(text, at, place)
        yield number, _joined(text[at:end]), _object(record, place)
        at = _after_gap(text, end)
        if text[at : at + 1] == "]":
            _refuse_more(text, at + 1)
            return
        if text[at : at + 1] != ",":
            raise _malformed(place, "neither a comma nor the end of the array follows it")
        at = _after_gap(text, at + 1)


def _after_gap(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    assert found is not None
    return found.end()


def _refuse_more(text: str, at: int) -> None:
    if _after_gap(text, at) < len(text):
        fix = f"send several events as an array, or one in each line as {LINES[0]}"
        raise _malformed("the body", f"there is more after its end, at position {at + 1}", fix)


def _joined(event: str) -> str:
    """Return an event of several lines as one: between values a line's end is a blank, and inside it can't be."""
    return event.replace("\n", " ").replace("\r", " ") if "\n" in event or "\r" in event else event


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def _parsed(text: str, at: int, place: str) -> tuple[Any, int]:
    try:
        return _decode(text, at)
    except json.JSONDecodeError as error:
        why = f"it is not JSON: {error.msg[0].lower()}{error.msg[1:]}, at position {error.pos - at + 1}"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error).partition(";")[0]  # a number of more digits than anybody needs, or NaN
    raise _malformed(place, why) from None


def _object(record: Any, place: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise _malformed(place, f"it is {_KINDS.get(type(record), 'a number')}, and an event is an object")
    return record


def _malformed(place: str, why: str, fix: str = "correct it; nothing of the request was taken") -> RunnelError:
    return RunnelError("EVENTS_MALFORMED", f"{place} can't be read: {why}", at=place, fix=fix)
