"""Find a last line that is a total of the lines above it, which is no row of the table."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.types import StringType

from runnel.connect.files.csv_text.csv_records import choose_delimiter
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.file_loader import open_request
from runnel.connect.load.suggest.suggested_options import Caveat, escape_text
from runnel.connect.load.type_inference import infer_types
from runnel.lake.iceberg.schema_diff import describe_type, quote_column_name

if TYPE_CHECKING:
    import duckdb

    from runnel.connect.files.open_files import AnyReader

_LEAST_LINES = 4  # a header, two rows, and the total
_TOTAL = re.compile(r"((grand |sub)?totals?|sum|summe|gesamt|gesamtsumme)\s*:?", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,' \u00a0\u202f]*\d\s*[%€$£]?")


@dataclass(frozen=True)
class TotalLine:
    """A last line that is no row: its text, and the columns of the lines above it, each with its type.

    With the types of `deciding_names` declared, and "not null" for `required_name`, the line is a bad row.
    """

    text: str
    columns: tuple[tuple[str, str], ...]
    deciding_names: tuple[str, ...] = ()
    required_name: str | None = None

    @property
    def can_be_declared(self) -> bool:
        """Tell whether a schema can make the line a bad row."""
        return bool(self.deciding_names)

    @property
    def schema(self) -> str:
        """Return the columns as a schema that makes the line a bad row: `day date, month string not null`."""
        return self._format_columns([name for name, _ in self.columns])

    def build_caveat(self) -> Caveat:
        """Return what users should hear of the line, with the options that leave it out."""
        what = f"the last line looks like a total, `{self.text}`:"
        if not self.can_be_declared:
            return Caveat(f"{what} remove it from the file", f"{what} remove it from the file")
        flags = f'--schema "{escape_text(self._format_columns(self.deciding_names))}" --on-bad drop'
        keywords = f'schema="{escape_text(self.schema)}" in rn.files with on_bad="drop" in rn.source'
        return Caveat(f"{what} {flags} leaves it out", f"{what} {keywords} leaves it out")

    def _format_columns(self, names: Sequence[str]) -> str:
        return ", ".join(
            f"{quote_column_name(name)} {kind}{' not null' if name == self.required_name else ''}"
            for name, kind in self.columns
            if name in names
        )


def find_total_line(
    con: "duckdb.DuckDBPyConnection",
    request: LoadRequest,
    scratch: ScratchFiles,
    choices: Sequence[ColumnChoice],
    *,
    must_be_named: bool,
) -> TotalLine | None:
    """Return the last line of the only file of a request if it is a total; `choices` are the columns with it.

    A total begins with such a word and has numbers, or nothing, in its other cells. Unless it `must_be_named`, it may
    also be any line without which a column that is text has another type.
    """
    [file] = request.files
    encoding = request.csv.encoding
    lines = Path(file.path).read_bytes().decode(encoding, errors="surrogateescape").rstrip("\r\n").split("\n")
    delimiter = choose_delimiter(file, request.csv)
    if len(lines) - request.csv.skip < _LEAST_LINES or len(delimiter) > 1 or not request.csv.header:
        return None
    [values] = csv.reader([lines[-1].strip("\r")], delimiter=delimiter)
    is_named = _is_total(values)
    if must_be_named and not is_named:
        return None
    path = Path(file.path).with_stem("above-total")
    path.write_bytes("\n".join([*lines[:-1], ""]).encode(encoding, errors="surrogateescape"))
    above = replace(request, files=(replace(file, path=str(path), bytes=path.stat().st_size),))
    reader = open_request(con, above, scratch)
    above_choices = infer_types(con, reader, match_columns(reader.columns, (), None, "add", "")).choices
    columns = tuple((choice.name, describe_type(choice.conversions[0].kind)) for choice in above_choices)
    retyped_names = tuple(
        choice.name
        for choice, above_choice in zip(choices, above_choices, strict=True)
        if _is_text(choice) and not _is_text(above_choice)
    )
    total = TotalLine(lines[-1].strip("\r"), columns)
    if retyped_names:
        return replace(total, deciding_names=retyped_names)
    if not is_named:
        return None
    required_name = _find_filled_column(con, reader, above_choices, values)
    return replace(total, deciding_names=(required_name,), required_name=required_name) if required_name else total


def find_total_after_sample(
    con: "duckdb.DuckDBPyConnection",
    request: LoadRequest,
    reader: "AnyReader",
    choices: Sequence[ColumnChoice],
    last_line: bytes,
) -> TotalLine | None:
    """Return the last line of a file if it is a total; `reader` and `choices` are of the first lines of the file."""
    delimiter, encoding = choose_delimiter(request.files[0], request.csv), request.csv.encoding
    if len(delimiter) > 1 or encoding.lower().startswith(("utf-16", "utf_16", "utf-32", "utf_32")):
        return None
    text = last_line.decode(encoding, errors="surrogateescape").strip("\r")
    values = next(csv.reader([text], delimiter=delimiter), [])
    if not _is_total(values):
        return None
    columns = tuple((choice.name, describe_type(choice.conversions[0].kind)) for choice in choices)
    [label_name, *_] = [choice.name for choice, value in zip(choices, values, strict=False) if value.strip()] or [""]
    if any(choice.name == label_name and not _is_text(choice) for choice in choices):
        return TotalLine(text, columns, deciding_names=(label_name,))
    required_name = _find_filled_column(con, reader, choices, values)
    return TotalLine(text, columns, (required_name,) if required_name else (), required_name)


def _is_text(choice: ColumnChoice) -> bool:
    return isinstance(choice.conversions[0].kind, StringType)


def _is_total(values: Sequence[str]) -> bool:
    """Tell whether values begin with the word total, and have numbers or nothing after it.

    >>> _is_total(["", "Total:", "", "1,234.50"]), _is_total(["Total Wine", "5"]), _is_total(["total"])
    (True, False, False)
    """
    cells = [value.strip() for value in values]
    filled_cells = [cell for cell in cells if cell]
    return (
        len(cells) > 1
        and bool(filled_cells)
        and _TOTAL.fullmatch(filled_cells[0]) is not None
        and all(_NUMBER.fullmatch(cell) for cell in filled_cells[1:])
    )


def _find_filled_column(
    con: "duckdb.DuckDBPyConnection", reader: "AnyReader", choices: Sequence[ColumnChoice], values: Sequence[str]
) -> str | None:
    """Return the first column that is empty in these values and in no row of the reader."""
    empty_choices = [choice for choice, value in zip(choices, values, strict=False) if not value]
    if not empty_choices:
        return None
    counts = ", ".join(f"count(nullif({choice.file_column.sql_name}, ''))" for choice in empty_choices)
    [(row_count, *value_counts)] = con.execute(f"SELECT count(*), {counts} FROM ({reader.build_select()})").fetchall()
    reader.pop_rejected()
    return next(
        (choice.name for choice, count in zip(empty_choices, value_counts, strict=True) if count == row_count), None
    )
