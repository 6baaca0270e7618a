"""Read CSV with DuckDB: every column as text, rows that are no rows set aside with their line.

The dialect is not guessed: commas (tabs for `.tsv`), double quotes, a header, UTF-8, unless said otherwise.
"""

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.files.compression import packing_of
from runnel.connect.files.csv_records import delimiter_of, records
from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import BadRow, CsvOptions, Incoming, Rejected, checked_names
from runnel.connect.files.scratch_files import Scratch
from runnel.connect.files.text_values import ANY_TEXT
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import exact_path, literal

if TYPE_CHECKING:
    import duckdb

MOST_SHOWN = 20
MOST_DELIMITER = 4
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
        self.headers = {file: header_of(file, options) for file in files}
        self._paths = {file: scratch.readable(file, options.encoding) for file in files}
        self._before: dict[str, int] = {}  # lines that a copy lacks at its start
        for file in files if options.comment else ():
            path, before = _without_comments(file, options, scratch, len(self.headers[file]))
            self._paths[file], self._before[path] = path, before
        names: dict[str, str] = {}  # by lower case, in order of appearance
        for header in self.headers.values():
            for name in header:
                names.setdefault(name.lower(), name)
        self.columns = tuple(
            Incoming(name, f"v{position}", guesses=ANY_TEXT, writing=options.writing)
            for position, name in enumerate(names.values())
        )

    def rows(self, file: File | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        groups: dict[tuple[str, ...], list[File]] = {}
        for each, header in self.headers.items():
            if file is None or each == file:
                groups.setdefault((delimiter_of(each, self.options), *(name.lower() for name in header)), []).append(
                    each
                )
        return "\nUNION ALL\n".join(self._select(key[0], key[1:], group) for key, group in groups.items())

    def _select(self, delimiter: str, header: tuple[str, ...], files: Sequence[File]) -> str:
        places = {name: position for position, name in enumerate(header)}
        columns = [
            f"{self._value(places[column.name.lower()]) if column.name.lower() in places else 'CAST(NULL AS VARCHAR)'}"
            f" AS {column.sql}"
            for column in self.columns
        ]
        paths = ", ".join(exact_path(self._paths[file]) for file in files)
        given = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(header)))
        quote, escape = literal(self.options.quote), literal(self.options.escape or self.options.quote)
        nulls = ", ".join(literal(text) for text in self.options.nulls)
        # Every column is looked at, needed or not, so that the same rows are rejected each time.
        looked = " AND ".join(f"coalesce(length(c{position}), 0) >= 0" for position in range(len(header)))
        return (
            f"SELECT {', '.join(columns)}, filename AS file, CAST(NULL AS VARCHAR) AS broken FROM read_csv([{paths}], "
            f"auto_detect = false, header = {str(self.options.header).lower()}, delim = {literal(delimiter)}, "
            f"quote = {quote}, escape = {escape}, nullstr = [{nulls}], allow_quoted_nulls = false, "
            f"skip = {0 if self._before else self.options.skip}, null_padding = {str(self.options.pads).lower()}, "
            f"columns = {{{given}}}, filename = true, store_rejects = true, rejects_limit = 0) WHERE {looked}"
        )

    def _value(self, position: int) -> str:
        """Return the SQL of a value, without the blanks around it where they don't count."""
        if not self.options.trim:
            return f"c{position}"
        nulls = ", ".join(literal(text) for text in self.options.nulls)
        return f"CASE WHEN trim(c{position}) NOT IN ({nulls}) THEN trim(c{position}) END"

    def rejected(self, most: int | None = MOST_SHOWN) -> Rejected:
        """Return the rows that DuckDB could not parse in the last query, and forget them; `most` None shows all."""
        if not self.con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchone():
            return Rejected()
        found = "FROM reject_errors JOIN reject_scans USING (scan_id, file_id)"
        [(count,)] = self.con.execute(f"SELECT count(*) FROM (SELECT DISTINCT file_path, line {found})").fetchall()
        asked = (
            f"SELECT file_path, line, min(line_byte_position), arg_max(error_type, byte_position), "
            f"arg_min(error_message, column_idx), arg_max(error_message, column_idx), min(csv_line) {found} "
            f"GROUP BY file_path, line ORDER BY file_path, line LIMIT {'ALL' if most is None else most}"
        )
        examples = self.con.execute(asked).fetchall() if count else []
        self.con.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        return Rejected(count, tuple(self._bad_row(*example) for example in examples))

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
            reason = _not_utf8(path, position)
        else:
            reason = _REASONS.get(kind, message.splitlines()[0] if message else kind.lower())
        return BadRow(file.name, f"line {line + self._before.get(path, 0)}", None, None, reason, raw.lstrip("\r\n"))

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
        skip = self.options.header
        for record in records(file, self.options):
            if skip:
                skip = False
            elif self._is_row(record.values, width) and not any(map(_undecoded, record.values)):
                yield record.line

    def _is_row(self, values: Sequence[str], width: int) -> bool:
        if not values:
            return width == 1
        return len(values) == width or (self.options.pads and len(values) < width)


