"""Read JSON lines with DuckDB: one object per line, the columns being the keys of all objects.

Numbers and strings are read as text, so that the same rules apply as for CSV; arrays and objects as JSON.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.types import BooleanType, DoubleType, IcebergType, LongType, StringType, UnknownType

from runnel.connect.files.file_patterns import KeyOrder, LocalFile
from runnel.connect.files.format_reader import FileColumn, ReaderOptions, RejectedRows, check_column_names
from runnel.connect.files.json_structure import (
    HEAD_BYTES,
    JsonFacts,
    make_json_pointer,
    merge_key_orders,
    read_facts,
    read_key_order,
    sort_keys,
)
from runnel.connect.files.scratch_files import ScratchFiles, open_file
from runnel.connect.files.text_values import DEFAULT_TEXT_FORMAT, NUMBER_GUESSES, STRING_GUESSES, TextFormat
from runnel.connect.iceberg_types import make_list_type, make_struct_type
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_literal

if TYPE_CHECKING:
    import duckdb

_LEAF_TYPES: dict[str, IcebergType] = {
    "BOOLEAN": BooleanType(),
    "BIGINT": LongType(),
    "UBIGINT": LongType(),
    "HUGEINT": DoubleType(),
    "DOUBLE": DoubleType(),
    "NULL": UnknownType(),
}
_MIXED = "JSON"  # what DuckDB calls values of several shapes
_NUMERIC = ("BIGINT", "UBIGINT", "HUGEINT", "DOUBLE")


class JsonReader:
    """Files of JSON lines."""

    must_check = True

    def __init__(
        self,
        con: "duckdb.DuckDBPyConnection",
        files: Sequence[LocalFile],
        scratch: ScratchFiles,
        options: ReaderOptions,
        *,
        text_format: TextFormat = DEFAULT_TEXT_FORMAT,
        line_label: str = "line",
    ) -> None:
        """Open files. `line_label` is what users call a line of them: "line", or "record" for a converted file."""
        self._line_label = line_label
        for file in files:
            check_json_lines(file)
        self._paths = {file: scratch.make_readable(file) for file in files}
        self.facts = JsonFacts({}, {}, {})
        self.columns = options.columns or ()
        if options.columns is None:
            objects_sql = f"({self._lines_sql(None)}) WHERE json_type(json) = 'OBJECT'"
            key_order: KeyOrder = ()
            for file in files:
                key_order = merge_key_orders(key_order, _find_key_order(file))
            self.facts = read_facts(con, objects_sql, key_order)
            self.columns = list_columns(self.facts, options.expected, text_format, label_files(files))

    def build_select(self, file: LocalFile | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        pointers = ", ".join(quote_literal(make_json_pointer(column.name)) for column in self.columns)
        columns = []
        for position, column in enumerate(self.columns, start=1):
            value = f"nullif(nested[{position}], 'null')" if column.is_json else f"plain[{position}]"
            columns += [
                f"{value} AS {column.sql_name}",
                f"nullif(nested[{position}], 'null') AS {column.json_sql_name}",
            ]
        broken = (
            "CASE WHEN json IS NULL THEN 'it is not JSON' WHEN json_type(json) <> 'OBJECT' THEN 'it is no object' END"
        )
        # All keys are extracted in one call: each call parses the line again.
        plain, nested = (
            f"{function_name}(json, [{pointers}])" for function_name in ("json_extract_string", "json_extract")
        )
        extracts = f"{plain} AS plain, {nested} AS nested" if pointers else "1 AS nothing"
        return (
            f"SELECT {', '.join([*columns, 'file', 'broken'])} FROM "
            f"(SELECT file, {broken} AS broken, {extracts} FROM ({self._lines_sql(file)}))"
        )

    def _lines_sql(self, file: LocalFile | None) -> str:
        paths = ", ".join(
            quote_exact_path(path) for json_file, path in self._paths.items() if file in (None, json_file)
        )
        return (
            f"SELECT json, filename AS file FROM read_ndjson_objects([{paths}], ignore_errors = true, filename = true)"
        )

    def pop_rejected(self, _most: int | None = None) -> RejectedRows:
        """Return no rows: a broken line is a row whose `broken` column says why."""
        return RejectedRows()

    def locate_rows(self, file: LocalFile, rows: Sequence[int]) -> dict[int, str]:
        """Return the lines of the n-th rows of a file; empty lines don't count as rows."""
        row_numbers, positions = set(rows), {}
        for row, line in enumerate(_iterate_filled_lines(file), start=1):
            if row in row_numbers:
                positions[row] = f"{self._line_label} {line}"
                if len(positions) == len(row_numbers):
                    break
        return positions


