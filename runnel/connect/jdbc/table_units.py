"""Read the rows of a database in work units: ranges of a table that share one snapshot, or a whole fetch as one unit.

The driver's connection holds the snapshot open, and asks for counts and checksums; it gets no rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows, FetchPlace
from runnel.connect.feed.target_comparison import TargetComparison
from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.connect.ingest.shared_scratch import SharedScratch
from runnel.connect.jdbc.bad_rows import check_key_is_unique
from runnel.connect.jdbc.database import FastReadFailed, SourceDatabase, open_snapshot
from runnel.connect.jdbc.row_files import DifferingRows
from runnel.connect.jdbc.row_reader import ReadResult, RowQuery, name_part, read_part, use_safe_columns
from runnel.connect.jdbc.table_inspection import TableInspection
from runnel.connect.jdbc.url import DatabaseAddress
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.lake.work_runner import ReportUnits
from runnel.model.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from runnel.connect.jdbc.feed import JdbcFeed

_NO_CHANGES = FeedChanges("")  # a fetch reads what there is


@dataclass(frozen=True)
class RangeUnit:
    """One of the ranges that a table is divided into, as a condition."""

    number: int
    condition: str


@dataclass(frozen=True)
class ReadRange:
    """The rows of a range. `needs_safe_read` tells that a value can't be read the fast way; then there are none."""

    parts: tuple[SharedFile, ...] = ()
    bad: tuple[QuarantinedRow, ...] = ()
    needs_safe_read: bool = False


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges in the snapshot that another connection holds; can be pickled."""

    address: DatabaseAddress
    at: str
    snapshot: str
    query: RowQuery
    scratch: SharedScratch

    def __call__(self, unit: RangeUnit) -> ReadRange:
        """Read a range into a file."""
        name = name_part(self.query, unit.number)
        query = replace(self.query, conditions=[unit.condition], name=name)
        try:
            with (
                self.scratch.open_folder() as folder,
                open_snapshot(self.address, self.at, self.snapshot) as database,
            ):
                result = read_part(database, query, folder.path / "rows.parquet")
                return ReadRange(folder.share_files(result.parts), result.bad)
        except FastReadFailed:
            return ReadRange(needs_safe_read=True)


@dataclass(frozen=True)
class KeyChecker:
    """Raises if a key occurs twice in some files; can be pickled."""

    inspection: TableInspection
    scratch: SharedScratch

    def __call__(self, parts: tuple[SharedFile, ...]) -> None:
        """Check files."""
        with self.scratch.open_files(parts) as files:
            check_key_is_unique(self.inspection, files)


@dataclass(frozen=True)
class RowComparer:
    """Writes the rows that the version `base` of a table lacks; can be pickled."""

    name: str
    base: str
    scratch: SharedScratch

    def __call__(self, parts: tuple[SharedFile, ...]) -> SharedFile | None:
        """Compare the rows of files; return None if the table has no rows."""
        with self.scratch.open_files(parts) as files, self.scratch.open_folder() as folder:
            path = folder.path / "differing.parquet"
            if not TargetComparison(self.scratch.files, self.base).write_differing_rows(files, path):
                return None
            [part] = folder.share_files([FetchedFile(path, self.name, "parquet")])
            return part


@dataclass(frozen=True)
class WholeFetch:
    """Fetches everything as one unit, in a snapshot of its own; can be pickled."""

    feed: "JdbcFeed" = field(repr=False)
    state: FeedState | None
    base: str | None
    scratch: SharedScratch

    def __call__(self, _number: int) -> FetchedRows:
        """Fetch; the files are shared."""
        self.feed.compare(TargetComparison(self.scratch.files, self.base))
        with self.scratch.open_folder() as folder:
            fetched = self.feed.fetch(self.state, _NO_CHANGES, folder.path, ignore_progress)
            return replace(
                fetched,
                parts=(),
                shared_parts=folder.share_files(fetched.parts),
                present_keys=tuple(Path(folder.share_path(path)) for path in fetched.present_keys),
            )


@dataclass(frozen=True)
class SharedRowFiles:
    """Files that units write. `base` is the version of the table that rows are compared with, if they are."""

    place: FetchPlace
    folder: Path
    base: str | None
    target: None = None

    @property
    def report_progress(self) -> Progress:
        """Return the callback for progress."""
        return self.place.report_progress

    def read(self, database: SourceDatabase, query: RowQuery, total: int | None) -> ReadResult:  # noqa: ARG002 - part of the protocol
        """Read the rows of a query, a unit for each of its conditions."""
        ranges = self._read_ranges(database, query)
        if any(read_range.needs_safe_read for read_range in ranges):
            ranges = self._read_ranges(database, use_safe_columns(query))
        return ReadResult(
            (),
            tuple(bad_row for read_range in ranges for bad_row in read_range.bad),
            tuple(part for read_range in ranges for part in read_range.parts),
        )

    def _read_ranges(self, database: SourceDatabase, query: RowQuery) -> Sequence[ReadRange]:
        units = [RangeUnit(number, condition) for number, condition in enumerate(query.conditions)]
        reader = RangeReader(database.address, database.at, database.hold_snapshot(), query, self.place.scratch)
        return self.place.runner.run(reader, units, self._report("reading"))

    def check_key(self, inspection: TableInspection, read_result: ReadResult) -> None:
        """Raise if a key occurs twice in what was read."""
        checker = KeyChecker(inspection, self.place.scratch)
        self.place.runner.run(checker, [read_result.shared_parts], self._report("checking"))

    def write_differing_rows(self, inspection: TableInspection, read_result: ReadResult) -> DifferingRows | None:
        """Write the rows that the table lacks; None if there is no table to compare with."""
        if self.base is None:
            return None
        comparer = RowComparer(inspection.name, self.base, self.place.scratch)
        [part] = self.place.runner.run(comparer, [read_result.shared_parts], self._report("comparing"))
        if part is None:
            return None
        key_files = tuple(Path(part.location) for part in read_result.shared_parts)
        return DifferingRows(ReadResult((), shared_parts=(part,)), key_files)

    def _report(self, activity: str) -> ReportUnits:
        return lambda done, total: self.place.report_progress(f"{activity} on executors", done, total)
