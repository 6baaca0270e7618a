"""Records of CSV as Python sees them: the header, and where each row stands. DuckDB reads the values.

Agrees with DuckDB about where a record ends: quotes, escapes, comments, lines that are skipped.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.files.scratch_files import is_utf8, opened


@dataclass(frozen=True)
class Record:
    """A record: its values, its first and last line, and its text with the end of the last."""

    values: list[str]
    line: int
    last: int
    text: str


class _Lines:
    """The lines of a file, with those kept that belong to the record at hand. Comments count only between records."""

    def __init__(self, lines: Iterable[str], options: CsvOptions) -> None:
        self._lines = iter(lines)
        self._comment = options.comment
        self.number = 0
        self.kept: list[str] = []
        for _ in range(options.skip):
            self.number += next(self._lines, None) is not None

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        while self._comment and not self.kept and line.startswith(self._comment):
            line = next(self._lines)
            self.number += 1
        self.kept.append(line)
        return line


def delimiter_of(file: File, options: CsvOptions) -> str:
    """Return what separates values: a tab in `.tsv`."""
    return options.delimiter or ("\t" if file.ending == ".tsv" else ",")


def records(file: File, options: CsvOptions) -> Iterator[Record]:
    """Yield the records of a file, header and empty lines too; raises csv.Error where there is none."""
    delimiter = delimiter_of(file, options)
    escape = options.escape if options.escape not in (None, options.quote) else None
    with _text(file, options) as stream:
        lines = _Lines(stream, options)
        if escape or len(delimiter) > 1:
            values = _split(lines, delimiter, options.quote, escape or options.quote)
        elif options.quote:
            values = csv.reader(lines, delimiter=delimiter, quotechar=options.quote)
        else:
            values = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        for found in values:
            yield Record(found, lines.number - len(lines.kept) + 1, lines.number, "".join(lines.kept))
            lines.kept.clear()


def _text(file: File, options: CsvOptions) -> io.TextIOWrapper:
    encoding = "utf-8-sig" if is_utf8(options.encoding, file) else options.encoding
    return io.TextIOWrapper(opened(file), encoding=encoding, errors="surrogateescape", newline="")


def _split(lines: Iterable[str], delimiter: str, quote: str, escape: str) -> Iterator[list[str]]:
    """Yield records as csv.reader does, for what it can't: delimiters of several characters, escapes in quotes only."""
    values: list[str] = []
    value: list[str] = []
    inside = False
    for line in lines:
        text = line if inside else line.rstrip("\r\n")
        at = 0
        while at < len(text):
            if inside and escape and text[at] == escape and text[at + 1 : at + 2] in (quote, escape):
                value.append(text[at + 1])
                at += 2
            elif quote and text[at] == quote and (inside or not value):
                inside = not inside
                if not inside:
                    text = text.rstrip("\r\n")
                at += 1
            elif not inside and text.startswith(delimiter, at):
                values.append("".join(value))
                value = []
                at += len(delimiter)
            else:
                value.append(text[at])
                at += 1
        if not inside:
            if text or values:
                values.append("".join(value))
            yield values
            values, value = [], []
    if inside:
        yield [*values, "".join(value)]
