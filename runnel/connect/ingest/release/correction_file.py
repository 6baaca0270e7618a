"""Write quarantined rows as text that people can correct, and read the corrected text.

The first column, or key, of each row says which quarantined row it is, so that a corrected row belongs to the file that
the bad one came from. Rows may be left out, and may be in any order.
"""

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runnel.connect.files.csv_text.csv_header import read_header
from runnel.connect.files.csv_text.csv_records import CsvRecord, choose_delimiter, read_records
from runnel.connect.files.file_patterns import CSV, LocalFile, make_local_file
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.ingest.read_request import build_request
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import Mistake

ROW_COLUMN = "quarantined_row"
_WHOLE_ROW = "raw"  # the key of a row that is no JSON object
_SAFE_ID = re.compile(r"[\w./][\w ./:=@+()\[\]-]*")
_JSON_START = re.compile(rf'\s*\{{\s*"{ROW_COLUMN}"\s*:\s*("(?:[^"\\]|\\.)*")\s*,?\s*')


@dataclass(frozen=True)
class CorrectedRow:
    """A quarantined row, and the text to read in its place; `line` is that of the text in the corrected file."""

    row: QuarantinedRow
    text: str
    line: int | None = None


@dataclass(frozen=True)
class CorrectionFile:
    """The rows of a corrected file; `layout` is that of CSV, None for JSON lines.

    `uncorrected` rows have to be corrected first: they can't be read. `unknown_lines` are the lines of rows that are
    not in quarantine any more.
    """

    layout: "CsvLayout | None"
    rows: tuple[CorrectedRow, ...]
    uncorrected: tuple[CorrectedRow, ...]
    unknown_lines: tuple[int, ...]


@dataclass(frozen=True)
class CsvLayout:
    """The columns of a CSV file, in order, and its delimiter."""

    names: tuple[str, ...]
    delimiter: str

    @property
    def header(self) -> str:
        """Return the header as text."""
        return self.delimiter.join(_quote_if_needed(name, self.delimiter, '"') for name in self.names)

    def is_same(self, other: "CsvLayout") -> bool:
        """Return whether another layout has the same columns in the same order, and the same delimiter."""
        return self.delimiter == other.delimiter and _lower(self.names) == _lower(other.names)


def is_csv(source: Source) -> bool:
    """Return whether the quarantined rows of a source are lines of CSV; those of others are JSON objects."""
    return isinstance(source.origin, Files) and source.origin.format == CSV


def read_layout(source: Source, root: Path, name: str) -> CsvLayout:
    """Return the layout of a CSV file; with the declared columns if it has no header, or can't be read any more."""
    options = build_request(source, ()).csv
    file = LocalFile(name, str(root / name), 0, 0.0)
    names = options.names
    if options.header and Path(file.path).is_file():
        try:
            names = read_header(file, options)
        except (Mistake, UnicodeError):
            if not names:
                raise
    return CsvLayout(names, choose_delimiter(file, options))


def format_rows(source: Source, root: Path, rows: Sequence[QuarantinedRow]) -> list[str]:
    """Return quarantined rows as the lines of a file to correct: CSV with a header, or JSON lines."""
    readable_rows = [row for row in rows if row.raw is not None]
    if not is_csv(source):
        return [_format_json_row(row) for row in readable_rows]
    options = build_request(source, ()).csv
    layouts = {name: read_layout(source, root, name) for name in dict.fromkeys(row.file or "" for row in readable_rows)}
    if not layouts:
        return []
    layout = _merge_layouts(list(layouts.values()))
    lines = [f"{ROW_COLUMN}{layout.delimiter}{layout.header}"]
    for row in readable_rows:
        body = _format_csv_row((row.raw or "").strip("\r\n"), layouts[row.file or ""], layout, options)
        lines.append(f"{make_row_id(row, options)}{layout.delimiter}{body}")
    return lines


