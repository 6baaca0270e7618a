"""Parse a response as JSON or NDJSON, and find its records. Numbers keep all their digits."""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runnel.connect.http.authentication import ApiAccess
from runnel.connect.http.client import MAX_BODY_BYTES, ApiResponse
from runnel.errors import Mistake, RunnelError, close_hint, find_nearest, join_names
from runnel.names import quote_value

_NDJSON_TYPES = ("ndjson", "jsonl", "jsonlines", "json-seq", "x-json-stream", "stream+json")
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.I)
_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")
_MAX_DEPTH = 3
_SAFE_DIGITS, _SAFE_INTEGER_DIGITS = 16, 18  # every number of at most this many characters fits a double, or 64 bits
_PARSE_ERRORS = (ValueError, ArithmeticError, RecursionError)  # not JSON; or numbers too large, or nested too deeply


@dataclass(frozen=True)
class InvalidLine:
    """A line that is not JSON; it is treated as a bad row."""

    text: str


@dataclass(frozen=True)
class NdjsonDocument:
    """A response in NDJSON."""

    records: tuple[Any, ...]


class ResponseReader:
    """Reads the responses of one API."""

    def __init__(self, access: ApiAccess, at: str) -> None:
        """`at` is the place in the user's file that declares the API."""
        self._access = access
        self._at = at

    def read_document(self, response: ApiResponse) -> Any:
        """Return the content of a response: any JSON value, or a NdjsonDocument."""
        text = self._decode_body(response)
        content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.status == 204:
            return NdjsonDocument(())
        if any(subtype in content_type for subtype in _NDJSON_TYPES):
            return self._parse_lines(text, response, content_type)
        try:
            return _parse_json(text)
        except _PARSE_ERRORS as error:
            reason = getattr(error, "msg", "")
            if reason == "Extra data" and "\n" in text.strip():
                return self._parse_lines(text, response, content_type)
        raise self._not_json_error(
            text, response, content_type, f"{reason[0].lower()}{reason[1:]}" if reason else "it is too large"
        )

    def find_records(self, document: Any, path: str | None) -> list[Any]:
        """Return the records at a path; null means no records."""
        if isinstance(document, NdjsonDocument):
            if path is not None and document.records:
                what = f"{self._access.display_url} answers NDJSON, in which there is no `{path}`"
                raise Mistake("HTTP_RECORDS", what, at=self._at, fix="leave `records` out")
            return list(document.records)
        value = document if path is None else self._find_value(document, path)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._not_a_list_error(document, value, path)
        row = next((record for record in value if isinstance(record, list)), None)
        if row is not None:
            what = (
                f"a record of {self._access.display_url} is a list, "
                f"{self._quote_excerpt(row)}: its values have no names"
            )
            raise Mistake("HTTP_RECORDS", what, at=self._at, fix="write a source of your own: @rn.source(...)")
        return value

    def _find_value(self, document: Any, path: str) -> Any:
        exists, value = find_path(document, path)
        if exists:
            return value
        fix = _suggest_records_path(document) or "look at its answer, and name the path of the records"
        what = f"an answer of {self._access.display_url} has no `{path}`; {self.describe_keys(document, path)}"
        raise Mistake("HTTP_RECORDS", what, at=self._at, fix=fix)

    def describe_keys(self, document: Any, path: str) -> str:
        """Return a phrase that lists the keys of a document, and the one closest to `path`."""
        if not isinstance(document, dict):
            return f"it is {_describe_json_type(document)}"
        paths = [key_path for key_path, _ in _walk_paths(document)]
        close = find_nearest(path, paths) or find_nearest(path.rpartition(".")[2], paths)
        text = f"its keys: {join_names(document, 12)}" if document else "it is an empty object"
        return self._access.hide_secrets(text + close_hint(close))

    def _not_a_list_error(self, document: Any, value: Any, path: str | None) -> Mistake:
        subject = (
            f"`{path}` in an answer of {self._access.display_url}"
            if path
            else f"an answer of {self._access.display_url}"
        )
        what = f"{subject} is {_describe_json_type(value)}, not a list of records"
        if isinstance(value, dict):
            noun = "objects" if value and all(isinstance(item, dict) for item in value.values()) else "values"
            what += f"; it has {noun} at {join_names(value, 12)}" if value else ""
        fix = _suggest_records_path(document) or "write a source of your own: @rn.source(...)"
        return Mistake("HTTP_RECORDS", self._access.hide_secrets(what), at=self._at, fix=fix)

    def _decode_body(self, response: ApiResponse) -> str:
        body = _decompress(response.body)
        match = _CHARSET.search(response.headers.get("Content-Type", ""))
        charset = match[1].lower() if match else json.detect_encoding(body)
        try:
            return body.decode("utf-8-sig" if charset in _UTF8 else charset)
        except LookupError:
            reason = f"its charset {quote_value(charset)} is unknown"
        except UnicodeDecodeError as error:
            reason = f"byte 0x{body[error.start]:02x} at position {error.start} is not {charset}"
        what = f"an answer of {self._access.display_url} can't be read: {reason}"
        raise RunnelError("HTTP_ENCODING", what, at=self._at, fix="the API must send the charset that it declares")

    def _parse_lines(self, text: str, response: ApiResponse, content_type: str) -> NdjsonDocument:
        records: list[Any] = []
        for line in filter(None, (entry.strip() for entry in text.split("\n"))):
            try:
                records.append(_parse_json(line))
            except _PARSE_ERRORS:
                records.append(InvalidLine(line))
        if records and all(isinstance(entry, InvalidLine) for entry in records):
            raise self._not_json_error(text, response, content_type, "none of its lines is JSON")
        return NdjsonDocument(tuple(records))

    def _not_json_error(self, text: str, response: ApiResponse, content_type: str, reason: str) -> RunnelError:
        what = (
            f"{self._access.redact_url(response.url)} answers {content_type or 'something'} that is not JSON ({reason})"
        )
        excerpt = f"starts with {self._quote_excerpt(text.strip())}" if text.strip() else "is empty"
        fix = "ask for JSON with headers or params, or correct the address"
        return RunnelError("HTTP_NOT_JSON", f"{what}; it {excerpt}", at=self._at, fix=fix)

    def _quote_excerpt(self, value: Any) -> str:
        return quote_value(self._access.hide_secrets(str(value)[:2000]), 80)


