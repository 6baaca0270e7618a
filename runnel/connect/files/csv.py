"""Read CSV with DuckDB: every column as text; rows that can't be parsed are reported with their line.

The dialect is not guessed: commas (tabs for `.tsv`), double quotes, a header and UTF-8, unless options say otherwise.
"""

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.files.compression import detect_compression
from runnel.connect.files.csv_records import choose_delimiter, read_records
from runnel.connect.files.dialect_detection import suggest_encoding
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import BadRow, CsvOptions, FileColumn, RejectedRows, check_column_names
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.files.text_values import TEXT_GUESSES
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_literal

if TYPE_CHECKING:
    import duckdb

MOST_SHOWN = 20
MOST_DELIMITER = 4
_REASONS = {
    "UNQUOTED VALUE": "a quote is not closed, or text follows a closing quote",
    "LINE SIZE OVER MAXIMUM": "the line is longer than 2 MB",
}


class CsvReader:
    """Reads CSV files, grouped by equal headers."""

    must_check = True

    def __init__(
        self, con: "duckdb.DuckDBPyConnection", files: Sequence[LocalFile], scratch: ScratchFiles, options: CsvOptions
    ) -> None:
        self.con = con
        self.options = options
        self.scratch = scratch
        self.headers = {file: read_header(file, options) for file in files}
        self._paths = {file: scratch.make_readable(file, options.encoding) for file in files}
        self._skipped_lines: dict[str, int] = {}  # lines left out at the start of a copy, by its path
        for file in files if options.comment else ():
            path, skipped = _copy_without_comments(file, options, scratch, len(self.headers[file]))
            self._paths[file], self._skipped_lines[path] = path, skipped
        names: dict[str, str] = {}  # by lower case, in order of appearance
        for header in self.headers.values():
            for name in header:
                names.setdefault(name.lower(), name)
        self.columns = tuple(
            FileColumn(name, f"v{position}", guesses=TEXT_GUESSES, text_format=options.text_format)
            for position, name in enumerate(names.values())
        )

    def build_select(self, file: LocalFile | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        groups: dict[tuple[str, ...], list[LocalFile]] = {}
        for csv_file, header in self.headers.items():
            if file is None or csv_file == file:
                groups.setdefault(
                    (choose_delimiter(csv_file, self.options), *(name.lower() for name in header)), []
                ).append(csv_file)
        return "\nUNION ALL\n".join(self._select_group(key[0], key[1:], group) for key, group in groups.items())

    def _select_group(self, delimiter: str, header: tuple[str, ...], files: Sequence[LocalFile]) -> str:
        positions = {name: position for position, name in enumerate(header)}
        columns = []
        for column in self.columns:
            position = positions.get(column.name.lower())
            value = self._value_sql(position) if position is not None else "CAST(NULL AS VARCHAR)"
            columns.append(f"{value} AS {column.sql_name}")
        paths = ", ".join(quote_exact_path(self._paths[file]) for file in files)
        column_types = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(header)))
        quote, escape = quote_literal(self.options.quote), quote_literal(self.options.escape or self.options.quote)
        nulls = ", ".join(quote_literal(text) for text in self.options.nulls)
        # Every column is read, needed or not, so that each query rejects the same rows.
        reads_every_column = " AND ".join(f"coalesce(length(c{position}), 0) >= 0" for position in range(len(header)))
        return (
            f"SELECT {', '.join(columns)}, filename AS file, CAST(NULL AS VARCHAR) AS broken FROM read_csv([{paths}], "
            f"auto_detect = false, header = {str(self.options.header).lower()}, delim = {quote_literal(delimiter)}, "
            f"quote = {quote}, escape = {escape}, nullstr = [{nulls}], allow_quoted_nulls = false, "
            f"skip = {0 if self._skipped_lines else self.options.skip}, "
            f"null_padding = {str(self.options.pad_missing).lower()}, "
            f"columns = {{{column_types}}}, filename = true, store_rejects = "
            f"true, rejects_limit = 0) WHERE {reads_every_column}"
        )

    def _value_sql(self, position: int) -> str:
        """Return the SQL of a value, trimmed if the options say so."""
        if not self.options.trim:
            return f"c{position}"
        nulls = ", ".join(quote_literal(text) for text in self.options.nulls)
        return f"CASE WHEN trim(c{position}) NOT IN ({nulls}) THEN trim(c{position}) END"

    def pop_rejected(self, most: int | None = MOST_SHOWN) -> RejectedRows:
        """Return and forget the rows that DuckDB could not parse in the last query; `most` None returns all."""
        if not self.con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchone():
            return RejectedRows()
        rejects_sql = "FROM reject_errors JOIN reject_scans USING (scan_id, file_id)"
        [(count,)] = self.con.execute(
            f"SELECT count(*) FROM (SELECT DISTINCT file_path, line {rejects_sql})"
        ).fetchall()
        examples_sql = (
            f"SELECT file_path, line, min(line_byte_position), arg_max(error_type, byte_position), "
            f"arg_min(error_message, column_idx), arg_max(error_message, column_idx), min(csv_line) {rejects_sql} "
            f"GROUP BY file_path, line ORDER BY file_path, line LIMIT {'ALL' if most is None else most}"
        )
        examples = self.con.execute(examples_sql).fetchall() if count else []
        self.con.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        return RejectedRows(count, tuple(self._make_bad_row(example) for example in examples))

    def _make_bad_row(self, example: tuple[Any, ...]) -> BadRow:
        path, line, position, kind, first_message, last_message, raw = example
        file = self.scratch.files_by_path[path]
        message = (
            first_message if kind == "MISSING COLUMNS" else last_message
        )  # DuckDB reports every missing or extra column by itself
        if kind in ("MISSING COLUMNS", "TOO MANY COLUMNS"):
            reason = message.replace("Expected Number of Columns: ", "expected ").replace(
                " Found: ", " columns, found "
            )
        elif kind == "INVALID ENCODING":
            reason = _describe_bad_byte(path, position)
        else:
            reason = _REASONS.get(kind, message.splitlines()[0] if message else kind.lower())
        return BadRow(
            file.name, f"line {line + self._skipped_lines.get(path, 0)}", None, None, reason, raw.strip("\r\n")
        )

    def locate_rows(self, file: LocalFile, rows: Sequence[int]) -> dict[int, str]:
        """Return the lines on which the n-th rows of a file start."""
        row_numbers, positions = set(rows), {}
        width = len(self.headers[file])
        for row, line in enumerate(self._iterate_row_lines(file, width), start=1):
            if row in row_numbers:
                positions[row] = f"line {line}"
                if len(positions) == len(row_numbers):
                    break
        return positions

    def _iterate_row_lines(self, file: LocalFile, width: int) -> Iterator[int]:
        """Yield the line of each row that DuckDB accepts: with the right number of columns and valid encoding."""
        skip = self.options.header
        for record in read_records(file, self.options):
            if skip:
                skip = False
            elif self._is_row(record.values, width) and not any(map(_has_undecoded_bytes, record.values)):
                yield record.line

    def _is_row(self, values: Sequence[str], width: int) -> bool:
        if not values:
            return width == 1
        return len(values) == width or (self.options.pad_missing and len(values) < width)