def is_single_record(source: Source, raw: str, layout: CsvLayout) -> bool:
    """Return whether a CSV row can be read with others: its quotes are closed."""
    return bool(raw) and _split_cells(raw, layout.delimiter, build_request(source, ()).csv) is not None


def make_row_id(row: QuarantinedRow, options: CsvOptions | None = None) -> str:
    """Return what identifies a quarantined row: file and line, or a digest if these can't be written into a CSV file.

    A spreadsheet does not take it for a number.
    """
    special = [options.delimiter, options.quote, options.escape, options.comment] if options else []
    row_id = f"{row.file}:{row.position.split()[-1]}" if row.position else ""
    if _SAFE_ID.fullmatch(row_id) and not any(text and text in row_id for text in special):
        return row_id
    return "row-" + hashlib.sha256(repr((row.raw, row.reason, row.file)).encode()).hexdigest()[:12]


def read_correction_file(path: Path, source: Source, rows: Sequence[QuarantinedRow]) -> CorrectionFile | None:
    """Return the corrected rows of a file, or None if it does not say which quarantined rows they are."""
    file = make_local_file(str(path), path)
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as stream:
        first_line = next((line for line in stream if line.strip()), "")
    csv_start = re.match(rf'"?{ROW_COLUMN}"?', first_line)
    if csv_start:
        options = build_request(source, ()).csv if is_csv(source) else CsvOptions()
        rest = first_line[csv_start.end() :]
        is_expected = bool(options.delimiter) and rest.startswith(options.delimiter or "")
        delimiter = (options.delimiter if is_expected else rest[:1]) or ","
        return _read_csv_rows(file, options, delimiter, rows, is_csv(source))
    if _JSON_START.match(first_line):
        return _read_json_rows(file, rows, build_request(source, ()).csv if is_csv(source) else None)
    if ROW_COLUMN in first_line:
        what = f"{path}: `{ROW_COLUMN}` is not its first column"
        raise Mistake("RELEASE_ROW", what, at=f"{path}:1", fix="move it to the front again, where --raw wrote it")
    return None


class _RowMatcher:
    """Finds the quarantined rows that the ids in a corrected file mean, each at most once."""

    def __init__(self, file: LocalFile, rows: Iterable[QuarantinedRow], options: CsvOptions | None) -> None:
        self._file = file
        self._rows_by_id: dict[str, list[QuarantinedRow]] = {}
        self._lines_by_id: dict[str, int] = {}
        self.unknown_lines: list[int] = []
        for row in rows:
            self._rows_by_id.setdefault(make_row_id(row, options), []).append(row)

    def find(self, row_id: str, line: int) -> QuarantinedRow | None:
        """Return the row of an id; None, and the line is noted, if it is not in quarantine any more."""
        place = f"{self._file.name}, line {line}"
        if not row_id:
            what = f"{place}: `{ROW_COLUMN}` is empty, so it is unknown which row this corrects"
            fix = "copy the value from the output of runnel quarantine TABLE --raw"
            raise Mistake("RELEASE_ROW", what, at=f"{self._file.name}:{line}", fix=fix)
        candidates = self._rows_by_id.get(row_id)
        if candidates is None:
            self.unknown_lines.append(line)
            return None
        if not candidates:
            what = f"{place} corrects {row_id}, as line {self._lines_by_id[row_id]} does"
            fix = "leave one of the lines: each row is released once; a row that holds two is corrected in its own file"
            raise Mistake("RELEASE_ROW", what, at=f"{self._file.name}:{line}", fix=fix)
        self._lines_by_id[row_id] = line
        return candidates.pop(0)


