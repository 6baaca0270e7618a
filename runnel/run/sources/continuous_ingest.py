"""Ingest a source continuously: each batch of changes becomes a commit, without a run of its own.

The feed stays open, and so do its connections. Needs no Spark, except for a source function that asks for it, and for a
batch that executors read.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source, quarantine_table_of
from runnel.errors import VersionConflict
from runnel.lake.flow_state import ingest_positions
from runnel.lake.history.commits import CommitChange, read_sequence
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.work_runner import ChooseRunner, run_in_process
from runnel.model.table_version import TableVersion
from runnel.run.sources import failpoints
from runnel.run.sources.source_ingest import SourceIngest, build_row_warnings
from runnel.run.table_changes import TableUpdate, table_changes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from runnel.connect.feed.protocol import FeedChanges
    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.connect.ingest.ingest import IngestResult
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.lake.history.commits import Commit, LakeState
    from runnel.lake.store import Store

    FindFileChanges = Callable[[Source, "LakeState", "dict[str, ProcessedFile]"], FileChanges | None]
    """Find the file changes of a source since a position."""

MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class IngestCommit:
    """A commit of ingested changes. `detail` is recorded: rows, times, and the age of the oldest row."""

    commit: str
    detail: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceOffer:
    """What a source has that its table lacks, as far as that is known without reading it; None if it is not known."""

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None

    @property
    def amount(self) -> int:
        """Return the number of rows, or else of files; 0 if nothing is known to wait."""
        return (self.files if self.rows is None else self.rows) or 0


_NO_ROWS, _NO_FILES = SourceOffer(rows=0), SourceOffer(files=0, bytes=0)


class OfferObserver(Protocol):
    """Gets to know what a source has before it is ingested, and what is left afterwards."""

    def record_offer(self, offer: SourceOffer) -> None:
        """Record what a look at the source has found."""

    def record_ingest(self, offer: SourceOffer, remaining: SourceOffer) -> None:
        """Record that a part of an offer, or all of it, was published."""


@dataclass
class ContinuousIngest:
    """Ingest one source on a branch. Its commits are attributed to `run`.

    `choose_runner` says for each batch where it is read.
    """

    store: "Store"
    source: Source
    root: "Path"
    branch: str
    run: str
    find_file_changes: "FindFileChanges"
    spark: "Callable[[], SparkSession]"
    raise_if_stopped: Callable[[], None]  # raises if the ingest has to stop
    observer: OfferObserver | None = None
    choose_runner: ChooseRunner = run_in_process

    def ingest_once(self) -> IngestCommit | None:
        """Publish what is new; return None if nothing is, or if another process was faster."""
        started, store, table = time.monotonic(), self.store, self.source.table
        commit = store.commit(self.branch)
        position = ingest_positions.read_processed_files(store.db, commit, table)
        source_changes = self._find_changes(store.state(commit), position)
        offer, remaining = _describe_offer(self.source, source_changes)
        if self.observer is not None:
            self.observer.record_offer(offer)
        if source_changes is None:
            return None
        looked_at = time.monotonic()
        with acquire_pin(store.db, "write") as pin:
            planned = store.db.read(read_sequence)
            current_commit = store.commit(self.branch)
            if (
                current_commit.id != commit.id
                and ingest_positions.read_processed_files(store.db, current_commit, table) != position
            ):
                return None  # another process has ingested from it meanwhile
            state = store.state(current_commit)
            staged = self._ingest.stage(source_changes, state, lambda: position)
            failpoints.reach(failpoints.SOURCE_STAGED)
            changes = self._list_changes(state, staged)
            if not changes and not staged.processed_files:
                return None
            try:
                published = self._publish_changes(staged, changes, planned, pin)
            except VersionConflict:
                return None
        if self.observer is not None:
            self.observer.record_ingest(offer, remaining)
        detail = {"rows": staged.rows, "input_rows": staged.rows, "set_aside": staged.dropped}
        detail["ask_ms"] = round(1000 * (looked_at - started))
        detail["total_ms"] = round(1000 * (time.monotonic() - started))
        if staged.oldest_at is not None:
            detail["oldest_ms"] = max(round(1000 * (time.time() - staged.oldest_at)), 0)
        warnings = (*build_row_warnings(staged), *staged.warnings, *staged.unread_reasons)
        return IngestCommit(published.id, detail, warnings)

    @cached_property
    def _ingest(self) -> SourceIngest:
        return SourceIngest(
            self.store, self.source, self.root, self.run, self.spark, self._on_progress, self.choose_runner
        )

    def _find_changes(
        self, state: "LakeState", position: "dict[str, ProcessedFile]"
    ) -> "FileChanges | FeedChanges | None":
        if isinstance(self.source.origin, Files):
            file_changes = self.find_file_changes(self.source, state, position)
            return (
                None if file_changes is None or (file_changes.is_empty and not file_changes.renamed) else file_changes
            )
        from runnel.connect.feed.state import read_feed_state

        # A backlog is published in several commits, each of which is soon visible.
        feed_changes = self._ingest.feed.find_changes(read_feed_state(position), max_rows=MOST_ROWS)
        return None if feed_changes.is_empty else feed_changes

    def _on_progress(self, _text: str, _done: int, _total: int | None) -> None:
        self.raise_if_stopped()

    def _list_changes(self, state: "LakeState", staged: "IngestResult") -> tuple[CommitChange, ...]:
        table, updates = self.source.table, list[TableUpdate]()
        existing = state.get(table)
        if existing is None or existing.location != staged.location:
            updates.append(TableUpdate(table, TableVersion(staged.location, staged.content), {"run": self.run}))
        if staged.quarantine is not None:
            quarantine = TableVersion(*staged.quarantine)
            updates.append(TableUpdate(quarantine_table_of(table), quarantine, {"of": str(table)}))
        return table_changes(state, updates)

    def _publish_changes(
        self, staged: "IngestResult", changes: tuple[CommitChange, ...], planned: int, pin: str
    ) -> "Commit":
        draft = CommitDraft(
            self.branch,
            f"{staged.rows:,} rows of {self.source.table}",
            self.store.author,
            changes,
            kind="stream",
            run=self.run,
            planned_sequence=planned,
            pin=pin,
            processed_files=tuple((self.source.table, processed_file) for processed_file in staged.processed_files),
        )
        return publish(self.store.db, draft)


def _describe_offer(source: Source, changes: "FileChanges | FeedChanges | None") -> tuple[SourceOffer, SourceOffer]:
    """Return what a source has, and what is left once its announced changes are ingested."""
    from runnel.connect.ingest.detect.file_changes import FileChanges

    if changes is None:
        nothing = _NO_FILES if isinstance(source.origin, Files) else _NO_ROWS
        return nothing, nothing
    if isinstance(changes, FileChanges):
        return SourceOffer(files=len(changes.files_to_read), bytes=changes.bytes), _NO_FILES
    announced_rows, waiting_rows = changes.rows, changes.waiting_rows
    if announced_rows is None:
        return SourceOffer(), SourceOffer()  # such as an API, which has to be read to know
    all_rows = max(announced_rows, waiting_rows or 0)
    return SourceOffer(rows=all_rows), SourceOffer(rows=all_rows - announced_rows)