def list_columns(
    facts: JsonFacts, expected: Sequence[str], text_format: TextFormat, files_label: str
) -> tuple[FileColumn, ...]:
    """Return the columns of lines with these facts; `expected` columns exist even if no object has them."""
    facts = sort_keys(facts)
    present = {name.lower() for name in facts.keys}
    keys = facts.keys | {name: "NULL" for name in expected if name.lower() not in present}
    check_column_names(keys, files_label)
    return tuple(
        replace(
            _make_column(name, structure or _MIXED, position, text_format),
            json_sql_name=f"j{position}",
            shapes=_list_shapes(facts, name),
        )
        for position, (name, structure) in enumerate(keys.items())
    )


def _find_key_order(file: LocalFile) -> KeyOrder:
    if file.split is not None:
        return file.split.key_order
    with open_file(file) as stream:
        return read_key_order(stream.read(HEAD_BYTES))


def _list_shapes(facts: JsonFacts, name: str) -> tuple[IcebergType, ...]:
    """Return, for a column with mixed values, the types of its objects and of its arrays."""
    shapes = [facts.objects.get(name), facts.arrays.get(name)]
    kinds = [_convert_structure(shape) for shape in shapes if shape is not None]
    return tuple(kind for kind in kinds if not kind.is_primitive)


def explain_broken_line(file: LocalFile, line: int) -> str | None:
    """Return what is wrong with a line, as exactly as Python's JSON parser reports it."""
    with open_file(file) as stream:
        for number, text in enumerate(stream, start=file.find_line(1)):
            if number == line:
                return _explain_line(text)
    return None


def read_raw_rows(file: LocalFile, lines: Collection[int]) -> dict[int, str]:
    """Return the text of these lines."""
    with open_file(file) as stream:
        return {
            number: text.rstrip(b"\r\n").decode(errors="replace")
            for number, text in enumerate(stream, start=file.find_line(1))
            if number in lines
        }


def _explain_line(text: bytes) -> str | None:
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        return f"byte 0x{text[error.start]:02x} at position {error.start} of the line is not UTF-8"
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg[0].lower()}{error.msg[1:]} at position {error.pos}"
    except RecursionError:
        return "it is nested too deeply"
    return None


def label_files(files: Sequence[LocalFile]) -> str:
    """Return a label for an error that concerns any one of several files."""
    return files[0].name if len(files) == 1 else f"{files[0].name} or another of {len(files)} files"


def _iterate_filled_lines(file: LocalFile) -> Iterator[int]:
    with open_file(file) as stream:
        for number, text in enumerate(stream, start=file.find_line(1)):
            if text.strip():
                yield number


def check_json_lines(file: LocalFile) -> None:
    """Refuse a JSON array, whose elements are not on lines of their own, and an empty file.

    A split of a file may begin with anything.
    """
    if file.split is not None:
        return
    with open_file(file) as stream:
        start = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        what = f"{file.name} is one JSON array; JSON lines have one object per line"
        raise Mistake("LOAD_JSON_ARRAY", what, at=f"{file.name}:1", fix="say --format json")
    if not start:
        raise Mistake("LOAD_FILE_EMPTY", f"{file.name} has no lines", at=file.name, fix="leave it out")


def _make_column(name: str, structure: Any, position: int, text_format: TextFormat) -> FileColumn:
    sql = f"v{position}"
    if structure in _NUMERIC:
        return FileColumn(name, sql, guesses=NUMBER_GUESSES, text_format=text_format)
    if structure == "VARCHAR":
        return FileColumn(name, sql, guesses=STRING_GUESSES, text_format=text_format)
    if structure == "BOOLEAN":
        return FileColumn(name, sql, guesses=("boolean",))
    kind = _convert_structure(structure)
    return (
        FileColumn(name, sql, text_format=text_format)
        if kind.is_primitive
        else FileColumn(name, sql, kind, is_json=True)
    )


def _convert_structure(structure: Any) -> IcebergType:
    """Return the type of a result of `json_group_structure`; mixed values and empty objects stay JSON text."""
    if isinstance(structure, dict):
        return (
            make_struct_type({name: _convert_structure(kind) for name, kind in structure.items()})
            if structure
            else StringType()
        )
    if isinstance(structure, list):
        return make_list_type(_convert_structure(structure[0]))
    return _LEAF_TYPES.get(structure, StringType())