def _read_csv_rows(
    file: LocalFile, options: CsvOptions, delimiter: str, rows: Sequence[QuarantinedRow], is_csv_source: bool
) -> CorrectionFile:
    dialect = replace(options, delimiter=delimiter, header=True, encoding="utf-8", skip=0, comment=None)
    matcher = _RowMatcher(file, rows, options if is_csv_source else None)
    records = _iterate_records(file, dialect)
    header = next(records)
    corrected_rows: list[CorrectedRow] = []
    uncorrected: list[CorrectedRow] = []
    for record in records:
        if not any(record.values):
            continue
        row = matcher.find(record.values[0].strip(), record.line)
        if row is None:
            continue
        text = _strip_first_cell(record.text.rstrip("\r\n"), dialect)
        is_whole_row = len(record.values) == 2 and len(header.values) > 2  # it could not be split into columns
        text = record.values[1] if is_whole_row else text
        is_corrected = bool(text) and not (is_whole_row and text == (row.raw or "").strip("\r\n"))
        (corrected_rows if is_corrected else uncorrected).append(CorrectedRow(row, text, record.line))
    return CorrectionFile(
        CsvLayout(tuple(name.strip() if options.trim else name for name in header.values[1:]), delimiter),
        tuple(corrected_rows),
        tuple(uncorrected),
        tuple(matcher.unknown_lines),
    )


def _iterate_records(file: LocalFile, options: CsvOptions) -> Iterator[CsvRecord]:
    line = 1
    try:
        for record in read_records(file, options):
            line = record.last_line + 1
            yield record
    except csv.Error as error:
        what = f"{file.name}, line {line}: {error}"
        raise Mistake("LOAD_CSV", what, at=f"{file.name}:{line}", fix="correct the quotes of this line") from error


def _read_json_rows(file: LocalFile, rows: Sequence[QuarantinedRow], options: CsvOptions | None) -> CorrectionFile:
    matcher = _RowMatcher(file, rows, options)
    corrected_rows: list[CorrectedRow] = []
    uncorrected: list[CorrectedRow] = []
    with Path(file.path).open(encoding="utf-8-sig", errors="surrogateescape") as stream:
        for line, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            row_id, body = _split_json_row(text.strip())
            row = matcher.find(row_id, line)
            if row is None:
                continue
            whole_row = _read_whole_row(body) if not _is_object(row.raw or "") else None
            corrected_row = CorrectedRow(row, body if whole_row is None else " ".join(whole_row.splitlines()), line)
            is_corrected = bool(corrected_row.text.strip()) and whole_row != row.raw
            (corrected_rows if is_corrected else uncorrected).append(corrected_row)
    return CorrectionFile(None, tuple(corrected_rows), tuple(uncorrected), tuple(matcher.unknown_lines))


def _format_json_row(row: QuarantinedRow) -> str:
    """Return a row as a line of JSON; a row that is no object is the text of a key."""
    row_id, raw = json.dumps(make_row_id(row), ensure_ascii=False), flatten_json(row.raw or "")
    if not _is_object(raw):
        return f'{{"{ROW_COLUMN}": {row_id}, "{_WHOLE_ROW}": {json.dumps(row.raw, ensure_ascii=False)}}}'
    rest = raw.lstrip()[1:].lstrip()
    return f'{{"{ROW_COLUMN}": {row_id}{"" if rest.startswith("}") else ", "}{rest}'


def flatten_json(text: str) -> str:
    """Return JSON on one line: line breaks are only between its values."""
    return " ".join(text.splitlines())


def _is_object(raw: str) -> bool:
    return raw.lstrip().startswith("{")


def _split_json_row(text: str) -> tuple[str, str]:
    """Return the id of a row, empty if it has none, and its text without the id; numbers stay as they are written."""
    match = _JSON_START.match(text)
    if match:
        return json.loads(match.group(1)), "{" + text[match.end() :]
    try:
        values = json.loads(text)
    except ValueError:
        return "", text
    if not isinstance(values, dict):
        return "", text
    row_id = values.pop(ROW_COLUMN, "")
    return str(row_id), json.dumps(values, ensure_ascii=False)


def _read_whole_row(body: str) -> str | None:
    try:
        values = json.loads(body)
    except ValueError:
        return None
    return str(values[_WHOLE_ROW]) if isinstance(values, dict) and list(values) == [_WHOLE_ROW] else None


