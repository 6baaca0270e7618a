"""Read CSV records in Python, for the header and the line of each row. DuckDB reads the values.

Agrees with DuckDB about where a record ends: quotes, escapes, comments and skipped lines.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.files.scratch_files import is_utf8, open_file


@dataclass(frozen=True)
class CsvRecord:
    """A CSV record: its values, its first and last line, and its text including the final line ending."""

    values: list[str]
    line: int
    last_line: int
    text: str


class _RecordLines:
    """Iterates over lines and collects those of the current record. Comments are recognized only between records."""

    def __init__(self, lines: Iterable[str], options: CsvOptions) -> None:
        self._lines = iter(lines)
        self._comment = options.comment
        self.number = 0
        self.record_lines: list[str] = []
        for _ in range(options.skip):
            self.number += next(self._lines, None) is not None

    def __iter__(self) -> "_RecordLines":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        while self._comment and not self.record_lines and line.startswith(self._comment):
            line = next(self._lines)
            self.number += 1
        self.record_lines.append(line)
        return line


def choose_delimiter(file: LocalFile, options: CsvOptions) -> str:
    """Return the delimiter: the option, else a tab for `.tsv` and a comma for others."""
    return options.delimiter or ("\t" if file.extension == ".tsv" else ",")


def read_records(file: LocalFile, options: CsvOptions) -> Iterator[CsvRecord]:
    """Yield the records of a file, including header and empty lines; raises csv.Error if a record is malformed."""
    delimiter = choose_delimiter(file, options)
    escape = options.escape if options.escape not in (None, options.quote) else None
    with _open_text(file, options) as stream:
        lines = _RecordLines(stream, options)
        if escape or len(delimiter) > 1:
            field_lists = _split_records(lines, delimiter, options.quote, escape or options.quote)
        elif options.quote:
            field_lists = csv.reader(lines, delimiter=delimiter, quotechar=options.quote)
        else:
            field_lists = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        for fields in field_lists:
            yield CsvRecord(
                fields, lines.number - len(lines.record_lines) + 1, lines.number, "".join(lines.record_lines)
            )
            lines.record_lines.clear()


def _open_text(file: LocalFile, options: CsvOptions) -> io.TextIOWrapper:
    encoding = "utf-8-sig" if is_utf8(options.encoding, file) else options.encoding
    return io.TextIOWrapper(open_file(file), encoding=encoding, errors="surrogateescape", newline="")


def _split_records(lines: Iterable[str], delimiter: str, quote: str, escape: str) -> Iterator[list[str]]:
    """Yield records like csv.reader, with what it lacks: delimiters of several characters, escapes in quotes only."""
    values: list[str] = []
    value: list[str] = []
    in_quotes = False
    for line in lines:
        text = line if in_quotes else line.rstrip("\r\n")
        index = 0
        while index < len(text):
            if in_quotes and escape and text[index] == escape and text[index + 1 : index + 2] in (quote, escape):
                value.append(text[index + 1])
                index += 2
            elif quote and text[index] == quote and (in_quotes or not value):
                in_quotes = not in_quotes
                if not in_quotes:
                    text = text.rstrip("\r\n")
                index += 1
            elif not in_quotes and text.startswith(delimiter, index):
                values.append("".join(value))
                value = []
                index += len(delimiter)
            else:
                value.append(text[index])
                index += 1
        if not in_quotes:
            if text or values:
                values.append("".join(value))
            yield values
            values, value = [], []
    if in_quotes:
        yield [*values, "".join(value)]
