"""Read CSV records in Python, for the header and the line of each row. DuckDB reads the values.

Agrees with DuckDB about where a record ends: quotes, escapes, comments and skipped lines.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from runnel.connect.files.csv_text.csv_rejects import LineShifts
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.files.scratch_files import ScratchFiles, is_utf8, open_file


@dataclass(frozen=True)
class CsvRecord:
    """A CSV record: its values, its first and last line, and its text including the final line ending."""

    values: list[str]
    line: int
    last_line: int
    text: str


class _RecordLines:
    """Iterates over lines and collects those of the current record. Comments are recognized only between records."""

    def __init__(self, lines: Iterable[str], options: CsvOptions, skip: int) -> None:
        self._lines = iter(lines)
        self._comment = options.comment
        self.number = 0
        self.record_lines: list[str] = []
        for _ in range(skip):
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
    """Yield the records of a file, including header and empty lines, but without empty lines before the header.

    Raises csv.Error if a record is malformed.
    """
    delimiter = choose_delimiter(file, options)
    escape = options.escape if options.escape not in (None, options.quote) else None
    with _open_text(file, options) as stream:
        lines = _RecordLines(stream, options, options.skip if file.split is None else 0)
        if escape or len(delimiter) > 1:
            field_lists = _split_records(lines, delimiter, options.quote, escape or options.quote)
        elif options.quote:
            field_lists = csv.reader(lines, delimiter=delimiter, quotechar=options.quote)
        else:
            field_lists = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        is_first = True
        for fields in field_lists:
            if fields or not (is_first and options.header):
                line = lines.number - len(lines.record_lines) + 1
                yield CsvRecord(fields, file.find_line(line), file.find_line(lines.number), "".join(lines.record_lines))
                is_first = False
            lines.record_lines.clear()


def needs_copy(file: LocalFile, options: CsvOptions, header: CsvRecord) -> bool:
    """Tell whether DuckDB can't read a file where it is: it finds comments inside values, too, and skips lines wrongly.

    DuckDB counts the quotes of skipped lines and takes their line endings for those of the file. `header` is the file's
    first record.
    """
    if options.comment:
        return True
    if header.line == 1:
        return False
    if header.line != options.skip + 1:
        return True
    with _open_text(file, options) as stream:
        skipped_lines = list(islice(stream, options.skip))
    quotes = [quote for quote in (options.quote, options.escape) if quote]
    return any(
        any(quote in line for quote in quotes) or find_line_ending(line) != find_line_ending(header.text)
        for line in skipped_lines
    )


def copy_records(file: LocalFile, options: CsvOptions, scratch: ScratchFiles) -> tuple[str, LineShifts]:
    """Return the path of a copy that starts with the header and has no comments, and where its lines were."""
    path = scratch.new_path("file" + file.extension)
    lines, shifts, copied_lines = list[int](), list[int](), 0
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as out:
        for record in read_records(file, options):
            shift = record.line - copied_lines - 1
            if shift != (shifts[-1] if shifts else 0):
                lines.append(copied_lines + 1)
                shifts.append(shift)
            out.write(record.text)
            copied_lines += record.last_line - record.line + 1
    scratch.files_by_path[str(path)] = file
    return str(path), LineShifts(tuple(lines), tuple(shifts))


def find_value_with_line_end(file: LocalFile, options: CsvOptions) -> int | None:
    """Return the line of the first record that ends on a later line, or of a malformed one; None if there is none."""
    line = 1 + (options.skip if file.split is None else 0)
    try:
        for record in read_records(file, options):
            if record.last_line > record.line:
                return record.line
            line = record.last_line + 1
    except csv.Error:  # an open quote makes the rest of the file one value, which is too long
        return line
    return None


def find_line_ending(line: str) -> str:
    r"""Return how a line ends: with \\r\\n, \\n or \\r; empty for the last line of a file."""
    return "\r\n" if line.endswith("\r\n") else line[-1:] if line[-1:] in ("\n", "\r") else ""


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
