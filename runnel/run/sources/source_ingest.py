"""Stage the changes of one source, of files or of a feed: the same for a step of a run and for the continuous ingest.

They differ in how they detect changes: a run has them from its plan, the continuous ingest looks itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Source, quarantine_table_of
from runnel.errors import plural
from runnel.lake.work_runner import ChooseRunner, run_in_process

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from runnel.connect.feed.protocol import Feed, FeedChanges
    from runnel.connect.ingest.detect.file_changes import FileChanges, ProcessedFilesLoader
    from runnel.connect.ingest.ingest import IngestResult
    from runnel.lake.store import Store
    from runnel.model.progress import Progress
    from runnel.model.table_version import TableVersion
    from runnel.names import TableName
    from runnel.run.run_context import RunContext


@dataclass(frozen=True)
class SourceIngest:
    """Stages versions of one source's table, attributed to `run`. Its feed stays open, and so do its connections."""

    store: "Store"
    source: Source
    root: "Path"
    run: str
    spark: "Callable[[], SparkSession]"  # only for a source function that asks for it
    report_progress: "Progress"  # raises if the ingest has to stop
    choose_runner: ChooseRunner = run_in_process

    @cached_property
    def feed(self) -> "Feed":
        """Return the feed of a source other than files."""
        from runnel.connect.feed_registry import open_feed

        feed = open_feed(self.source, self.root, spark=self.spark, store=self.store)
        assert feed is not None
        return feed

    def stage(
        self,
        changes: "FileChanges | FeedChanges",
        heads: "Mapping[TableName, TableVersion]",
        load_position: "ProcessedFilesLoader",
    ) -> "IngestResult":
        """Stage the next version of the table onto its version in `heads`; `load_position` loads what was ingested."""
        from runnel.connect.ingest.detect.file_changes import FileChanges
        from runnel.connect.ingest.ingest import IngestResult, IngestTarget, ingest_source

        head, quarantine_head = heads.get(self.source.table), heads.get(quarantine_table_of(self.source.table))
        target = IngestTarget(
            self.store,
            self.source,
            head.location if head else None,
            quarantine_head.location if quarantine_head else None,
            self.run,
            self.report_progress,
            self.choose_runner,
        )
        if not isinstance(changes, FileChanges):
            from runnel.connect.feed.ingest_feed import ingest_feed
            from runnel.connect.feed.state import read_feed_state

            return ingest_feed(
                target, self.feed, read_feed_state(load_position()), changes, head.content if head else None
            )
        if changes.is_empty and head is not None:  # no row changes, but a later change of the file must find its rows
            return IngestResult(head.location, head.content, 0, 0, changes.moved_files)
        return ingest_source(target, self.root, changes, load_position)


def make_step_ingest(run_context: "RunContext", table: "TableName") -> SourceIngest:
    """Return the ingest of a source in a step of a run."""
    return SourceIngest(
        run_context.store,
        run_context.flow.sources[table],
        run_context.root,
        run_context.spec.run,
        lambda: run_context.acquire_slot().session,
        run_context.make_read_reporter(table),
        run_context.choose_runner_of(table),
    )


def build_row_warnings(staged: "IngestResult") -> tuple[str, ...]:
    """Return warnings about dropped rows and new columns."""
    messages = []
    if staged.dropped and staged.quarantine is None:
        messages.append(f"{plural(staged.dropped, 'bad row')} {'was' if staged.dropped == 1 else 'were'} dropped")
    if staged.new_columns:
        messages.append(f"new columns: {', '.join(staged.new_columns)}")
    return tuple(messages)