def check_options(options: CsvOptions) -> None:
    """Raise if the dialect can't be read."""
    for option, text, least, most in (
        ("delimiter", options.delimiter, 1, MOST_DELIMITER),
        ("quote", options.quote, 0, 1),
        ("escape", options.escape, 0, 1),
        ("comment", options.comment, 1, 1),
    ):
        if text is not None and not least <= len(text.encode()) <= max(most, 1):
            allowed = "one character" if most == 1 else f"one to {most} characters"
            fix = "use one character; a tab is written $'\\t' in the shell"
            raise Mistake("LOAD_CSV_OPTION", f"the {option} {text!r} is not {allowed}", fix=fix)
    if options.quote and options.quote == options.delimiter:
        raise Mistake("LOAD_CSV_OPTION", "the delimiter and the quote are the same", fix="choose another quote")


def _copy_without_comments(file: LocalFile, options: CsvOptions, scratch: ScratchFiles, width: int) -> tuple[str, int]:
    """Return the path of a copy that starts with the header, and how many lines before the header were left out.

    DuckDB also finds comments inside values, so they are removed here. An empty line in their place preserves the line
    numbers; it is not a row, unless there is just one column.
    """
    path = scratch.new_path("file" + file.extension)
    skipped = last_line = 0
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as out:
        for record in read_records(file, options):
            if not last_line:
                skipped = record.line - 1
            elif width > 1:
                ending = "\r\n" if record.text.endswith("\r\n") else "\n"
                out.write(ending * (record.line - last_line - 1))
            out.write(record.text)
            last_line = record.last_line
    scratch.files_by_path[str(path)] = file
    return str(path), skipped


