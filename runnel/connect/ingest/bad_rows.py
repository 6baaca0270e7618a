"""Bad rows of a source's files, as rows of its quarantine table."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from runnel.connect.files import csv, jsonl
from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import BadRow
from runnel.connect.files.jsonl import JsonReader
from runnel.connect.load.quarantine import Aside
from runnel.connect.load.type_inference import Settled, bad_rows
from runnel.lake.scan.duckdb_types import literal

if TYPE_CHECKING:
    import duckdb

    from runnel.connect.files.open_files import AnyReader


def set_aside(
    con: "duckdb.DuckDBPyConnection", reader: "AnyReader", settled: Settled, files: dict[str, File], run: str
) -> list[Aside]:
    """Return every bad row with its text and all that is wrong with it."""
    at = datetime.now(UTC)
    named = {file.name: file for file in files.values()}
    found: list[Aside] = []
    for name, group in groupby(bad_rows(con, reader, settled, files), key=lambda row: row.file):
        bad = list(group)
        texts = _texts(con, reader, named[name], bad)
        found += [Aside(texts.get(place), "; ".join(reasons), name, run, at) for place, reasons in _by_place(bad)]
    return found


def _by_place(bad: Sequence[BadRow]) -> Iterator[tuple[str, list[str]]]:
    for place, group in groupby(bad, key=lambda row: row.place):
        yield place, [str(row) for row in group]


def _texts(con: "duckdb.DuckDBPyConnection", reader: "AnyReader", file: File, bad: Sequence[BadRow]) -> dict[str, str]:
    """Return the text of rows by their place: the line as it stands in the file, or for Parquet its JSON."""
    known = {row.place: row.raw for row in bad if row.raw is not None}
    numbers = {int(row.place.split()[-1]): row.place for row in bad if row.place not in known}
    if isinstance(reader, CsvReader):
        found = csv.raw_rows(file, reader.options, numbers)
    elif isinstance(reader, JsonReader):
        found = jsonl.raw_rows(file, numbers)
    else:
        found = _as_json(con, reader, file, numbers)
    return known | {numbers[number]: text for number, text in found.items()}


def _as_json(
    con: "duckdb.DuckDBPyConnection", reader: "AnyReader", file: File, numbers: dict[int, str]
) -> dict[int, str]:
    columns = ", ".join(f"{literal(column.name)}: {column.sql}" for column in reader.columns)
    rows = con.execute(
        f"SELECT row, CAST(to_json({{{columns}}}) AS VARCHAR) FROM "
        f"(SELECT *, row_number() OVER () AS row FROM ({reader.rows(file)})) WHERE list_contains(?, row)",
        [list(numbers)],
    ).fetchall()
    return dict(rows)
