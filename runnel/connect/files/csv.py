"""Read CSV with DuckDB: every column as text; rows that can't be parsed are reported with their line.

The dialect is not guessed: commas (tabs for `.tsv`), double quotes, a header and UTF-8, unless options say otherwise.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from runnel.connect.files.csv_text import csv_rejects
from runnel.connect.files.csv_text.combined_csv import can_combine, combine_files, make_token
from runnel.connect.files.csv_text.csv_header import inspect_header
from runnel.connect.files.csv_text.csv_records import (
    choose_delimiter,
    copy_records,
    find_line_ending,
    find_value_with_line_end,
    read_records,
)
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import BadRow, CsvOptions, FileColumn, RejectedRows
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.files.text_values import TEXT_GUESSES
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_literal

if TYPE_CHECKING:
    import duckdb

MOST_SHOWN = 20
_STORED_ROWS = "runnel_stored_rows"
MOST_DELIMITER = 4
_LINE_END_ERROR = "a value contains a line end"
_MULTILINE_FIX = (
    "take multiline=False out of rn.files, or --no-multiline off the command: the file is then read as a whole"
)


@dataclass(frozen=True)
class _Dialect:
    """What files must have in common to be read at once: lines to skip, the delimiter, and the header."""

    skip: int
    delimiter: str
    header: tuple[str, ...]


class CsvReader:
    """Reads CSV files, grouped by equal headers."""

    must_check = True

    def __init__(
        self,
        con: "duckdb.DuckDBPyConnection",
        files: Sequence[LocalFile],
        scratch: ScratchFiles,
        options: CsvOptions,
        expected: Sequence[str] = (),
    ) -> None:
        """Open files; `expected` columns exist, all null, even if no file has them."""
        self.con = con
        self.options = options
        self.scratch = scratch
        headers = {file: scratch.headers.get(file) or inspect_header(file, options) for file in files}
        self.headers = {file: header.names for file, header in headers.items()}
        self._paths = {file: scratch.make_readable(file, options.encoding) for file in files}
        self._line_shifts: dict[str, csv_rejects.LineShifts] = {}  # of copies, by path
        for file in files:
            if file.split is not None:
                header_lines, lines_before = file.split.header_lines, file.split.lines_before
                split_shifts = csv_rejects.LineShifts((header_lines + 1,), (lines_before - header_lines,))
                self._line_shifts[self._paths[file]] = split_shifts
            if headers[file].needs_copy:
                path, shifts = copy_records(file, options, scratch)
                self._paths[file], self._line_shifts[path] = path, shifts
        self._stored_rejects: RejectedRows | None = None  # if the rows are stored
        self.columns = merge_columns(self.headers.values(), options, expected)

    def store_rows(self) -> None:
        """Read all rows into a temporary table, which later queries read instead of the files.

        For many small files: opening each of them takes longer than reading it, and twice as long if DuckDB has to note
        rejected rows. So they are combined first; if a row can't be parsed, they are read again one by one.
        """
        import duckdb

        try:
            self._create_table(self._build_combined_scan())
        except duckdb.Error:  # a row can't be parsed
            self._create_table(self._build_scan())
        self._stored_rejects = self.pop_rejected(None)

    def _create_table(self, select: str) -> None:
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {_STORED_ROWS} AS {select}")

    def _build_combined_scan(self) -> str:
        """Return a SELECT of all rows that raises if one can't be parsed, with tokens for most files."""
        selects = []
        for dialect, files in self._group_files(None).items():
            first_number, other_files = len(self.scratch.files_by_path), files
            tokens = {make_token(first_number + number): file for number, file in enumerate(files)}
            if can_combine(self.options, dialect.delimiter):
                path = self.scratch.new_path("combined.csv")
                readable_files = {token: (file, self._paths[file]) for token, file in tokens.items()}
                other_files = combine_files(readable_files, self.options, dialect.delimiter, path)
                self.scratch.files_by_path |= tokens
                selects.append(self._select_group(dialect, [str(path)], is_combined=True))
            if other_files:
                paths = [self._paths[file] for file in other_files]
                selects.append(self._select_group(dialect, paths, stores_rejects=False))
        return "\nUNION ALL\n".join(selects)

    def build_select(self, file: LocalFile | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        if file is None and self._stored_rejects is not None:
            return f"SELECT * FROM {_STORED_ROWS}"
        return self._build_scan(file)

    def _build_scan(self, file: LocalFile | None = None) -> str:
        return "\nUNION ALL\n".join(
            self._select_group(dialect, [self._paths[csv_file] for csv_file in files])
            for dialect, files in self._group_files(file).items()
        )

    def _group_files(self, file: LocalFile | None) -> dict[_Dialect, list[LocalFile]]:
        """Return all files, or one, by how they are read."""
        groups: dict[_Dialect, list[LocalFile]] = {}
        for csv_file, header in self.headers.items():
            if file is None or csv_file == file:
                skip = 0 if self._paths[csv_file] in self._line_shifts else self.options.skip
                delimiter = choose_delimiter(csv_file, self.options)
                dialect = _Dialect(skip, delimiter, tuple(name.lower() for name in header))
                groups.setdefault(dialect, []).append(csv_file)
        return groups

    def _select_group(
        self, dialect: _Dialect, paths: Sequence[str], *, stores_rejects: bool = True, is_combined: bool = False
    ) -> str:
        positions = {name: position for position, name in enumerate(dialect.header)}
        columns = []
        for column in self.columns:
            position = positions.get(column.name.lower())
            value = self._value_sql(position) if position is not None else "CAST(NULL AS VARCHAR)"
            columns.append(f"{value} AS {column.sql_name}")
        path_list = ", ".join(quote_exact_path(path) for path in paths)
        column_types = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(dialect.header)))
        column_types = f"'token': 'VARCHAR', {column_types}" if is_combined else column_types
        has_header = self.options.header and not is_combined
        rejects_options = ", store_rejects = true, rejects_limit = 0" if stores_rejects and not is_combined else ""
        quote, escape = quote_literal(self.options.quote), quote_literal(self.options.escape or self.options.quote)
        nulls = ", ".join(quote_literal(text) for text in self.options.nulls)
        # Every column is read, needed or not, so that each query rejects the same rows.
        checks = " AND ".join(f"coalesce(length(c{position}), 0) >= 0" for position in range(len(dialect.header)))
        if not self.options.multiline:
            checks = _check_values_sql(len(dialect.header))
        return (
            f"SELECT {', '.join(columns)}, {'token' if is_combined else 'filename'} AS file, "
            f"CAST(NULL AS VARCHAR) AS broken FROM read_csv([{path_list}], "
            f"auto_detect = false, header = {str(has_header).lower()}, delim = {quote_literal(dialect.delimiter)}, "
            f"quote = {quote}, escape = {escape}, nullstr = [{nulls}], allow_quoted_nulls = false, "
            f"skip = {dialect.skip}, null_padding = {str(self.options.pad_missing).lower()}, "
            f"columns = {{{column_types}}}, filename = true{rejects_options}) WHERE {checks}"
        )

    def _value_sql(self, position: int) -> str:
        """Return the SQL of a value, trimmed if the options say so."""
        if not self.options.trim:
            return f"c{position}"
        nulls = ", ".join(quote_literal(text) for text in self.options.nulls)
        return f"CASE WHEN trim(c{position}) NOT IN ({nulls}) THEN trim(c{position}) END"

    def pop_rejected(self, most: int | None = MOST_SHOWN) -> RejectedRows:
        """Return and forget the rows that DuckDB could not parse in the last query; `most` None returns all.

        If all rows are stored, every query over all of them has the same ones.
        """
        if self._stored_rejects is not None:
            if csv_rejects.has_rejects(self.con):  # of a query over one file
                csv_rejects.forget_rejects(self.con)
            return RejectedRows(self._stored_rejects.count, self._stored_rejects.examples[:most])
        if not csv_rejects.has_rejects(self.con):
            return RejectedRows()
        count = csv_rejects.count_rejects(self.con)
        if count and not self.options.multiline:
            self._check_rejected_rows()
        splits = {path: file.split for path, file in self.scratch.files_by_path.items() if file.split is not None}
        bytes_before = {path: split.bytes_before for path, split in splits.items()}
        records = csv_rejects.read_rejects(self.con, most, bytes_before) if count else []
        csv_rejects.forget_rejects(self.con)
        rows = []
        for path, group in groupby(records, key=lambda record: record.path):
            rejected_records = list(group)
            lines = self._find_lines(path, [record.position for record in rejected_records])
            name = self.scratch.files_by_path[path].name
            rows += [
                BadRow(name, f"line {lines[record.position]}", None, None, record.reason, record.text)
                for record in rejected_records
            ]
        return RejectedRows(count, tuple(rows))

    def _check_rejected_rows(self) -> None:
        """Raise if a rejected row has several lines, or if a split ends within one: then values contain line ends."""
        ends = [str(path) for file, path in self._paths.items() if file.split is not None]
        if csv_rejects.has_open_rows(self.con, ends):
            import duckdb

            csv_rejects.forget_rejects(self.con)
            raise duckdb.InvalidInputException(_LINE_END_ERROR)

    def _find_lines(self, path: str, positions: Collection[int]) -> dict[int, int]:
        """Return the lines of a file on which bytes of the file that is read in its place are."""
        shifts = self._line_shifts.get(path, csv_rejects.LineShifts())
        return {
            position: shifts.find_original(line) for position, line in csv_rejects.find_lines(path, positions).items()
        }

    def check_rows(self, row_count: int) -> None:
        """Raise if a query without rejected rows returned no rows, although a file has some."""
        for file in self.headers if not row_count else ():
            records = islice(read_records(file, self.options), 1 if self.options.header else 0, None)
            if any(record.values for record in records):
                what = f"no row of {file.name} could be read, although it has rows"
                fix = "see whether quotes, delimiter and line endings are those of CSV"
                raise explain_failure(file, self.options) or Mistake("LOAD_CSV", what, at=file.name, fix=fix)

    def locate_rows(self, file: LocalFile, rows: Sequence[int]) -> dict[int, str]:
        """Return the lines on which the n-th rows of a file start.

        The last query read this file alone, and what it rejected was not popped yet.
        """
        row_numbers, positions = set(rows), {}
        for row, line in enumerate(self._iterate_row_lines(file), start=1):
            if row in row_numbers:
                positions[row] = f"line {line}"
                if len(positions) == len(row_numbers):
                    break
        return positions

    def _iterate_row_lines(self, file: LocalFile) -> Iterator[int]:
        """Yield the line of each row that DuckDB accepted."""
        has_rejects = csv_rejects.has_rejects(self.con)
        rejected_positions = csv_rejects.read_reject_positions(self.con) if has_rejects else []
        rejected_lines = set(self._find_lines(self._paths[file], rejected_positions).values())
        has_one_column = len(self.headers[file]) == 1
        for record in islice(read_records(file, self.options), 1 if self.options.header else 0, None):
            if record.line not in rejected_lines and (record.values or has_one_column):
                yield record.line


