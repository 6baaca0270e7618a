"""Read JSON lines with DuckDB: one object per line, the columns being the keys of all objects.

Numbers and strings come as text, so that the same rules hold as for CSV; arrays and objects as JSON.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.types import BooleanType, DoubleType, IcebergType, LongType, StringType, UnknownType

from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import Incoming, Rejected, checked_names
from runnel.connect.files.scratch_files import Scratch, opened
from runnel.connect.files.text_values import NUMBERS, STRINGS, USUAL, Writing
from runnel.connect.iceberg_types import list_of, struct_of
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import exact_path, literal

if TYPE_CHECKING:
    import duckdb

_LEAVES: dict[str, IcebergType] = {
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
        files: Sequence[File],
        scratch: Scratch,
        expected: Sequence[str] = (),
        *,
        writing: Writing = USUAL,
        place: str = "line",
    ) -> None:
        """Open files; columns that are `expected` are there, all null, though no object has them.

        `place` is what a line of these files is called by people.
        """
        self._place = place
        for file in files:
            check_lines(file)
        self._paths = {file: scratch.readable(file) for file in files}
        objects = f"({self._lines(None)}) WHERE json_type(json) = 'OBJECT'"
        found = con.execute(f"SELECT json_group_structure(json) FROM {objects}").fetchone()
        keys: dict[str, Any] = json.loads(found[0]) if found and found[0] else {}
        keys = keys if isinstance(keys, dict) else {}
        present = {name.lower() for name in keys}
        keys |= {name: "NULL" for name in expected if name.lower() not in present}
        checked_names(keys, listed_name(files))
        shapes = _shapes(con, objects, [name for name, kind in keys.items() if kind == _MIXED])
        self.columns = tuple(
            replace(_column(name, kind, position, writing), raw=f"j{position}", shapes=shapes.get(name, ()))
            for position, (name, kind) in enumerate(keys.items())
        )

    def rows(self, file: File | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        pointers = ", ".join(literal(_pointer(column.name)) for column in self.columns)
        columns = []
        for position, column in enumerate(self.columns, start=1):
            value = f"nullif(nested[{position}], 'null')" if column.json else f"plain[{position}]"
            columns += [f"{value} AS {column.sql}", f"nullif(nested[{position}], 'null') AS {column.raw}"]
        broken = (
            "CASE WHEN json IS NULL THEN 'it is not JSON' WHEN json_type(json) <> 'OBJECT' THEN 'it is no object' END"
        )
        # All keys are taken in one go: each call parses the line anew.
        plain, nested = (f"{word}(json, [{pointers}])" for word in ("json_extract_string", "json_extract"))
        parts = f"{plain} AS plain, {nested} AS nested" if pointers else "1 AS nothing"
        return (
            f"SELECT {', '.join([*columns, 'file', 'broken'])} FROM "
            f"(SELECT file, {broken} AS broken, {parts} FROM ({self._lines(file)}))"
        )

    def _lines(self, file: File | None) -> str:
        paths = ", ".join(exact_path(path) for each, path in self._paths.items() if file in (None, each))
        return (
            f"SELECT json, filename AS file FROM read_ndjson_objects([{paths}], ignore_errors = true, filename = true)"
        )

    def rejected(self, most: int | None = None) -> Rejected:
        """Return nothing: a broken line is a row that says so."""
        return Rejected()

    def places(self, file: File, rows: Sequence[int]) -> dict[int, str]:
        """Return the lines of the n-th rows of a file; empty lines are no rows."""
        wanted, found = set(rows), {}
        for row, line in enumerate(_filled_lines(file), start=1):
            if row in wanted:
                found[row] = f"{self._place} {line}"
                if len(found) == len(wanted):
                    break
        return found


def why_broken(file: File, line: int) -> str | None:
    """Return what is wrong with a line, as exactly as Python's parser says it."""
    with opened(file) as stream:
        for number, text in enumerate(stream, start=1):
            if number == line:
                return _why(text)
    return None


def raw_rows(file: File, lines: Collection[int]) -> dict[int, str]:
    """Return the text of these lines."""
    with opened(file) as stream:
        return {
            number: text.rstrip(b"\r\n").decode(errors="replace")
            for number, text in enumerate(stream, start=1)
            if number in lines
        }


def _why(text: bytes) -> str | None:
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        return f"byte 0x{text[error.start]:02x} at position {error.start} of the line is not UTF-8"
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg[0].lower()}{error.msg[1:]} at position {error.pos}"
    except RecursionError:
        return "it is nested too deeply"
    return None


def listed_name(files: Sequence[File]) -> str:
    """Return how to call files of which one, no matter which, is meant."""
    return files[0].name if len(files) == 1 else f"{files[0].name} or another of {len(files)} files"


def _filled_lines(file: File) -> Iterator[int]:
    with opened(file) as stream:
        for number, text in enumerate(stream, start=1):
            if text.strip():
                yield number


def check_lines(file: File) -> None:
    """Refuse a JSON array, whose elements don't stand on lines of their own, and an empty file."""
    with opened(file) as stream:
        start = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        what = f"{file.name} is one JSON array; JSON lines have one object per line"
        raise Mistake("LOAD_JSON_ARRAY", what, at=f"{file.name}:1", fix="say --format json")
    if not start:
        raise Mistake("LOAD_FILE_EMPTY", f"{file.name} has no lines", at=file.name, fix="leave it out")


def _pointer(name: str) -> str:
    """Return the JSON pointer of a key.

    >>> _pointer("a/b~c")
    '/a~1b~0c'
    """
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _column(name: str, structure: Any, position: int, writing: Writing) -> Incoming:
    sql = f"v{position}"
    if structure in _NUMERIC:
        return Incoming(name, sql, guesses=NUMBERS)
    if structure == "VARCHAR":
        return Incoming(name, sql, guesses=STRINGS, writing=writing)
    if structure == "BOOLEAN":
        return Incoming(name, sql, guesses=("boolean",))
    kind = _nested(structure)
    return Incoming(name, sql) if kind.is_primitive else Incoming(name, sql, kind, json=True)


def _shapes(con: "duckdb.DuckDBPyConnection", objects: str, names: Sequence[str]) -> dict[str, tuple[IcebergType, ...]]:
    """Return the types of the objects and of the arrays among the values of columns that have others too."""
    wanted = []
    for name in names:
        value = f"json_extract(json, {literal(_pointer(name))})"
        for kind in ("OBJECT", "ARRAY"):
            wanted += [f"json_group_structure(CASE WHEN json_type({value}) = '{kind}' THEN {value} END)"]
    if not wanted:
        return {}
    found = con.execute(f"SELECT {', '.join(wanted)} FROM {objects}").fetchall()[0]
    kinds = [_nested(json.loads(text)) if text else None for text in found]
    return {
        name: tuple(kind for kind in kinds[2 * at : 2 * at + 2] if kind is not None and not kind.is_primitive)
        for at, name in enumerate(names)
    }


def _nested(structure: Any) -> IcebergType:
    """Return the type of what `json_group_structure` found; mixed values and empty objects stay JSON text."""
    if isinstance(structure, dict):
        return struct_of({name: _nested(kind) for name, kind in structure.items()}) if structure else StringType()
    if isinstance(structure, list):
        return list_of(_nested(structure[0]))
    return _LEAVES.get(structure, StringType())
