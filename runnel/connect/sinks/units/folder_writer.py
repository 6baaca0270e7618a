"""Write the files of a folder sink in work units. Each attempt writes into a folder of its own, which the driver reads.

So a unit that runs twice leaves files that nobody publishes. Rows of a partition meet in one bucket, so that it is one
file, as one process writes it. Without partitions each unit of data files becomes a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.file_locations import FileLocation, StagedFile
from runnel.connect.sinks.file_sink import FileErrors
from runnel.connect.sinks.folder_layout import FolderLayout
from runnel.connect.sinks.net_rows import ADDED_VIEW, REMOVED_VIEW
from runnel.connect.sinks.table_change import ChangedFiles
from runnel.connect.sinks.units.bucket_rows import TouchedPartitions, open_bucket, run_by_key
from runnel.connect.sinks.units.change_rows import ChangeRows
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.row_pieces import decode_piece, encode_piece
from runnel.lake.scan.scan_units import ScanUnit, build_scan_units

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.lake.work_runner import WorkRunner


@dataclass(frozen=True)
class FolderTarget:
    """How a unit writes files, and where to; can be pickled."""

    layout: FolderLayout
    location: FileLocation
    staging: str
    errors: FileErrors

    def write(self, con: "duckdb.DuckDBPyConnection", rows: str, file_number: int = 0) -> tuple[StagedFile, ...]:
        """Write the rows of a SELECT, and return the files."""
        with self.errors.translate(self.location), self.location.open_attempt(self.staging) as attempt:
            self.layout.write(con, rows, attempt.folder / "new", file_number)
            staged_files = attempt.keep(attempt.folder / "new")
            failpoints.reach(failpoints.STAGING)
            return staged_files


@dataclass(frozen=True)
class NumberedUnit:
    """Some data files, and the number of the file that they become."""

    number: int
    files: ScanUnit


@dataclass(frozen=True)
class UnitFileWriter:
    """Writes all rows of a unit into one file."""

    rows: ChangeRows
    target: FolderTarget

    def __call__(self, unit: NumberedUnit) -> tuple[StagedFile, ...]:
        """Write a unit."""
        with translate_duckdb_errors(), connect_duckdb() as con:
            return self.target.write(con, self.rows.build_sql(unit.files), unit.number)


@dataclass(frozen=True)
class BucketFileWriter:
    """Writes the partitions of a bucket."""

    rows: ChangeRows
    target: FolderTarget

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> tuple[StagedFile, ...]:
        """Write a bucket."""
        with open_bucket(self.rows.columns, pieces, has_only_added_rows=True) as con:
            return self.target.write(con, f"FROM {ADDED_VIEW}")


@dataclass(frozen=True)
class TouchedBucket:
    """The partitions of a bucket in which rows were added or removed, as an Arrow piece, and how many rows."""

    partitions: bytes
    changed_rows: int


@dataclass(frozen=True)
class PartitionFinder:
    """Finds the partitions that a change touches."""

    rows: ChangeRows
    partition: tuple[str, ...]
    has_only_added_rows: bool

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> TouchedBucket:
        """Return those of a bucket."""
        names = ", ".join(map(quote_identifier, self.partition))
        with open_bucket(self.rows.columns, pieces, has_only_added_rows=self.has_only_added_rows) as con:
            sql = f"SELECT {names} FROM {ADDED_VIEW} UNION SELECT {names} FROM {REMOVED_VIEW}"
            partitions = encode_piece(con.sql(sql).to_arrow_table())
            counts = f"SELECT (SELECT count(*) FROM {ADDED_VIEW}) + (SELECT count(*) FROM {REMOVED_VIEW})"
            ((changed_rows,),) = con.execute(counts).fetchall()
            return TouchedBucket(partitions, int(changed_rows))


@dataclass(frozen=True)
class UnitFolderWriter:
    """Lets a runner find the touched partitions of a change and write its files."""

    change: "OutgoingChange"
    runner: "WorkRunner"
    target: FolderTarget
    is_staged: ClassVar[bool] = True

    def find_touched(self) -> "tuple[pa.Table, int]":
        """Return the partitions in which rows were added or removed, and how many rows."""
        import pyarrow as pa

        files, rows, partition = self.change.changed_files, ChangeRows.of(self.change), self.target.layout.partition
        finder = PartitionFinder(rows, partition, files.has_only_added_rows)
        buckets = run_by_key(self.runner, rows, files, partition, merge=finder, report_units=self._report_units)
        tables = [decode_piece(bucket.partitions)[1] for bucket in buckets]
        return pa.concat_tables(tables), sum(bucket.changed_rows for bucket in buckets)

    def write(self, touched: "pa.Table | None") -> tuple[StagedFile, ...]:
        """Write all rows, or those of the touched partitions."""
        rows, entries = ChangeRows.of(self.change), self.change.list_all_files()
        if not self.target.layout.partition:
            scan_units = build_scan_units(entries, self.runner.parallel_units) or [ScanUnit(())]
            units = [NumberedUnit(number, files) for number, files in enumerate(scan_units)]
            return _join(self.runner.run(UnitFileWriter(rows, self.target), units, self._report_units))
        partition = self.target.layout.partition
        filtered_rows = TouchedPartitions(partition, encode_piece(touched)) if touched is not None else None
        results = run_by_key(
            self.runner,
            rows,
            ChangedFiles((), entries, has_only_added_rows=True),
            partition,
            merge=BucketFileWriter(rows, self.target),
            report_units=self._report_units,
            touched=filtered_rows,
        )
        return _join(results)

    def _report_units(self, done: int, total: int) -> None:
        work = self.change.work
        if work is not None and work.report_units is not None:
            work.report_units(done, total)


def _join(results: Sequence[tuple[StagedFile, ...]]) -> tuple[StagedFile, ...]:
    return tuple(staged_file for files in results for staged_file in files)