def _check_values_sql(column_count: int) -> str:
    """Return SQL that holds for all rows, and fails if a value contains a line end."""
    checks = (f"contains(c{position}, chr({end}))" for position in range(column_count) for end in (10, 13))
    return f"CASE WHEN {' OR '.join(checks)} THEN error({quote_literal(_LINE_END_ERROR)}) ELSE true END"


def merge_columns(
    headers: Iterable[Sequence[str]], options: CsvOptions, expected: Sequence[str] = ()
) -> tuple[FileColumn, ...]:
    """Return the columns of files with these headers, in order of appearance; case does not count.

    `expected` columns are there even if no header has them.
    """
    names: dict[str, str] = {}
    for header in headers:
        for name in header:
            names.setdefault(name.lower(), name)
    missing = {name.lower(): name for name in expected if name.lower() not in names}
    return tuple(
        FileColumn(
            name, f"v{position}", guesses=() if key in missing else TEXT_GUESSES, text_format=options.text_format
        )
        for position, (key, name) in enumerate({**names, **missing}.items())
    )


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


def explain_failure(file: LocalFile, options: CsvOptions) -> Mistake | None:
    """Return the error for a file that DuckDB could not read because its line endings are mixed, else None.

    Also for a file in which values contain line ends, although the options say that none does.
    """
    line = find_value_with_line_end(file, options) if not options.multiline else None
    if line is not None:
        what = f"{file.name}, line {line}: a value contains a line end, though multiline=False says that none does"
        return Mistake("LOAD_CSV_MULTILINE", what, at=f"{file.name}:{line}", fix=_MULTILINE_FIX)
    previous_ending: str | None = None
    for record in read_records(file, options):
        line_ending = find_line_ending(record.text)
        if line_ending:
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
