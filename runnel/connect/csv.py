"""Read CSV with DuckDB: every column as text, rows that are no rows set aside with their line.

The dialect is not guessed: commas (tabs for `.tsv`), double quotes, a header, UTF-8, unless said otherwise.
"""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from runnel.connect.globs import File
from runnel.connect.reader import BadRow, CsvOptions, Incoming, Rejected, checked_names
from runnel.connect.scratch import Scratch, is_utf8, opened
from runnel.connect.text import ANY_TEXT
from runnel.errors import Mistake
from runnel.lake.duckdb_types import exact_path, literal

if TYPE_CHECKING:
    import _csv

    import duckdb

MOST_SHOWN = 20
_REASONS = {
    "UNQUOTED VALUE": "a quote is not closed, or text follows a closing quote",
    "LINE SIZE OVER MAXIMUM": "the line is longer than 2 MB",
}


class CsvReader:
    """CSV files, in groups of equal headers."""

    must_check = True

    def __init__(
        self, con: "duckdb.DuckDBPyConnection", files: Sequence[File], scratch: Scratch, options: CsvOptions
    ) -> None:
        self.con = con
        self.options = options
        self.scratch = scratch
        self._paths = {file: scratch.readable(file, options.encoding) for file in files}
        self.headers = {file: _header(file, options) for file in files}
        names: dict[str, str] = {}  # by lower case, in order of appearance
        for header in self.headers.values():
            for name in header:
                names.setdefault(name.lower(), name)
        self.columns = tuple(
            Incoming(name, f"v{position}", guesses=ANY_TEXT) for position, name in enumerate(names.values())
        )

    def rows(self, file: File | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        groups: dict[tuple[str, ...], list[File]] = {}
        for each, header in self.headers.items():
            if file is None or each == file:
                groups.setdefault((_delimiter(each, self.options), *(name.lower() for name in header)), []).append(each)
        return "\nUNION ALL\n".join(self._select(key[0], key[1:], group) for key, group in groups.items())

    def _select(self, delimiter: str, header: tuple[str, ...], files: Sequence[File]) -> str:
        places = {name: position for position, name in enumerate(header)}
        columns = [
            f"{f'c{places[column.name.lower()]}' if column.name.lower() in places else 'CAST(NULL AS VARCHAR)'}"
            f" AS {column.sql}"
            for column in self.columns
        ]
        paths = ", ".join(exact_path(self._paths[file]) for file in files)
        given = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(header)))
        quote = literal(self.options.quote)
        # Every column is looked at, needed or not, so that the same rows are rejected each time.
        looked = " AND ".join(f"coalesce(length(c{position}), 0) >= 0" for position in range(len(header)))
        return (
            f"SELECT {', '.join(columns)}, filename AS file, CAST(NULL AS VARCHAR) AS broken FROM read_csv([{paths}], "
            f"auto_detect = false, header = {str(self.options.header).lower()}, delim = {literal(delimiter)}, "
            f"quote = {quote}, escape = {quote}, nullstr = {literal(self.options.null)}, allow_quoted_nulls = false, "
            f"columns = {{{given}}}, filename = true, store_rejects = true, rejects_limit = 0) WHERE {looked}"
        )

    def rejected(self, most: int | None = MOST_SHOWN) -> Rejected:
        """Return the rows that DuckDB could not parse in the last query, and forget them; `most` None shows all."""
        if not self.con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchone():
            return Rejected()
        found = "FROM reject_errors JOIN reject_scans USING (scan_id, file_id)"
        counted = self.con.execute(f"SELECT count(*) FROM (SELECT DISTINCT file_path, line {found})").fetchall()
        examples = self.con.execute(
            f"SELECT file_path, line, min(line_byte_position), arg_max(error_type, byte_position), "
            f"arg_min(error_message, column_idx), arg_max(error_message, column_idx), min(csv_line) {found} "
            f"GROUP BY file_path, line ORDER BY file_path, line LIMIT {'ALL' if most is None else most}"
        ).fetchall()
        self.con.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        return Rejected(counted[0][0], tuple(self._bad_row(*example) for example in examples))

    def _bad_row(self, path: str, line: int, position: int, kind: str, first: str, last: str, raw: str) -> BadRow:
        file = self.scratch.files[path]
        message = (
            first if kind == "MISSING COLUMNS" else last
        )  # DuckDB tells of each column that is missing or too many
        if kind in ("MISSING COLUMNS", "TOO MANY COLUMNS"):
            reason = message.replace("Expected Number of Columns: ", "expected ").replace(
                " Found: ", " columns, found "
            )
        elif kind == "INVALID ENCODING":
            reason = _not_utf8(file, position)
        else:
            reason = _REASONS.get(kind, message.splitlines()[0] if message else kind.lower())
        return BadRow(file.name, f"line {line}", None, None, reason, raw)

    def places(self, file: File, rows: Sequence[int]) -> dict[int, str]:
        """Return the lines on which the n-th rows of a file start."""
        wanted, found = set(rows), {}
        width = len(self.headers[file])
        for row, line in enumerate(self._good_lines(file, width), start=1):
            if row in wanted:
                found[row] = f"line {line}"
                if len(found) == len(wanted):
                    break
        return found

    def _good_lines(self, file: File, width: int) -> Iterator[int]:
        """Yield the line of each row that DuckDB takes: of the right width and in the right encoding."""
        with _text(file, self.options) as stream:
            reader = _records(stream, file, self.options)
            before, skip = 0, self.options.header
            for record in reader:
                line, before = before + 1, reader.line_num
                if skip:
                    skip = False
                elif (len(record) == width or (not record and width == 1)) and not any(map(_undecoded, record)):
                    yield line