def _merge_layouts(layouts: Sequence[CsvLayout]) -> CsvLayout:
    """Return the layout that has the columns of all files, those of the first file first."""
    names: dict[str, str] = {}
    for layout in layouts:
        for name in layout.names:
            names.setdefault(name.lower(), name)
    return CsvLayout(tuple(names.values()), layouts[0].delimiter)


def _format_csv_row(raw: str, layout: CsvLayout, target: CsvLayout, options: CsvOptions) -> str:
    """Return a row in the order of the target's columns; as one quoted value if it can't be split into columns."""
    text = convert_record(raw, layout, target, options)
    if text is not None:
        return text
    escape = options.escape or options.quote
    return f"{options.quote}{raw.replace(options.quote, escape + options.quote)}{options.quote}" if escape else raw


def convert_record(text: str, layout: CsvLayout, target: CsvLayout, options: CsvOptions) -> str | None:
    """Return a CSV record in the order of the target's columns; None if it can't be split into columns.

    A record of the same columns stays as it is, even if it has too many or too few values.
    """
    cells = _split_cells(text, layout.delimiter, options)
    if cells is not None and layout.is_same(target):
        return text
    if cells is None or len(cells) != len(layout.names):
        return None
    cells_by_name = dict(zip(_lower(layout.names), cells, strict=True))
    null = options.nulls[0] if options.nulls else ""
    return target.delimiter.join(
        _quote_if_needed(cells_by_name.get(name, null), target.delimiter, options.quote)
        for name in _lower(target.names)
    )


def restore_layout(
    rows: Sequence[CorrectedRow], layout: CsvLayout, original: CsvLayout, options: CsvOptions
) -> tuple[CsvLayout, list[CorrectedRow]]:
    """Return corrected rows in the order of the file that they came from; columns that have new values are added.

    Rows that can't be split into columns are left out.
    """
    nulls = {"", *options.nulls}
    names = _lower(layout.names)
    added_names = [
        name
        for position, name in enumerate(layout.names)
        if name.lower() not in _lower(original.names)
        and any(
            len(cells) == len(names) and cells[position] not in nulls
            for row in rows
            for cells in [_split_cells(row.text, layout.delimiter, options) or []]
        )
    ]
    target = CsvLayout((*original.names, *added_names), original.delimiter)
    texts = [convert_record(row.text, layout, target, options) for row in rows]
    return target, [replace(row, text=text) for row, text in zip(rows, texts, strict=True) if text is not None]


def _lower(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]


def _quote_if_needed(cell: str, delimiter: str, quote: str) -> str:
    """Return a cell that is quoted if it has to be; a cell that is quoted stays as it is."""
    if not quote or cell.startswith(quote) or not any(text in cell for text in (delimiter, "\n", "\r")):
        return cell
    return f"{quote}{cell}{quote}"


def _split_cells(text: str, delimiter: str, options: CsvOptions) -> list[str] | None:
    """Return the cells of a record as they are written, with quotes; None if it is not exactly one record."""
    cells, start, index, in_quotes = list[str](), 0, 0, False
    escape = options.escape if options.escape != options.quote else None
    while index < len(text):
        if in_quotes and escape and text[index] == escape:
            index += 2
            continue
        if options.quote and text[index] == options.quote and (in_quotes or text[start] == options.quote):
            in_quotes = not in_quotes
        elif not in_quotes and text.startswith(delimiter, index):
            cells.append(text[start:index])
            index = start = index + len(delimiter)
            continue
        elif not in_quotes and text[index] in "\r\n":
            return None
        index += 1
    return None if in_quotes else [*cells, text[start:]]


def _strip_first_cell(text: str, options: CsvOptions) -> str:
    """Return a record without its first cell, which has no quotes inside."""
    delimiter, quote = options.delimiter or ",", options.quote
    if quote and text.startswith(quote):
        return text[text.index(quote, 1) + 1 + len(delimiter) :]
    return text.partition(delimiter)[2]
