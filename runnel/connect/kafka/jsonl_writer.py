"""Write JSON messages as lines of files. Line n of a file has its first offset + n - 1: a gap is an empty line."""

import json
from collections.abc import Sequence
from pathlib import Path

from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.kafka.bad_messages import BadMessages
from runnel.connect.kafka.message import KafkaMessage, encode_metadata
from runnel.connect.kafka.offset_range import OffsetRange

_MAX_GAP = 10_000  # a larger gap starts a new file
_MAX_LINE_BYTES = 16_000_000  # the longest line that the JSON reader accepts
_BLANK = b" \t\r\n"


class JsonlMessageWriter:
    """Writes the files of one span, named after `path`. `extra` are metadata of each message that become columns."""

    def __init__(self, span: OffsetRange, path: Path, extra: Sequence[str], bad: BadMessages) -> None:
        self._span = span
        self._path = path
        self._extra = tuple(extra)
        self._bad = bad
        self._parts: list[tuple[Path, int]] = []  # with their first offsets
        self._ends: list[int] = []

    def add_messages(self, messages: Sequence[KafkaMessage]) -> None:
        """Write messages, which follow those of the previous call."""
        values: list[bytes | None] = [message.value() for message in messages]
        first = messages[0].offset()
        if not self._extra and messages[-1].offset() - first + 1 == len(values) and None not in values:
            text = b"\n".join(values)  # type: ignore[arg-type]
            if _is_lines(text, len(values)) and max(map(len, values)) <= _MAX_LINE_BYTES:  # type: ignore[arg-type]
                self._write_lines(first, [text], len(values))
                return
        start = first
        lines: list[bytes] = []
        for message, value in zip(messages, values, strict=True):
            line = self._encode_line(message, value)
            if line is None:
                continue
            offset = message.offset()
            if lines and offset - (start + len(lines)) <= _MAX_GAP:
                lines += [b""] * (offset - (start + len(lines)))
            else:
                self._write_lines(start, lines, len(lines))
                start, lines = offset, []
            lines.append(line)
        self._write_lines(start, lines, len(lines))

    def close(self) -> list[FetchedFile]:
        """Return the files."""
        return [
            FetchedFile(path, self._span.name_part(first, end - 1), "jsonl")
            for (path, first), end in zip(self._parts, self._ends, strict=True)
        ]

    def _write_lines(self, offset: int, lines: list[bytes], count: int) -> None:
        """Write lines of messages from `offset` on, after one empty line for each skipped offset."""
        if not lines:
            return
        gap = offset - self._ends[-1] if self._ends else 0
        if not self._parts or gap > _MAX_GAP:
            self._parts.append((self._path.with_name(f"{self._path.name}-{offset}.jsonl"), offset))
            self._ends.append(offset)
            gap = 0
        with self._parts[-1][0].open("ab") as out:
            out.write(b"\n" * gap)
            out.write(b"\n".join(lines))
            out.write(b"\n")
        self._ends[-1] = offset + count

    def _encode_line(self, message: KafkaMessage, value: bytes | None) -> bytes | None:
        """Return a message as one line; None if it is bad."""
        text = value.strip(_BLANK) if value is not None else b""
        reason = _find_defect(value, text)
        if reason is None and (b"\n" in text or b"\r" in text):
            reason, text = _join_lines(text)
        if reason is not None:
            self._bad.add_message(self._span, message.offset(), value, reason)
            return None
        if not self._extra:
            return text
        metadata = encode_metadata(message, self._extra).encode()
        remaining = text[1:].lstrip(_BLANK)
        return b"".join(
            (b"{", metadata, b"" if remaining[:1] == b"}" else b", ", remaining)
        )  # the first of two equal keys counts


def _is_lines(text: bytes, count: int) -> bool:
    """Tell whether joined values are exactly `count` lines that each begin with a brace."""
    return text.count(b"\n") + 1 == count == text.count(b"\n{") + text.startswith(b"{") and b"\r" not in text


def _find_defect(value: bytes | None, text: bytes) -> str | None:
    if value is None:
        return "it has no value: it is a tombstone"
    if not text:
        return "it is empty"
    if len(text) > _MAX_LINE_BYTES:
        return f'it has {len(text):,} bytes, and a row of JSON at most {_MAX_LINE_BYTES:,}; format="raw" reads it'
    if text[:1] != b"{":
        return _find_json_error(text) or "it is no object"
    return None


def _join_lines(text: bytes) -> tuple[str | None, bytes]:
    """Join JSON of several lines: a line end between values is a blank, inside a value it can't occur."""
    reason = _find_json_error(text)
    return reason, text if reason else text.replace(b"\r", b" ").replace(b"\n", b" ")


def _find_json_error(text: bytes) -> str | None:
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        return f"byte 0x{text[error.start]:02x} at position {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg[0].lower()}{error.msg[1:]} at position {error.pos}"
    except RecursionError:
        return "it is nested too deeply"
    return None
