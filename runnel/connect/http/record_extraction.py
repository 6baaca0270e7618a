"""Read an answer: JSON or NDJSON, and where its records stand. A number keeps all its digits."""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runnel.connect.http.authentication import Access
from runnel.connect.http.client import MOST_BYTES, Answer
from runnel.errors import Mistake, RunnelError, listed, nearest
from runnel.names import shown

_LINES = ("ndjson", "jsonl", "jsonlines", "json-seq", "x-json-stream", "stream+json")
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.I)
_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")
_DEEP = 3
_SURE_DIGITS, _SURE_WHOLE = 16, 18  # of this length every number fits a double, or 64 bits
_UNREADABLE = (ValueError, ArithmeticError, RecursionError)  # not JSON; or of numbers or depths that nothing holds


@dataclass(frozen=True)
class Broken:
    """A line that is not JSON; it goes the way of bad rows."""

    text: str


@dataclass(frozen=True)
class Lines:
    """An answer that is NDJSON."""

    records: tuple[Any, ...]


class Reading:
    """Reads the answers of one API."""

    def __init__(self, access: Access, at: str) -> None:
        """`at` is where the API is declared."""
        self._access = access
        self._at = at

    def document(self, answer: Answer) -> Any:
        """Return what an answer holds: any JSON, or Lines."""
        text = self._text(answer)
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if answer.status == 204:
            return Lines(())
        if any(word in kind for word in _LINES):
            return self._lines(text, answer, kind)
        try:
            return _parsed(text)
        except _UNREADABLE as error:
            why = getattr(error, "msg", "")
            if why == "Extra data" and "\n" in text.strip():
                return self._lines(text, answer, kind)
        raise self._no_json(text, answer, kind, f"{why[0].lower()}{why[1:]}" if why else "no memory holds it")

    def records(self, document: Any, path: str | None) -> list[Any]:
        """Return the records that stand at a path; null is none."""
        if isinstance(document, Lines):
            if path is not None and document.records:
                what = f"{self._access.told} answers NDJSON, in which there is no `{path}`"
                raise Mistake("HTTP_RECORDS", what, at=self._at, fix="leave `records` out")
            return list(document.records)
        value = document if path is None else self._value(document, path)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._no_list(document, value, path)
        row = next((one for one in value if isinstance(one, list)), None)
        if row is not None:
            what = f"a record of {self._access.told} is a list, {self._shown(row)}: its values have no names"
            raise Mistake("HTTP_RECORDS", what, at=self._at, fix="write a source of your own: @rn.source(...)")
        return value

    def _value(self, document: Any, path: str) -> Any:
        is_there, value = look(document, path)
        if is_there:
            return value
        fix = _places(document) or "see what it answers, and say where the records stand"
        what = f"an answer of {self._access.told} has no `{path}`; {self.keys(document, path)}"
        raise Mistake("HTTP_RECORDS", what, at=self._at, fix=fix)

    def keys(self, document: Any, path: str) -> str:
        """Return the phrase that tells which keys there are, and which was meant."""
        if not isinstance(document, dict):
            return f"it is {_kind(document)}"
        paths = [place for place, _ in _all(document)]
        close = nearest(path, paths) or nearest(path.rpartition(".")[2], paths)
        told = f"its keys: {listed(document, 12)}" if document else "it is an empty object"
        return self._access.hide(told + (f"; close: `{close}`" if close else ""))

    def _no_list(self, document: Any, value: Any, path: str | None) -> Mistake:
        where = f"`{path}` in an answer of {self._access.told}" if path else f"an answer of {self._access.told}"
        what = f"{where} is {_kind(value)}, not a list of records"
        if isinstance(value, dict):
            of = "objects" if value and all(isinstance(one, dict) for one in value.values()) else "values"
            what += f"; it has {of} at {listed(value, 12)}" if value else ""
        fix = _places(document) or "write a source of your own: @rn.source(...)"
        return Mistake("HTTP_RECORDS", self._access.hide(what), at=self._at, fix=fix)

    def _text(self, answer: Answer) -> str:
        body = _unpacked(answer.body)
        found = _CHARSET.search(answer.headers.get("Content-Type", ""))
        charset = found[1].lower() if found else json.detect_encoding(body)
        try:
            return body.decode("utf-8-sig" if charset in _UTF8 else charset)
        except LookupError:
            why = f"it says that it is {shown(charset)}, which nobody knows"
        except UnicodeDecodeError as error:
            why = f"byte 0x{body[error.start]:02x} at position {error.start} is not {charset}"
        what = f"an answer of {self._access.told} can't be read: {why}"
        raise RunnelError("HTTP_ENCODING", what, at=self._at, fix="the API must send what it says that it sends")

    def _lines(self, text: str, answer: Answer, kind: str) -> Lines:
        found: list[Any] = []
        for line in filter(None, (one.strip() for one in text.split("\n"))):
            try:
                found.append(_parsed(line))
            except _UNREADABLE:
                found.append(Broken(line))
        if found and all(isinstance(one, Broken) for one in found):
            raise self._no_json(text, answer, kind, "none of its lines is")
        return Lines(tuple(found))

    def _no_json(self, text: str, answer: Answer, kind: str, why: str) -> RunnelError:
        what = f"{self._access.shown(answer.url)} answers {kind or 'something'} that is not JSON ({why})"
        start = f"starts with {self._shown(text.strip())}" if text.strip() else "is empty"
        fix = "ask for JSON with headers or params, or correct the address"
        return RunnelError("HTTP_NOT_JSON", f"{what}; it {start}", at=self._at, fix=fix)

    def _shown(self, value: Any) -> str:
        return shown(self._access.hide(str(value)[:2000]), 80)