def find_path(document: Any, path: str) -> tuple[bool, Any]:
    """Return whether a path exists in a document, and its value. A key may itself contain dots.

    >>> find_path({"data": {"items": [1]}}, "data.items"), find_path({"@odata.next": "x"}, "@odata.next")
    ((True, [1]), (True, 'x'))
    >>> find_path([], "data")
    (False, None)
    """
    if isinstance(document, list) and path.partition(".")[0].isdigit():
        index, _, remaining_path = path.partition(".")
        if int(index) >= len(document):
            return False, None
        return find_path(document[int(index)], remaining_path) if remaining_path else (True, document[int(index)])
    if not isinstance(document, dict):
        return False, None
    if path in document:
        return True, document[path]
    for dot in (position for position, letter in enumerate(path) if letter == "."):
        if path[:dot] in document:
            exists, value = find_path(document[path[:dot]], path[dot + 1 :])
            if exists:
                return True, value
    return False, None


def _walk_paths(document: Any, prefix: str = "", depth: int = _MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the paths of an object with their values, down to `depth` levels."""
    if isinstance(document, dict) and depth:
        for name, value in document.items():
            yield prefix + name, value
            yield from _walk_paths(value, f"{prefix}{name}.", depth - 1)


def _suggest_records_path(document: Any) -> str | None:
    """Return a fix that names the paths at which lists are."""
    if isinstance(document, list):
        return "leave `records` out: the answer itself is the list"
    lists = [path for path, value in _walk_paths(document) if isinstance(value, list)]
    return " or ".join(f'records="{path}"' for path in lists[:3]) or None


def _describe_json_type(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _parse_json(text: str) -> Any:
    return json.loads(text, parse_float=_parse_fraction, parse_int=_parse_integer)


def _parse_fraction(text: str) -> float | Decimal:
    """Return a number as a float if that keeps all its digits, else as a decimal."""
    as_float = float(text)
    if len(text) <= _SAFE_DIGITS and "e" not in text and "E" not in text:
        return as_float
    as_decimal = Decimal(text)
    return as_float if Decimal(repr(as_float)) == as_decimal else as_decimal


def _parse_integer(text: str) -> int | Decimal:
    """Return an integer if it fits 64 bits, else a decimal."""
    return int(text) if len(text) <= _SAFE_INTEGER_DIGITS else Decimal(text)


def _decompress(body: bytes) -> bytes:
    """Return a body, decompressed if it is gzip; some APIs send gzip files without a Content-Encoding."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompressobj(wbits=31).decompress(body, MAX_BODY_BYTES)
    except zlib.error:
        return body
