"""Find the lines of a byte range of a large file, and count them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

CHUNK = 4 << 20
_LONGEST_LINE = 16 << 20  # beyond it, a file is read as a whole


class NotSplittable(Exception):
    """A file that can't be read in splits; it is read as a whole, which also tells what is wrong with it."""


@dataclass(frozen=True)
class LineSpan:
    """The whole lines of a range, from the byte `begin` up to `end`; they may be none."""

    begin: int
    end: int


@dataclass(frozen=True)
class LineCounts:
    """How many lines end in some bytes; `returns` end with a carriage return, too, and `lone` are returns only."""

    lines: int = 0
    returns: int = 0
    lone: int = 0

    def __add__(self, other: "LineCounts") -> "LineCounts":
        """Return the counts of both."""
        return LineCounts(self.lines + other.lines, self.returns + other.returns, self.lone + other.lone)


def find_lines(stream: IO[bytes], start: int, end: int, size: int) -> LineSpan:
    """Return the lines that begin after `start` up to `end`; for `start` 0, also the line that begins there."""
    begin = _find_line_start(stream, start, size) if start else 0
    return LineSpan(begin, size if end >= size else max(begin, _find_line_start(stream, end, size)))


def _find_line_start(stream: IO[bytes], position: int, size: int) -> int:
    """Return where the line after the one at a position starts."""
    stream.seek(position)
    searched = 0
    while searched < _LONGEST_LINE:
        chunk = stream.read(1 << 16)
        if not chunk:
            return size
        index = chunk.find(b"\n")
        if index >= 0:
            return position + searched + index + 1
        searched += len(chunk)
    raise NotSplittable


def read_chunks(stream: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    """Yield some bytes of a file in chunks."""
    stream.seek(begin)
    remaining = end - begin
    while remaining > 0:
        chunk = stream.read(min(CHUNK, remaining))
        if not chunk:  # the file became shorter
            raise NotSplittable
        remaining -= len(chunk)
        yield chunk


def count_lines(chunks: Iterable[bytes]) -> LineCounts:
    r"""Count the lines of a text in chunks.

    >>> count_lines([b"a\r\nb\r", b"\n\r", b"c\n"])
    LineCounts(lines=3, returns=2, lone=1)
    """
    counts, is_after_return = LineCounts(), False
    for chunk in chunks:
        counts += _count_in_chunk(chunk, is_after_return=is_after_return)
        is_after_return = chunk.endswith(b"\r")
    return counts + LineCounts(lone=1) if is_after_return else counts


def _count_in_chunk(chunk: bytes, *, is_after_return: bool) -> LineCounts:
    """Count the line ends of a chunk; a carriage return at its end is counted with the next chunk."""
    continues = is_after_return and chunk.startswith(b"\n")
    pairs = chunk.count(b"\r\n")
    lone = chunk.count(b"\r") - pairs - chunk.endswith(b"\r") + (is_after_return and not continues)
    return LineCounts(chunk.count(b"\n"), pairs + continues, lone)
