"""Provide the facts for plans, read from the lake and the sources when they are needed.

A skip or a reuse never opens a file of the lake: the catalog database has all facts for it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import quarantine_table_of
from runnel.model.change_size import ChangeSize, VersionSize
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.plan.facts import SourceChanges
from runnel.project.planning.source_answers import SourceAnswers

if TYPE_CHECKING:
    from runnel.connect.feed.protocol import FeedChanges
    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.declare.model.flow import Flow
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.lake.history.commits import Commit, LakeState
    from runnel.lake.store import Store
    from runnel.model.date_range import DateRange, DateSlices
    from runnel.model.slice_key import ChangedSlice
    from runnel.names import TableName

_COLUMN = re.compile(r"`[^`]+`|\w+")


class LakeFacts:
    """Facts about one state of the lake. `state` may hold versions that are not published yet."""

    def __init__(
        self,
        store: "Store",
        flow: "Flow",
        branch: str,
        commit: "Commit",
        state: "LakeState",
        *,
        answers: SourceAnswers | None = None,
    ) -> None:
        self._store = store
        self._flow = flow
        self._branch = branch
        self._commit = commit
        self._heads = dict(state)
        self._answers = answers or SourceAnswers(flow)
        self._movements: dict[tuple[str, str], ChangeSize] = {}
        self._slices: dict[tuple[str, str, tuple[str, ...]], tuple[ChangedSlice, ...] | None] = {}
        self._dated: dict[tuple[object, ...], DateSlices | None] = {}

    def head(self, table: "TableName") -> TableVersion | None:
        """Return the current version of a table, or None if it does not exist."""
        return self._heads.get(table)

    def results(self, keys: "Iterable[tuple[TableName, str]]") -> "Mapping[tuple[TableName, str], TaskResult]":
        """Return the stored results for these keys."""
        from runnel.lake.flow_state import results

        return results.find_by_keys(self._store.db, keys)

    def latest_result(self, table: "TableName", head: TableVersion) -> TaskResult | None:
        """Return the newest result whose content is the table's."""
        from runnel.lake.flow_state import results

        return results.find_by_content(self._store.db, table, head.content)

    def recent_results(self, table: "TableName") -> "tuple[TaskResult, ...]":
        """Return the last few results of a table, newest first."""
        from runnel.lake.flow_state import results

        return results.list_recent(self._store.db, table)

    def find_versions(self, table: "TableName", content: str) -> "tuple[TableVersion, ...]":
        """Return a few retained versions of a table that have this content, newest first."""
        from runnel.lake.flow_state import ingest_positions

        return tuple(
            TableVersion(location, content)
            for location in ingest_positions.find_versions_with_content(self._store.db, table, content)
        )

    def change_size(self, table: "TableName", before: TableVersion, after: TableVersion) -> ChangeSize:
        """Return how a table changed between two versions, counted in files."""
        from runnel.lake.diff.change_size import measure_change

        key = (before.location, after.location)
        if key not in self._movements:
            change = measure_change(self._store, table, before.location, after.location)
            result = self.latest_result(table, after) if change.columns_added and not change.columns_changed else None
            if result is not None and result.extends == before.content:
                # Every file was rewritten, but the existing columns have the same rows as before.
                change = ChangeSize(columns_added=change.columns_added)
            self._movements[key] = change
        return self._movements[key]

    def changed_slices(
        self, table: "TableName", before: TableVersion, after: TableVersion, expressions: tuple[str, ...]
    ) -> "tuple[ChangedSlice, ...] | None":
        """Return the slices in which two versions differ; None if their files don't show it."""
        from runnel.lake.diff.changed_slices import find_changed_slices

        if not all(_COLUMN.fullmatch(text) for text in expressions):
            return None
        key = (before.location, after.location, expressions)
        if key not in self._slices:
            self._slices[key] = find_changed_slices(self._store, table, before.location, after.location, expressions)
        return self._slices[key]

    def slice_count(self, _table: "TableName", head: TableVersion, expressions: tuple[str, ...]) -> int | None:
        """Return how many slices a version has; None if only Spark can compute it."""
        from runnel.lake.diff.changed_slices import count_slices

        if not all(_COLUMN.fullmatch(text) for text in expressions):
            return None
        return count_slices(self._store, head.location, expressions)

    def date_slices(
        self, _table: "TableName", head: TableVersion, by: tuple[str, ...], days: "DateRange"
    ) -> "DateSlices | None":
        """Return the slices of a version that lie in some days, if exactly one column of `by` is a date."""
        from runnel.lake.diff.date_slices import find_date_slices

        key = (head.location, by, days.first, days.last)
        if key not in self._dated:
            self._dated[key] = find_date_slices(self._store, head.location, by, days)
        return self._dated[key]

    def columns(self, _table: "TableName", head: TableVersion) -> tuple[str, ...]:
        """Return the names of a version's columns."""
        from runnel.lake.iceberg.table_metadata import load_metadata

        return tuple(field.name for field in load_metadata(self._store, head.location).schema().fields)

    def size(self, _table: "TableName", head: TableVersion) -> VersionSize | None:
        """Return the size of a version."""
        from runnel.lake.diff.change_size import read_table_size

        return read_table_size(self._store, head.location)

    def source_changes(self, table: "TableName") -> SourceChanges:
        """Return what the source of a table has that the table lacks."""
        if (news := self.feed_changes(table)) is not None:
            return self._describe_feed(table, news)
        changes = self.file_changes(table)
        if changes is None:
            return SourceChanges()
        existing_version = None
        if not changes.is_empty and changes.content is not None and self._can_reuse(table):
            version = self._find_version(table, changes.content)
            existing_version = (
                TableVersion(version, changes.content) if version and not self._lacks_rows(table, changes) else None
            )
        return SourceChanges(
            new=len(changes.new),
            changed=len(changes.changed),
            removed=len(changes.removed),
            renamed=len(changes.renamed),
            bytes=changes.bytes,
            content=changes.content,
            existing_version=existing_version,
            problem=changes.problem,
            unfinished_files=changes.unfinished,
            missing_files=len(changes.missing),
        )

    def _can_reuse(self, table: "TableName") -> bool:
        """Return whether an existing version can be reused for a source: not if rows may be in quarantine."""
        return self._flow.sources[table].on_bad != "quarantine" and quarantine_table_of(table) not in self._heads

    def _lacks_rows(self, table: "TableName", changes: "FileChanges") -> bool:
        """Return whether an existing version lacks bad rows of these files that would stop a run of this source."""
        from runnel.lake.flow_state.ingest_positions import has_incomplete_read

        identities = [arrival.identity for arrival in changes.files_to_read]
        return self._flow.sources[table].on_bad == "stop" and has_incomplete_read(self._store.db, table, identities)

    def file_changes(self, table: "TableName") -> "FileChanges | None":
        """Return the files of a source that were added, changed or removed; None for a source without files."""
        return self._answers.file_changes(table, self._commit.id, lambda: self._read_file_changes(table))

    def feed_changes(self, table: "TableName") -> "FeedChanges | None":
        """Return the changes of a source that is not made of files; None for a source of files."""
        from runnel.lake.flow_state.inbox_reader import InboxReader

        return self._answers.feed_changes(table, lambda: self.processed_files(table), InboxReader(self._store.db))

    def _describe_feed(self, table: "TableName", news: "FeedChanges") -> SourceChanges:
        if news.is_empty:
            return SourceChanges(problem=None if table in self._heads else news.summary)
        head, content = self._heads.get(table), None
        if news.identity is not None:
            from runnel.lake.diff.content_id import content_of_files

            content = content_of_files(head.content if head and not news.replaces else None, [news.identity])
        return SourceChanges(description=news.summary, rows=news.rows, bytes=news.bytes or 0, content=content)

    def processed_files(self, table: "TableName") -> "dict[str, ProcessedFile]":
        """Return what was already ingested from a source into its table."""
        from runnel.lake.flow_state import ingest_positions

        return ingest_positions.read_processed_files(self._store.db, self._commit, table)

    def position(self, table: "TableName") -> "dict[str, ProcessedFile]":
        """Return every file that was ever read for a table, by path, including removed files."""
        from runnel.lake.flow_state import ingest_positions

        return self._store.db.read(lambda connection: ingest_positions.read_position(connection, self._commit, table))

    def stream_positions(self, table: "TableName") -> "Mapping[TableName, str] | None":
        """Return how far a stream of this branch has read; None if it has not started."""
        from runnel.lake.flow_state.streams import list_streams
        from runnel.run.stream.stream_inputs import find_reached_contents

        stream = self._store.db.read(list_streams).get((self._branch, table))
        return find_reached_contents(self._store, stream) if stream and stream.query else None

    def find_version(self, table: "TableName", content: str) -> TableVersion | None:
        """Return a version of a table with this content, on any branch, or None if none is retained."""
        version = self._find_version(table, content)
        return TableVersion(version, content) if version else None

    def _read_file_changes(self, table: "TableName") -> "FileChanges | None":
        return read_file_changes(
            self._flow, table, self._heads.get(table), lambda: self.position(table), self._store.storage
        )

    def _find_version(self, table: "TableName", content: str) -> str | None:
        """Return the location of a version that already has this content, on any branch."""
        from runnel.lake.flow_state import ingest_positions

        return ingest_positions.find_version_with_content(self._store.db, table, content)


def read_file_changes(
    flow: "Flow",
    table: "TableName",
    head: TableVersion | None,
    read_position: "Callable[[], dict[str, ProcessedFile]]",
    storage: Mapping[str, str],
) -> "FileChanges | None":
    """Return how the files of a source differ from what its table has; None for a source without files."""
    from runnel.connect.ingest.detect.arrivals import find_file_changes
    from runnel.connect.ingest.detect.digests import DigestCache
    from runnel.plan.fingerprint.declared_options import fingerprint_source

    source = flow.sources[table]
    if not isinstance(source.origin, Files):
        return None
    cache = DigestCache(flow.root / ".runnel" / "digests.db")
    content = head.content if head else None
    return find_file_changes(
        flow.root, source, fingerprint_source(source), read_position(), content, cache=cache, storage=storage
    )
