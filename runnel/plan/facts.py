"""The facts that a plan is made from. Whoever plans asks for them as it goes, so that a skip costs next to nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.plan.date_range import DateRange, DateSlices
from runnel.plan.slices import ChangedSlice


@dataclass(frozen=True)
class TaskResult:
    """What a task once made of some inputs; known on every branch, and also when its run failed elsewhere.

    `inputs` are the versions used. `code` is the fingerprint as it was stored, `columns` the columns of each input
    that were used. `why_whole` says why a change of its inputs always needs a full computation; it is empty where the
    changed slices or rows are enough, and None where that was not looked at.
    """

    table: TableName
    key: str
    head: TableVersion
    code: Mapping[str, Any]
    inputs: Mapping[TableName, TableVersion]
    run: str
    branch: str
    made_at: str
    rows: int | None = None
    quarantine: TableVersion | None = None
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    tally: tuple[int, int, int] | None = None  # rows, and the sums of two hashes over them
    slices: int | None = None  # how many it has, where it is computed by slices
    extends: str | None = None  # an earlier content that this is, but for columns that came
    full_reason: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)  # who made it how, beside the inputs


@dataclass(frozen=True)
class ChangeSize:
    """How a table changed between two versions, counted in files: rows that came, rows that went.

    `is_known` is false where the older version is gone. Rewritten files count on both sides.
    """

    rows_added: int = 0
    files_added: int = 0
    rows_removed: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    deletes: bool = False  # delete files came or went
    columns_added: tuple[str, ...] = ()
    columns_changed: bool = False  # a column went, was renamed or retyped
    is_known: bool = True


@dataclass(frozen=True)
class VersionSize:
    """How much a table holds."""

    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class SourceChanges:
    """What a source has that its table has not: how many files, and what the table's content will be."""

    new: int = 0
    changed: int = 0
    removed: int = 0
    renamed: int = 0  # their rows are there already; only the position moves
    bytes: int = 0
    content: str | None = None  # of the table afterwards, where it can be said without reading
    existing_version: TableVersion | None = None  # a version that has this content already
    problem: str | None = None  # such as: the glob matches no file
    unfinished_files: tuple[str, ...] = ()  # files that are left alone, since they are still being written
    description: str | None = None  # of a source that is no files: what it has
    rows: int | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do."""
        return not (self.new or self.changed or self.removed or self.description)


class Facts(Protocol):
    """What a planner may ask. Answers don't change while one plan is made."""

    def head(self, table: TableName) -> TableVersion | None:
        """Return a table as it is on the branch, or None where there is none."""

    def results(self, keys: Iterable[tuple[TableName, str]]) -> Mapping[tuple[TableName, str], TaskResult]:
        """Return the results that are known for these keys."""

    def latest_result(self, table: TableName, head: TableVersion) -> TaskResult | None:
        """Return the newest result whose content is the table's, or None where a task did not make it."""

    def recent_results(self, table: TableName) -> Sequence[TaskResult]:
        """Return the last few results of a table, on any branch and of failed runs too, newest first."""

    def find_versions(self, table: TableName, content: str) -> Sequence[TableVersion]:
        """Return a few retained versions of a table that have this content, newest first."""

    def change_size(self, table: TableName, before: TableVersion, after: TableVersion) -> ChangeSize:
        """Return how a table changed between two versions."""

    def changed_slices(
        self, table: TableName, before: TableVersion, after: TableVersion, expressions: tuple[str, ...]
    ) -> tuple[ChangedSlice, ...] | None:
        """Return the slices in which two versions differ, known by expressions; None where their files don't tell."""

    def slice_count(self, table: TableName, head: TableVersion, expressions: tuple[str, ...]) -> int | None:
        """Return how many slices a version has, known by expressions; None where only Spark can tell."""

    def date_slices(
        self, table: TableName, head: TableVersion, by: tuple[str, ...], days: DateRange
    ) -> DateSlices | None:
        """Return the slices of a version that lie in some days, where exactly one column of `by` is a date."""

    def columns(self, table: TableName, head: TableVersion) -> tuple[str, ...]:
        """Return the names of a version's columns."""

    def size(self, table: TableName, head: TableVersion) -> VersionSize | None:
        """Return how much a version holds, where it is known."""

    def source_changes(self, table: TableName) -> SourceChanges:
        """Return what the source of a table has for it."""

    def stream_positions(self, table: TableName) -> Mapping[TableName, str] | None:
        """Return the content of each table that a stream has read up to; None where it has not begun."""

    def find_version(self, table: TableName, content: str) -> TableVersion | None:
        """Return a version of a table with this content, on any branch, or None where none is retained."""
