"""Read rows of a database into Parquet files, with one connection or with several that share a snapshot."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.connect.jdbc.database import DatabaseColumn, FastReadFailed, SourceDatabase
from runnel.connect.jdbc.value_conversion import arrow_schema, convert_batch
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.model.progress import Progress, ignore_progress

GROUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ReadResult:
    """Files with all rows except the `bad` ones; if units read them, they are `shared_parts`."""

    parts: tuple[FetchedFile, ...]
    bad: tuple[QuarantinedRow, ...] = ()
    shared_parts: tuple[SharedFile, ...] = ()


class _RowCounter:
    """Counts the rows of all connections, reports progress, and stops the other connections when one has failed."""

    def __init__(self, report_progress: Progress, total: int | None) -> None:
        self._report_progress = report_progress
        self._total = total
        self._rows = 0
        self._lock = threading.Lock()
        self.has_failed = False

    def add(self, rows: int) -> None:
        with self._lock:
            if self.has_failed:
                raise _OtherConnectionFailed
            self._rows += rows
            total = self._total if self._total is None or self._total >= self._rows else None
            self._report_progress("reading", self._rows, total)


class _OtherConnectionFailed(Exception):
    """Another connection has failed."""


@dataclass(frozen=True)
class RowQuery:
    """The rows of a relation that match any of the conditions. `name` is that of the relation, for users."""

    columns: Sequence[DatabaseColumn]
    relation: str
    conditions: Sequence[str]
    name: str


def read_rows(
    database: SourceDatabase, query: RowQuery, folder: Path, report_progress: Progress, total: int | None = None
) -> ReadResult:
    """Read the rows of a query into files; several conditions are read by one connection each."""
    try:
        return _read_parts(database, query, folder, _RowCounter(report_progress, total))
    except FastReadFailed:
        return _read_parts(database, use_safe_columns(query), folder, _RowCounter(report_progress, total))


def use_safe_columns(query: RowQuery) -> RowQuery:
    """Return a query that reads any value, after the fast one failed."""
    safe_columns = [replace(column, read=column.safe or column.read, safe=None) for column in query.columns]
    return replace(query, columns=safe_columns)


def name_part(query: RowQuery, number: int) -> str:
    """Return the name of the rows of one condition."""
    count = len(query.conditions)
    return query.name if count == 1 else f"{query.name}, part {number + 1} of {count}"


def read_part(database: SourceDatabase, query: RowQuery, path: Path) -> ReadResult:
    """Read the rows of a query with one condition into a file."""
    return _read_part(database, query, path, _RowCounter(ignore_progress, None))


def _read_parts(database: SourceDatabase, query: RowQuery, folder: Path, counter: _RowCounter) -> ReadResult:
    conditions = query.conditions
    if len(conditions) == 1:
        return _read_part(database, query, folder / "rows.parquet", counter)
    part_count = len(conditions)

    def work(number: int, condition: str) -> ReadResult:
        path, part_name = folder / f"rows-{number}.parquet", name_part(query, number)
        try:
            with database.share_snapshot() as connection:
                return _read_part(connection, replace(query, conditions=[condition], name=part_name), path, counter)
        except BaseException:
            counter.has_failed = True
            raise

    with ThreadPoolExecutor(part_count, thread_name_prefix="runnel-jdbc") as pool:
        futures = [pool.submit(work, number, condition) for number, condition in enumerate(conditions)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, _OtherConnectionFailed)), errors[0])
    results = [future.result() for future in futures]
    return ReadResult(
        tuple(part for result in results for part in result.parts),
        tuple(bad_row for result in results for bad_row in result.bad),
    )


def _read_part(database: SourceDatabase, query: RowQuery, path: Path, counter: _RowCounter) -> ReadResult:
    """Read the rows of a query with one condition into a file."""
    columns, name, [condition] = query.columns, query.name, query.conditions
    bad: list[QuarantinedRow] = []
    tables: list[pa.Table] = []
    size = 0
    with (
        _open_writer(path, columns) as writer,
        closing(database.batches(columns, f"{query.relation} WHERE {condition}")) as batches,
    ):
        for batch in batches:
            converted = convert_batch(batch, columns, name)
            bad += converted.bad
            tables.append(converted.rows)
            size += converted.rows.nbytes
            counter.add(converted.rows.num_rows + len(converted.bad))
            if size >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(tables))
                tables, size = [], 0
        if tables:
            writer.write_table(pa.concat_tables(tables))
    return ReadResult((FetchedFile(path, name, "parquet"),), tuple(bad))


def _open_writer(path: Path, columns: Sequence[DatabaseColumn]) -> pq.ParquetWriter:
    """Return a Parquet writer tuned for speed, not size: the file is read once, right away and in full."""
    return pq.ParquetWriter(
        path, arrow_schema(columns), compression="lz4", use_dictionary=False, write_statistics=False
    )