def check_options(options: CsvOptions) -> None:
    """Refuse a dialect that can't be read."""
    for what, text, least, most in (
        ("delimiter", options.delimiter, 1, MOST_DELIMITER),
        ("quote", options.quote, 0, 1),
        ("escape", options.escape, 0, 1),
        ("comment", options.comment, 1, 1),
    ):
        if text is not None and not least <= len(text.encode()) <= max(most, 1):
            few = "one character" if most == 1 else f"one to {most} characters"
            fix = "use one character; a tab is written $'\\t' in the shell"
            raise Mistake("LOAD_CSV_OPTION", f"the {what} {text!r} is not {few}", fix=fix)
    if options.quote and options.quote == options.delimiter:
        raise Mistake("LOAD_CSV_OPTION", "the delimiter and the quote are the same", fix="choose another quote")


def _without_comments(file: File, options: CsvOptions, scratch: Scratch, width: int) -> tuple[str, int]:
    """Return the path of a copy that starts with the header, and how many lines it lacks before that.

    DuckDB finds comments within values too, so they are taken out. An empty line in their place keeps the count of
    lines; it is no row, unless there is just one column.
    """
    path = scratch.fresh("file" + file.ending)
    before = last = 0
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as out:
        for record in records(file, options):
            if not last:
                before = record.line - 1
            elif width > 1:
                ending = "\r\n" if record.text.endswith("\r\n") else "\n"
                out.write(ending * (record.line - last - 1))
            out.write(record.text)
            last = record.last
    scratch.files[str(path)] = file
    return str(path), before


def explained(file: File, options: CsvOptions) -> Mistake | None:
    """Return why DuckDB gave up on a file altogether, if its line endings are mixed."""
    ending: str | None = None
    for record in records(file, options):
        here = "\r\n" if record.text.endswith("\r\n") else record.text[-1:]
        if here in ("\r\n", "\n", "\r"):
            if ending not in (None, here):
                line = record.last
                what = f"{file.name}, line {line}: it ends with {here!r}, the lines before with {ending!r}"
                return Mistake("LOAD_CSV", what, at=f"{file.name}:{line}", fix="make all line endings the same")
            ending = here
    return None


def raw_rows(file: File, options: CsvOptions, lines: Collection[int]) -> dict[int, str]:
    """Return the text of the rows that start on these lines, without the end of the last line."""
    found = {record.line: record.text.rstrip("\r\n") for record in records(file, options) if record.line in lines}
    return {line: text.encode(errors="surrogateescape").decode(errors="replace") for line, text in found.items()}


def header_of(file: File, options: CsvOptions) -> tuple[str, ...]:
    """Return the names of a file's columns, or raise where it has none that a table could have."""
    try:
        first = next((record.values for record in records(file, options)), None)
    except csv.Error as error:
        fix = "is it CSV? name the format with --format, or the delimiter and quote"
        raise Mistake("LOAD_CSV", f"{file.name}, line 1: {error}", at=f"{file.name}:1", fix=fix) from error
    if not first:
        what = f"{file.name} is empty: its first line has nothing in it"
        raise Mistake("LOAD_FILE_EMPTY", what, at=file.name, fix="leave it out, or see why its writer wrote nothing")
    if options.header:
        return checked_names([name.strip() for name in first] if options.trim else first, file.name)
    if options.names and len(options.names) != len(first):
        what = f"{file.name} has {len(first)} columns and no header, but {len(options.names)} columns are known"
        raise Mistake(
            "LOAD_CSV", what, at=f"{file.name}:1", fix="give --schema with a column for each of them, in order"
        )
    return options.names or tuple(f"c{position}" for position in range(1, len(first) + 1))


def _undecoded(value: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in value)


def _not_utf8(path: str, position: int) -> str:
    """Say which byte is no UTF-8; `position` is where its line starts, counted from 1."""
    if packing_of(path) is None:
        with Path(path).open("rb") as stream:
            stream.seek(position - 1)
            line = stream.read(4 << 20)
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return f"byte 0x{line[error.start]:02x} at position {position - 1 + error.start} is not UTF-8"
    return "it has bytes that are not UTF-8"