def explain_failure(file: LocalFile, options: CsvOptions) -> Mistake | None:
    """Return the error for a file that DuckDB could not read because its line endings are mixed, else None."""
    previous_ending: str | None = None
    for record in read_records(file, options):
        line_ending = "\r\n" if record.text.endswith("\r\n") else record.text[-1:]
        if line_ending in ("\r\n", "\n", "\r"):
            if previous_ending not in (None, line_ending):
                line = record.last_line
                what = (
                    f"{file.name}, line {line}: it ends with {line_ending!r}, the lines before with {previous_ending!r}"
                )
                return Mistake("LOAD_CSV", what, at=f"{file.name}:{line}", fix="make all line endings the same")
            previous_ending = line_ending
    return None


def read_raw_rows(file: LocalFile, options: CsvOptions, lines: Collection[int]) -> dict[int, str]:
    """Return the text of the rows that start on these lines, without the final line ending."""
    texts = {record.line: record.text.rstrip("\r\n") for record in read_records(file, options) if record.line in lines}
    return {line: text.encode(errors="surrogateescape").decode(errors="replace") for line, text in texts.items()}


def read_header(file: LocalFile, options: CsvOptions) -> tuple[str, ...]:
    """Return the names of a file's columns; raise if they can't be columns of a table."""
    try:
        first_values = next((record.values for record in read_records(file, options)), None)
    except csv.Error as error:
        fix = "is it CSV? name the format with --format, or the delimiter and quote"
        raise Mistake("LOAD_CSV", f"{file.name}, line 1: {error}", at=f"{file.name}:1", fix=fix) from error
    if not first_values:
        what = f"{file.name} is empty: its first line has nothing in it"
        raise Mistake("LOAD_FILE_EMPTY", what, at=file.name, fix="leave it out, or see why its writer wrote nothing")
    if options.header:
        if any(map(_has_undecoded_bytes, first_values)):
            what = f"{file.name}, line 1: the names of its columns are not {options.encoding.upper()}"
            raise Mistake("LOAD_ENCODING", what, at=f"{file.name}:1", fix=suggest_encoding(file))
        return check_column_names([name.strip() for name in first_values] if options.trim else first_values, file.name)
    if options.names and len(options.names) != len(first_values):
        what = f"{file.name} has {len(first_values)} columns and no header, but {len(options.names)} columns are known"
        raise Mistake(
            "LOAD_CSV", what, at=f"{file.name}:1", fix="give --schema with a column for each of them, in order"
        )
    return options.names or tuple(f"c{position}" for position in range(1, len(first_values) + 1))


def _has_undecoded_bytes(value: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in value)


def _describe_bad_byte(path: str, position: int) -> str:
    """Describe which byte is not UTF-8; `position` is where its line starts, counted from 1."""
    if detect_compression(path) is None:
        with Path(path).open("rb") as stream:
            stream.seek(position - 1)
            line = stream.read(4 << 20)
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return f"byte 0x{line[error.start]:02x} at position {position - 1 + error.start} is not UTF-8"
    return "it has bytes that are not UTF-8"