def look(document: Any, path: str) -> tuple[bool, Any]:
    """Return whether there is something at a path, and what. A key may itself have dots.

    >>> look({"data": {"items": [1]}}, "data.items"), look({"@odata.next": "x"}, "@odata.next"), look([], "data")
    ((True, [1]), (True, 'x'), (False, None))
    """
    if isinstance(document, list) and path.partition(".")[0].isdigit():
        head, _, rest = path.partition(".")
        if int(head) >= len(document):
            return False, None
        return look(document[int(head)], rest) if rest else (True, document[int(head)])
    if not isinstance(document, dict):
        return False, None
    if path in document:
        return True, document[path]
    for dot in (at for at, letter in enumerate(path) if letter == "."):
        if path[:dot] in document:
            is_there, found = look(document[path[:dot]], path[dot + 1 :])
            if is_there:
                return True, found
    return False, None


def _all(document: Any, before: str = "", deep: int = _DEEP) -> Iterator[tuple[str, Any]]:
    """Yield the paths of an object and what stands there."""
    if isinstance(document, dict) and deep:
        for name, value in document.items():
            yield before + name, value
            yield from _all(value, f"{before}{name}.", deep - 1)


def _places(document: Any) -> str | None:
    """Return the fix that names where lists stand."""
    if isinstance(document, list):
        return "leave `records` out: the answer itself is the list"
    lists = [place for place, value in _all(document) if isinstance(value, list)]
    return " or ".join(f'records="{place}"' for place in lists[:3]) or None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _parsed(text: str) -> Any:
    return json.loads(text, parse_float=_exact, parse_int=_whole)


def _exact(text: str) -> float | Decimal:
    """Return a number as a float where that has all its digits."""
    short = float(text)
    if len(text) <= _SURE_DIGITS and "e" not in text and "E" not in text:
        return short
    exact = Decimal(text)
    return short if Decimal(repr(short)) == exact else exact


def _whole(text: str) -> int | Decimal:
    """Return a whole number as one of 64 bits where it fits."""
    return int(text) if len(text) <= _SURE_WHOLE else Decimal(text)


def _unpacked(body: bytes) -> bytes:
    """Return a body; some APIs send a file that is packed, and don't say so."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompressobj(wbits=31).decompress(body, MOST_BYTES)
    except zlib.error:
        return body
