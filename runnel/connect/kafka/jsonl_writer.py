"""Messages of JSON as lines of a file. Line n of a part is the offset n - 1 after its first: a gap is an empty line."""

import json
from collections.abc import Sequence
from pathlib import Path

from runnel.connect.feed.protocol import Part
from runnel.connect.kafka.bad_messages import Bad
from runnel.connect.kafka.message import Message, said
from runnel.connect.kafka.offset_range import Span

_MOST_BLANK = 10_000  # a greater gap starts a part of its own
_LARGEST = 16_000_000  # what is read after this as one line
_BLANK = b" \t\r\n"


class Lines:
    """The files of one span, named after `path`. `extra` are what else each message says, as columns."""

    def __init__(self, span: Span, path: Path, extra: Sequence[str], bad: Bad) -> None:
        self._span = span
        self._path = path
        self._extra = tuple(extra)
        self._bad = bad
        self._parts: list[tuple[Path, int]] = []  # with their first offsets
        self._ends: list[int] = []

    def take(self, messages: Sequence[Message]) -> None:
        """Write messages, which come after those before."""
        values: list[bytes | None] = [message.value() for message in messages]
        first = messages[0].offset()
        if not self._extra and messages[-1].offset() - first + 1 == len(values) and None not in values:
            text = b"\n".join(values)  # type: ignore[arg-type]
            if _is_lines(text, len(values)) and max(map(len, values)) <= _LARGEST:  # type: ignore[arg-type]
                self._write(first, [text], len(values))
                return
        start = first
        lines: list[bytes] = []
        for message, value in zip(messages, values, strict=True):
            line = self._line(message, value)
            if line is None:
                continue
            offset = message.offset()
            if lines and offset - (start + len(lines)) <= _MOST_BLANK:
                lines += [b""] * (offset - (start + len(lines)))
            else:
                self._write(start, lines, len(lines))
                start, lines = offset, []
            lines.append(line)
        self._write(start, lines, len(lines))

    def close(self) -> list[Part]:
        """Return the files."""
        return [
            Part(path, self._span.named(first, end - 1), "jsonl")
            for (path, first), end in zip(self._parts, self._ends, strict=True)
        ]

    def _write(self, offset: int, lines: list[bytes], count: int) -> None:
        """Write lines of messages from `offset` on, after as many empty ones as offsets were left out."""
        if not lines:
            return
        gap = offset - self._ends[-1] if self._ends else 0
        if not self._parts or gap > _MOST_BLANK:
            self._parts.append((self._path.with_name(f"{self._path.name}-{offset}.jsonl"), offset))
            self._ends.append(offset)
            gap = 0
        with self._parts[-1][0].open("ab") as out:
            out.write(b"\n" * gap)
            out.write(b"\n".join(lines))
            out.write(b"\n")
        self._ends[-1] = offset + count

    def _line(self, message: Message, value: bytes | None) -> bytes | None:
        """Return a message as one line; None where it is bad."""
        text = value.strip(_BLANK) if value is not None else b""
        reason = _wrong(value, text)
        if reason is None and (b"\n" in text or b"\r" in text):
            reason, text = _joined(text)
        if reason is not None:
            self._bad.note(self._span, message.offset(), value, reason)
            return None
        if not self._extra:
            return text
        told = said(message, self._extra).encode()
        rest = text[1:].lstrip(_BLANK)
        return b"".join((b"{", told, b"" if rest[:1] == b"}" else b", ", rest))  # the first of two equal keys counts


def _is_lines(text: bytes, count: int) -> bool:
    """Tell whether joined values are as many lines, each beginning as an object does."""
    return text.count(b"\n") + 1 == count == text.count(b"\n{") + text.startswith(b"{") and b"\r" not in text


def _wrong(value: bytes | None, text: bytes) -> str | None:
    if value is None:
        return "it has no value: it is a tombstone"
    if not text:
        return "it is empty"
    if len(text) > _LARGEST:
        return f'it has {len(text):,} bytes, and a row of JSON at most {_LARGEST:,}; format="raw" reads it'
    if text[:1] != b"{":
        return _why(text) or "it is no object"
    return None


def _joined(text: bytes) -> tuple[str | None, bytes]:
    """Return JSON of several lines as one: between values a line's end is a blank, and inside of them it can't be."""
    reason = _why(text)
    return reason, text if reason else text.replace(b"\r", b" ").replace(b"\n", b" ")


def _why(text: bytes) -> str | None:
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        return f"byte 0x{text[error.start]:02x} at position {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg[0].lower()}{error.msg[1:]} at position {error.pos}"
    except RecursionError:
        return "it is nested too deeply"
    return None