def check_options(options: CsvOptions) -> None:
    """Refuse a dialect that can't be read."""
    for what, text, least in (("delimiter", options.delimiter, 1), ("quote", options.quote, 0)):
        if text is not None and not least <= len(text) <= 1:
            fix = "use one character; a tab is written $'\\t' in the shell"
            raise Mistake("LOAD_CSV_OPTION", f"the {what} {text!r} is not one character", fix=fix)
    if options.quote and options.quote == options.delimiter:
        raise Mistake("LOAD_CSV_OPTION", "the delimiter and the quote are the same", fix="choose another quote")


def explained(file: File, options: CsvOptions) -> Mistake | None:
    """Return why DuckDB gave up on a file altogether, if its line endings are mixed."""
    with _text(file, options) as stream:
        last = [""]

        def lines() -> Iterator[str]:
            for line in stream:
                last[0] = line
                yield line

        ending: str | None = None
        reader = _records(lines(), file, options)
        for _ in reader:
            here = "\r\n" if last[0].endswith("\r\n") else last[0][-1:]
            if here in ("\r\n", "\n", "\r"):
                if ending not in (None, here):
                    line = reader.line_num
                    what = f"{file.name}, line {line}: it ends with {here!r}, the lines before with {ending!r}"
                    return Mistake("LOAD_CSV", what, at=f"{file.name}:{line}", fix="make all line endings the same")
                ending = here
    return None


def raw_rows(file: File, options: CsvOptions, lines: Collection[int]) -> dict[int, str]:
    """Return the text of the rows that start on these lines, without the end of the last line."""
    found: dict[int, str] = {}
    with _text(file, options) as stream:
        texts: list[str] = []

        def kept() -> Iterator[str]:
            for text in stream:
                texts.append(text)
                yield text

        start = 1
        reader = _records(kept(), file, options)
        for _ in reader:
            if start in lines:
                found[start] = "".join(texts).rstrip("\r\n")
            texts.clear()
            start = reader.line_num + 1
    return {line: text.encode(errors="surrogateescape").decode(errors="replace") for line, text in found.items()}


def _header(file: File, options: CsvOptions) -> tuple[str, ...]:
    with _text(file, options) as stream:
        try:
            first = next(_records(stream, file, options), None)
        except csv.Error as error:
            fix = "is it CSV? name the format with --format, or the delimiter and quote"
            raise Mistake("LOAD_CSV", f"{file.name}, line 1: {error}", at=f"{file.name}:1", fix=fix) from error
    if not first:
        what = f"{file.name} is empty: its first line has nothing in it"
        raise Mistake("LOAD_FILE_EMPTY", what, at=file.name, fix="leave it out, or see why its writer wrote nothing")
    if options.header:
        return checked_names(first, file.name)
    if options.names and len(options.names) != len(first):
        what = f"{file.name} has {len(first)} columns and no header, but {len(options.names)} columns are known"
        raise Mistake(
            "LOAD_CSV", what, at=f"{file.name}:1", fix="give --schema with a column for each of them, in order"
        )
    return options.names or tuple(f"c{position}" for position in range(1, len(first) + 1))


def _delimiter(file: File, options: CsvOptions) -> str:
    return options.delimiter or ("\t" if file.ending == ".tsv" else ",")


def _records(lines: Iterable[str], file: File, options: CsvOptions) -> "_csv.Reader":
    delimiter = _delimiter(file, options)
    if not options.quote:
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter, quotechar=options.quote)


def _text(file: File, options: CsvOptions) -> io.TextIOWrapper:
    encoding = "utf-8-sig" if is_utf8(options.encoding, file) else options.encoding
    return io.TextIOWrapper(opened(file), encoding=encoding, errors="surrogateescape", newline="")


def _undecoded(value: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in value)


def _not_utf8(file: File, position: int) -> str:
    """Say which byte is no UTF-8; `position` is where its line starts, counted from 1."""
    if not file.gzipped:
        with opened(file) as stream:
            stream.seek(position - 1)
            line = stream.read(4 << 20)
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return f"byte 0x{line[error.start]:02x} at position {position - 1 + error.start} is not UTF-8"
    return "it has bytes that are not UTF-8"
