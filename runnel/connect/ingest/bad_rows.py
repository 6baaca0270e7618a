"""Convert bad rows of a source's files to rows of its quarantine table."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from runnel.connect.files import csv, jsonl
from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import BadRow
from runnel.connect.files.jsonl import JsonReader
from runnel.connect.load.quarantine import QuarantinedRow
from runnel.connect.load.type_inference import InferredTypes, list_bad_rows
from runnel.lake.scan.duckdb_types import quote_literal

if TYPE_CHECKING:
    import duckdb

    from runnel.connect.files.open_files import AnyReader


def build_quarantined_rows(
    con: "duckdb.DuckDBPyConnection",
    reader: "AnyReader",
    inferred: InferredTypes,
    files: Mapping[str, LocalFile],
    run: str,
) -> list[QuarantinedRow]:
    """Return every bad row with its text and all its reasons."""
    at = datetime.now(UTC)
    files_by_name = {file.name: file for file in files.values()}
    quarantined_rows: list[QuarantinedRow] = []
    for name, group in groupby(list_bad_rows(con, reader, inferred, files), key=lambda row: row.file):
        bad = list(group)
        texts = _read_row_texts(con, reader, files_by_name[name], [row for row in bad if row.raw is None])
        quarantined_rows += [
            QuarantinedRow(rows[0].raw or texts.get(rows[0].position), "; ".join(map(str, rows)), name, run, at)
            for rows in _group_by_row(bad)
        ]
    return quarantined_rows


def _group_by_row(bad: Sequence[BadRow]) -> Iterator[list[BadRow]]:
    """Yield what is wrong with each row; a row whose text the parser knows is wrong as a whole, in one way."""
    for _, group in groupby(bad, key=lambda row: row.position):
        rows = list(group)
        yield from ([row] for row in rows if row.raw is not None)
        wrong_values = [row for row in rows if row.raw is None]
        if wrong_values:
            yield wrong_values


def _read_row_texts(
    con: "duckdb.DuckDBPyConnection", reader: "AnyReader", file: LocalFile, bad: Sequence[BadRow]
) -> dict[str, str]:
    """Return the text of rows by their position: the line in the file, or for Parquet the row as JSON."""
    numbers = {int(row.position.split()[-1]): row.position for row in bad}
    if isinstance(reader, CsvReader):
        file_texts = csv.read_raw_rows(file, reader.options, numbers)
    elif isinstance(reader, JsonReader):
        file_texts = jsonl.read_raw_rows(file, numbers)
    else:
        file_texts = _read_rows_as_json(con, reader, file, numbers)
    return {numbers[number]: text for number, text in file_texts.items()}


def _read_rows_as_json(
    con: "duckdb.DuckDBPyConnection", reader: "AnyReader", file: LocalFile, numbers: dict[int, str]
) -> dict[int, str]:
    columns = ", ".join(f"{quote_literal(column.name)}: {column.sql_name}" for column in reader.columns)
    rows_before = file.split.first_row if file.split else 0
    rows = con.execute(
        f"SELECT row, CAST(to_json({{{columns}}}) AS VARCHAR) FROM (SELECT *, row_number() OVER () + {rows_before} "
        f"AS row FROM ({reader.build_select(file)})) WHERE list_contains(?, row)",
        [list(numbers)],
    ).fetchall()
    return dict(rows)
