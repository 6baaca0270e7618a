"""The facts for plans, asked of the lake and of the sources as they are needed.

Nothing that a skip or a reuse needs opens a file of the lake: the catalog database knows it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import quarantine_of
from runnel.plan.facts import Arrivals, Head, Movement, Result, Size
from runnel.project.planning.source_answers import Asked

if TYPE_CHECKING:
    from runnel.connect.feed.protocol import News
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.declare.model.flow import Flow
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.lake.history.commits import Commit, State
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.date_range import Dated, Days
    from runnel.plan.slices import Slice

_COLUMN = re.compile(r"`[^`]+`|\w+")


class LakeFacts:
    """Facts about one state of the lake. `state` may hold versions that are not published yet."""

    def __init__(
        self,
        store: "Store",
        flow: "Flow",
        branch: str,
        commit: "Commit",
        state: "State",
        asked: Asked | None = None,
    ) -> None:
        self._store = store
        self._flow = flow
        self._branch = branch
        self._commit = commit
        self._heads = {table: Head(version.location, version.content) for table, version in state.items()}
        self._asked = asked or Asked(flow)
        self._movements: dict[tuple[str, str], Movement] = {}
        self._slices: dict[tuple[str, str, tuple[str, ...]], tuple[Slice, ...] | None] = {}
        self._dated: dict[tuple[object, ...], Dated | None] = {}

    def head(self, table: "TableName") -> Head | None:
        """Return a table as it is, or None where there is none."""
        return self._heads.get(table)

    def results(self, keys: "Iterable[tuple[TableName, str]]") -> "Mapping[tuple[TableName, str], Result]":
        """Return the results that are known for these keys."""
        from runnel.lake.flow_state import results

        return results.by_keys(self._store.db, keys)

    def made(self, table: "TableName", head: Head) -> Result | None:
        """Return the newest result whose content is the table's."""
        from runnel.lake.flow_state import results

        return results.made(self._store.db, table, head.content)

    def recent(self, table: "TableName") -> "tuple[Result, ...]":
        """Return the last few results of a table, newest first."""
        from runnel.lake.flow_state import results

        return results.recent(self._store.db, table)

    def versions(self, table: "TableName", content: str) -> "tuple[Head, ...]":
        """Return a few retained versions of a table that have this content, newest first."""
        from runnel.lake.flow_state import ingest_positions

        return tuple(Head(at, content) for at in ingest_positions.versions_with(self._store.db, table, content))

    def movement(self, table: "TableName", before: Head, after: Head) -> Movement:
        """Return how a table changed between two versions, counted in files."""
        from runnel.lake.diff.change_size import movement

        key = (before.location, after.location)
        if key not in self._movements:
            found = movement(self._store, table, before.location, after.location)
            made = self.made(table, after) if found.columns_added and not found.columns_changed else None
            if made is not None and made.extends == before.content:
                # Every file was rewritten, and yet the columns that were there have the rows that they had.
                found = Movement(columns_added=found.columns_added)
            self._movements[key] = found
        return self._movements[key]

    def slices(
        self, table: "TableName", before: Head, after: Head, expressions: tuple[str, ...]
    ) -> "tuple[Slice, ...] | None":
        """Return the slices in which two versions differ; None where their files don't tell."""
        from runnel.lake.diff.changed_slices import named

        if not all(_COLUMN.fullmatch(text) for text in expressions):
            return None
        key = (before.location, after.location, expressions)
        if key not in self._slices:
            self._slices[key] = named(self._store, table, before.location, after.location, expressions)
        return self._slices[key]

    def slice_count(self, table: "TableName", head: Head, expressions: tuple[str, ...]) -> int | None:
        """Return how many slices a version has; None where only Spark can tell."""
        from runnel.lake.diff.changed_slices import count

        if not all(_COLUMN.fullmatch(text) for text in expressions):
            return None
        return count(self._store, head.location, expressions)

    def dated(self, table: "TableName", head: Head, by: tuple[str, ...], days: "Days") -> "Dated | None":
        """Return the slices of a version that lie in some days, where exactly one column of `by` is a date."""
        from runnel.lake.diff.date_slices import dated

        key = (head.location, by, days.first, days.last)
        if key not in self._dated:
            self._dated[key] = dated(self._store, head.location, by, days)
        return self._dated[key]

    def columns(self, table: "TableName", head: Head) -> tuple[str, ...]:
        """Return the names of a version's columns."""
        from runnel.lake.iceberg.table_metadata import load

        return tuple(field.name for field in load(self._store, head.location).schema().fields)

    def size(self, table: "TableName", head: Head) -> Size | None:
        """Return how much a version holds."""
        from runnel.lake.diff.change_size import size

        return size(self._store, head.location)

    def arrivals(self, table: "TableName") -> Arrivals:
        """Return what the source of a table has for it."""
        if (news := self.news(table)) is not None:
            return self._fed(table, news)
        found = self.found(table)
        if found is None:
            return Arrivals()
        known = None
        if not found.is_empty and found.content is not None and self._may_reuse(table):
            version = self._known(table, found.content)
            known = Head(version, found.content) if version and not self._lacks_rows(table, found) else None
        return Arrivals(
            new=len(found.new),
            changed=len(found.changed),
            gone=len(found.gone),
            renamed=len(found.renamed),
            bytes=found.bytes,
            content=found.content,
            known=known,
            problem=found.problem,
            left=found.left,
        )

    def _may_reuse(self, table: "TableName") -> bool:
        """Tell whether a known version is all that there is to a source: not so where rows may be in quarantine."""
        return self._flow.sources[table].on_bad != "quarantine" and quarantine_of(table) not in self._heads

    def _lacks_rows(self, table: "TableName", changes: "Found") -> bool:
        """Tell whether a known version lacks bad rows of these files that stop a run of this source."""
        from runnel.lake.flow_state.ingest_positions import was_incomplete

        identities = [arrival.identity for arrival in changes.reads]
        return self._flow.sources[table].on_bad == "stop" and was_incomplete(self._store.db, table, identities)

    def found(self, table: "TableName") -> "Found | None":
        """Return the files of a source that came, changed or went; None for a source that has none."""
        return self._asked.files(table, self._commit.id, lambda: self._look(table))

    def news(self, table: "TableName") -> "News | None":
        """Return what a source that is no files has; None for one of files."""
        from runnel.lake.flow_state.inbox_reader import Inbox

        return self._asked.news(table, lambda: self.seen(table), Inbox(self._store.db))

    def _fed(self, table: "TableName", news: "News") -> Arrivals:
        if news.is_empty:
            return Arrivals(problem=None if table in self._heads else news.told)
        head, content = self._heads.get(table), None
        if news.identity is not None:
            from runnel.lake.diff.content_id import of_files

            content = of_files(head.content if head and not news.replaces else None, [news.identity])
        return Arrivals(told=news.told, rows=news.rows, bytes=news.bytes or 0, content=content)

    def seen(self, table: "TableName") -> "dict[str, Seen]":
        """Return what a source has already given to its table."""
        from runnel.lake.flow_state import ingest_positions

        return ingest_positions.seen(self._store.db, self._commit, table)

    def position(self, table: "TableName") -> "dict[str, Seen]":
        """Return everything that was ever read for a table of files, by path, also what was removed."""
        from runnel.lake.flow_state import ingest_positions

        return self._store.db.read(lambda connection: ingest_positions.position(connection, self._commit, table))

    def reached(self, table: "TableName") -> "Mapping[TableName, str] | None":
        """Return how far a stream of this branch has read; None where it has not begun."""
        from runnel.lake.flow_state.streams import streams
        from runnel.run.stream.stream_inputs import reached

        found = self._store.db.read(streams).get((self._branch, table))
        return reached(self._store, found) if found and found.query else None

    def known(self, table: "TableName", content: str) -> Head | None:
        """Return a version of a table with this content, on any branch, or None where none is retained."""
        version = self._known(table, content)
        return Head(version, content) if version else None

    def _look(self, table: "TableName") -> "Found | None":
        return look(self._flow, table, self._heads.get(table), lambda: self.position(table), self._store.storage)

    def _known(self, table: "TableName", content: str) -> str | None:
        """Return a version that has this content already, on any branch."""
        from runnel.lake.flow_state import ingest_positions

        return ingest_positions.version_with(self._store.db, table, content)


def look(
    flow: "Flow",
    table: "TableName",
    head: Head | None,
    seen: "Callable[[], dict[str, Seen]]",
    storage: Mapping[str, str],
) -> "Found | None":
    """Return what the files of a source mean for its table; None for a source that has none."""
    from runnel.connect.ingest.detect.arrivals import arrivals
    from runnel.connect.ingest.detect.digests import DigestCache
    from runnel.plan.fingerprint.declared_options import source_fingerprint

    source = flow.sources[table]
    if not isinstance(source.origin, Files):
        return None
    cache = DigestCache(flow.root / ".runnel" / "digests.db")
    return arrivals(
        flow.root, source, source_fingerprint(source), seen(), head.content if head else None, cache, storage
    )
