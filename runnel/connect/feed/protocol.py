"""The protocol of feeds, which every kind of source except files implements, and its values.

A feed has a state, its position: a small JSON object stored with its table's version. `find_changes` reports what is
new since a state; it must be cheap and needs no Spark. `fetch` writes the new rows into files, which are read as usual.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from runnel.connect.ingest.bad_rows import QuarantineOutput
    from runnel.connect.ingest.shared_scratch import SharedScratch
    from runnel.connect.load.quarantined_row import QuarantinedRow
    from runnel.lake.work_runner import WorkRunner

FeedState = Mapping[str, Any]
READ_BY_ONE_PROCESS = "a source of this kind is read by one process"


@dataclass(frozen=True)
class FeedChanges:
    """What a feed has that its table lacks.

    `summary` is for users, such as "1,204 new messages in 3 partitions", or why there is nothing. `until` is private to
    the feed: the end of what it will fetch, so that a run reads exactly what the plan announced. `identity` identifies
    the rows if that is possible without reading them: the same text means the same rows. `replaces` tells that the rows
    replace all existing ones. `rows` are announced; `waiting_rows` are all that the table lacks, if that is more.
    `is_place_open` says that only the fetched rows tell where they can be read.
    `estimate_bytes` returns about how many bytes the rows have, if the feed is a `UnitFeed` that can fetch them in
    units; it may ask the system.
    """

    summary: str
    is_empty: bool = False
    until: FeedState | None = None
    rows: int | None = None
    bytes: int | None = None
    identity: str | None = None
    replaces: bool = False
    waiting_rows: int | None = None
    is_place_open: bool = False
    estimate_bytes: Callable[[], int] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class FetchedRows:
    """The fetched rows, and the state afterwards. The rows of all parts have the same columns.

    If units fetched them, they are in `shared_parts` instead of `parts`.

    - `append`: the rows are added to the existing ones.
    - `replace`: the rows replace all existing ones.
    - `upsert`: the rows replace those with the same `key`; each key occurs once. Rows whose key is in the Parquet file
      `removed_keys` are removed; if there are Parquet files `present_keys`, so are rows whose key is in none of them.
      `is_complete` tells that the table then has exactly the rows of the source.

    `bad_rows` are rows that the feed could not decode. If it wrote them to the quarantine or dropped them, such as
    invalid Avro messages, there are `quarantine_files` and their number, `dropped`, instead. `warnings` are for users,
    such as that messages expired. `oldest_at` is when, in seconds since 1970, the oldest row arrived in the system from
    which it was fetched, if that is known.
    """

    parts: tuple[FetchedFile, ...]
    state: FeedState
    identity: str
    mode: Literal["append", "replace", "upsert"] = "append"
    key: tuple[str, ...] = ()
    removed_keys: Path | None = None
    present_keys: tuple[Path, ...] = ()
    is_complete: bool = False
    bad_rows: "tuple[QuarantinedRow, ...]" = ()
    quarantine_files: "tuple[DataFile, ...]" = ()
    dropped: int = 0
    warnings: tuple[str, ...] = ()
    oldest_at: float | None = None
    shared_parts: tuple[SharedFile, ...] = ()


class Feed(Protocol):
    """A source other than files."""

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:
        """Return what is new since a state; None is the beginning. Raises Unreachable, or a Mistake with the fix.

        A feed whose rows are numbered announces about `max_rows` at a time, if set; other feeds ignore it.
        """

    def fetch(
        self, state: FeedState | None, changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Write the new rows into files below `folder`, which is empty and will be removed."""


@dataclass(frozen=True)
class FetchPlace:
    """Where units fetch rows: their runner, the folder for what they write, and the callback for progress.

    `base` is the location of the current version of the table, None if there is none.
    """

    runner: "WorkRunner"
    scratch: "SharedScratch"
    report_progress: Progress
    base: str | None = None


@runtime_checkable
class UnitFeed(Protocol):
    """A feed that can fetch in work units, on the executors of Spark."""

    def fetch_in_units(self, state: FeedState | None, changes: FeedChanges, place: FetchPlace) -> FetchedRows:
        """Fetch as `fetch` does, into files that all machines see; only called if `changes` has `estimate_bytes`."""


@runtime_checkable
class FrameFeed(Protocol):
    """A feed whose rows may be a frame of Spark."""

    def fetch_frame(
        self,
        state: FeedState | None,
        changes: FeedChanges,
        folder: Path,
        open_scratch: "Callable[[], SharedScratch]",
        report_progress: Progress,
    ) -> FetchedRows:
        """Fetch as `fetch` does; Spark writes the rows of a frame into files of a scratch folder."""


class TargetTable(Protocol):
    """The current version of the table that a feed fills."""

    def count_rows_after(self, parts: tuple[FetchedFile, ...], key: tuple[str, ...]) -> int:
        """Return how many rows the table has after an upsert of the rows of Parquet files."""

    def write_differing_rows(self, parts: tuple[FetchedFile, ...], path: Path) -> bool:
        """Write the rows of Parquet files that the table lacks to `path`; False, and no file, if there is no table."""


@runtime_checkable
class ComparingFeed(Protocol):
    """A feed that compares the fetched rows with its table, to find rows that differ or were removed."""

    def compare(self, target: TargetTable) -> None:
        """Remember the table; called before `fetch`."""


@runtime_checkable
class QuarantiningFeed(Protocol):
    """A feed in mode `append` that writes rows that it can't decode to the quarantine as it reads them."""

    def quarantine_to(self, output: "QuarantineOutput") -> None:
        """Remember where bad rows go; called before rows are fetched, if the source's `on_bad` is "quarantine"."""
