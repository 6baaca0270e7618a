"""Read pushed events from the inbox as a feed. Its state is the number of the last event read.

Imports nothing heavy: every plan uses it.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.files.fetched_file import FetchedFile
from runnel.declare.model.endpoints import Push
from runnel.declare.model.flow import Source
from runnel.errors import CorruptData, RunnelError, plural
from runnel.lake.flow_state.inbox_level import InboxLevelReader
from runnel.model.progress import Progress
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.flow_state.inbox_reader import InboxBatch


class EventInbox(InboxLevelReader, Protocol):
    """The inboxes of the catalog database."""

    def read_batches(self, table: TableName, after: int, until: int) -> "Iterator[InboxBatch]":
        """Yield the events after one number and up to another; the first and the last batch may contain more."""


class PushFeed:
    """The feed of one source's events.

    `levels` is enough to find what is new; a run that fetches passes `events` too.
    """

    def __init__(
        self, source: Source, origin: Push, levels: InboxLevelReader, events: EventInbox | None = None
    ) -> None:
        self._source = source
        self._origin = origin
        self._levels = levels
        self._events = events

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:
        """Return how many events were pushed since a state; at most `max_rows` are announced at a time."""
        level = self._levels.read_level(self._source.table)
        after = _last_number(state)
        if state is not None and after < level.last_removed:
            raise self._expired_events_error(level.last_removed - after)
        after = max(after, level.last_removed)
        until = level.last if max_rows is None else min(level.last, after + max_rows)
        count = until - after
        if not count and state is not None:
            return FeedChanges("no new events", is_empty=True)
        summary = plural(count, "new event") if count else "nothing was pushed yet"
        return FeedChanges(
            summary, until={"after": after, "until": until}, rows=count, identity=self._identity(after, until)
        )

    def fetch(
        self, _state: FeedState | None, changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Write exactly the announced events into a file, one per line."""
        from runnel.lake.catalog.database import parse_time

        assert self._events is not None and changes.until is not None and changes.identity is not None
        after, until = int(changes.until["after"]), int(changes.until["until"])
        path, last_read, oldest_at, is_empty = folder / "events.jsonl", after, None, True
        with path.open("wb") as out:
            for event_batch in self._events.read_batches(self._source.table, after, until):
                if event_batch.first > last_read + 1:
                    break  # the events between were removed from the inbox meanwhile
                oldest_at = oldest_at or parse_time(event_batch.received_at).timestamp()
                lines = _select_lines(event_batch, after, until)
                is_empty = is_empty and not lines.strip()
                out.write(lines)
                last_read = min(event_batch.last, until)
                report_progress("reading events", last_read - after, until - after)
        if last_read < until:
            raise self._missing_events_error(last_read)
        if is_empty:  # there are no events, or all were erased: the table gets its columns anyway
            return FetchedRows((), {"number": until}, changes.identity)
        part = FetchedFile(path, f"{self._source.table} from {after + 1} to {until}", "jsonl")
        return FetchedRows((part,), {"number": until}, changes.identity, oldest_at=oldest_at)

    def _identity(self, after: int, until: int) -> str:
        """Return an id of the rows: these events, read with these options."""
        read_options = [str(self._source.table), after, until, repr(self._origin.schema), self._source.partition]
        return f"push:{hashlib.sha256(json.dumps(read_options).encode()).hexdigest()}"

    def _missing_events_error(self, last_read: int) -> RunnelError:
        level = self._levels.read_level(self._source.table)
        if level.last_removed > last_read:
            return self._expired_events_error(level.last_removed - last_read)
        what = f"the inbox of `{self._source.table}` lacks the events after number {last_read:,}"
        return CorruptData("INBOX_DAMAGED", what, fix="restore the catalog database from a backup")

    def _expired_events_error(self, count: int) -> RunnelError:
        table = self._source.table
        what = f"{plural(count, 'event')} of `{table}` that this branch has not read are no longer available: the inbox"
        what += " keeps events only for a while after main has ingested them"
        fix = f"merge main into this branch, or runnel rewind {table} --to REF, a later commit"
        return RunnelError("SOURCE_PUSH_GONE", what, at=str(self._source.place), fix=fix)


def _last_number(state: FeedState | None) -> int:
    return int(state["number"]) if state is not None else 0


def _select_lines(event_batch: "InboxBatch", after: int, until: int) -> bytes:
    r"""Return those lines of a lot whose events are after one number and up to another.

    >>> from runnel.lake.flow_state.inbox_reader import InboxBatch
    >>> _select_lines(InboxBatch(3, 5, b"a\nb\nc\n", ""), 3, 4)
    b'b\n'
    """
    if event_batch.first > after and event_batch.last <= until:
        return event_batch.body
    lines = event_batch.body.splitlines(keepends=True)
    return b"".join(lines[max(after + 1 - event_batch.first, 0) : until + 1 - event_batch.first])
