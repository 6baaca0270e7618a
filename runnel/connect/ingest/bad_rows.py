"""Convert bad rows of a source's files to rows of its quarantine table.

They are written where they are read, one file after the other, so that no process holds them all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from runnel.connect.files import csv, jsonl
from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import BadRow
from runnel.connect.files.jsonl import JsonReader
from runnel.connect.load import quarantine, quarantine_files
from runnel.connect.load.quarantine_files import BufferedQuarantineWriter, QuarantineFileWriter, find_owner
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.connect.load.type_inference import FilesWithBadRows, InferredTypes, iterate_bad_rows
from runnel.lake.scan.duckdb_types import quote_literal

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.connect.files.open_files import AnyReader
    from runnel.connect.ingest.ingest import IngestTarget
    from runnel.lake.warehouse_files import FileAccess


@dataclass(frozen=True)
class SetAside:
    """Bad rows that were set aside: data files of the quarantine table, or rows that are not written yet.

    `examples` are some of the rows that were written.
    """

    files: "tuple[DataFile, ...]" = ()
    rows: tuple[QuarantinedRow, ...] = ()
    examples: tuple[QuarantinedRow, ...] = ()


@dataclass(frozen=True)
class QuarantineTarget:
    """A version of the quarantine table, with this `metadata`, that bad rows are written for; can be pickled.

    `restore` returns a bad row as it is written, for files that stand for others. So many examples are wanted.
    """

    metadata: "TableMetadata"
    restore: Callable[[QuarantinedRow], QuarantinedRow] | None = None
    example_count: int = 0


def load_quarantine_metadata(target: "IngestTarget") -> "TableMetadata | None":
    """Return the metadata of the quarantine table that bad rows are written for, if they are set aside."""
    if target.source.on_bad != "quarantine":
        return None
    return quarantine.load_or_build_metadata(target.store, target.quarantine, target.source.table)


@dataclass(frozen=True)
class QuarantineOutput:
    """Where bad rows go: to data files for the `target`, or back to the caller if there is none.

    `owners` are those of the files' rows, by the name of the file. With `shares_files` rows share data files even if
    they are of few files: other units have bad rows of others.
    """

    store: "FileAccess"
    run: str
    target: QuarantineTarget | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    shares_files: bool = False

    def open_writer(self) -> BufferedQuarantineWriter | None:
        """Return a writer for rows that come one by one, if there is a target."""
        return BufferedQuarantineWriter(self.store, self.target.metadata) if self.target is not None else None

    def set_aside(
        self,
        con: "duckdb.DuckDBPyConnection",
        reader: "AnyReader",
        inferred: InferredTypes,
        bad_files: FilesWithBadRows,
    ) -> SetAside:
        """Set aside every bad row, with its text and all its reasons."""
        rows_by_file = _iterate_quarantined_rows(con, reader, inferred, bad_files, self.run)
        target = self.target
        if target is None:
            return SetAside(rows=tuple(row for rows in rows_by_file for row in rows))
        shares_files = self.shares_files or len(bad_files.names) >= quarantine_files.LEAST_SHARED
        writer = QuarantineFileWriter(self.store, target.metadata, shares_files=shares_files)
        examples: list[QuarantinedRow] = []
        for rows in rows_by_file:
            written_rows = [target.restore(row) for row in rows] if target.restore is not None else rows
            writer.write(find_owner(written_rows[0], self.owners), written_rows)
            examples += written_rows[: target.example_count - len(examples)]
        return SetAside(files=tuple(writer.close()), examples=tuple(examples))


def _iterate_quarantined_rows(
    con: "duckdb.DuckDBPyConnection",
    reader: "AnyReader",
    inferred: InferredTypes,
    bad_files: FilesWithBadRows,
    run: str,
) -> Iterator[list[QuarantinedRow]]:
    """Yield the bad rows of each file."""
    at = datetime.now(UTC)
    for name, bad in iterate_bad_rows(con, reader, inferred, bad_files):
        texts = _read_row_texts(con, reader, bad_files.files[name], [row for row in bad if row.raw is None])
        yield [
            QuarantinedRow(rows[0].raw or texts.get(rows[0].position), "; ".join(map(str, rows)), name, run, at)
            for rows in _group_by_row(bad)
        ]


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
