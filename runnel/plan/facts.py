"""Define the facts that a plan is made from. The planner requests each when needed, so that a skip costs little."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runnel.model.change_size import ChangeSize, VersionSize
from runnel.model.date_range import DateRange, DateSlices
from runnel.model.slice_key import ChangedSlice
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName


@dataclass(frozen=True)
class SourceChanges:
    """The changes of a source that its table lacks: how many files, and the table's next content."""

    new: int = 0
    changed: int = 0
    removed: int = 0
    renamed: int = 0  # their rows exist already; only the position changes
    bytes: int = 0
    content: str | None = None  # of the table afterwards, if it is known without reading
    existing_version: TableVersion | None = None  # a version that already has this content
    problem: str | None = None  # such as: the glob matches no file
    unfinished_files: tuple[str, ...] = ()  # files that are skipped because they are still being written
    missing_files: int = 0  # files that are gone and whose rows stay
    description: str | None = None  # what a source other than files has
    rows: int | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not (self.new or self.changed or self.removed or self.description)


class Facts(Protocol):
    """The facts that a planner may request. They don't change while one plan is made."""

    def head(self, table: TableName) -> TableVersion | None:
        """Return the current version of a table on the branch, or None if it does not exist."""

    def results(self, keys: Iterable[tuple[TableName, str]]) -> Mapping[tuple[TableName, str], TaskResult]:
        """Return the existing results for these keys."""

    def latest_result(self, table: TableName, head: TableVersion) -> TaskResult | None:
        """Return the newest result with the table's content, or None if no task created it."""

    def recent_results(self, table: TableName) -> Sequence[TaskResult]:
        """Return the last few results of a table on any branch, including those of failed runs, newest first."""

    def find_versions(self, table: TableName, content: str) -> Sequence[TableVersion]:
        """Return a few retained versions of a table that have this content, newest first."""

    def change_size(self, table: TableName, before: TableVersion, after: TableVersion) -> ChangeSize:
        """Return how a table changed between two versions."""

    def changed_slices(
        self, table: TableName, before: TableVersion, after: TableVersion, expressions: tuple[str, ...]
    ) -> tuple[ChangedSlice, ...] | None:
        """Return the slices in which two versions differ, named by expressions; None if file metadata is not enough."""

    def slice_count(self, table: TableName, head: TableVersion, expressions: tuple[str, ...]) -> int | None:
        """Return how many slices a version has, named by expressions; None if only Spark can count them."""

    def date_slices(
        self, table: TableName, head: TableVersion, by: tuple[str, ...], days: DateRange
    ) -> DateSlices | None:
        """Return a version's slices of some days; None unless exactly one column of `by` is a date."""

    def columns(self, table: TableName, head: TableVersion) -> tuple[str, ...]:
        """Return the names of a version's columns."""

    def size(self, table: TableName, head: TableVersion) -> VersionSize | None:
        """Return the size of a version, or None if it is not known."""

    def source_changes(self, table: TableName) -> SourceChanges:
        """Return the changes of a table's source that the table lacks."""

    def stream_positions(self, table: TableName) -> Mapping[TableName, str] | None:
        """Return the content of each table that a stream has read up to; None if it has not started."""

    def find_version(self, table: TableName, content: str) -> TableVersion | None:
        """Return a version of a table with this content, on any branch, or None if none is retained."""
