"""The feed of events that were pushed: what the inbox has until now. Its state is the number of the last one taken.

Imports nothing heavy: every plan asks it.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runnel.connect.feed.protocol import Fetched, News, Part, Progress, State
from runnel.declare.model.endpoints import Push
from runnel.declare.model.flow import Source
from runnel.errors import Broken, RunnelError
from runnel.lake.flow_state.inbox_level import Levels
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.flow_state.inbox_reader import Kept


class Events(Levels, Protocol):
    """The inboxes of the catalog database."""

    def kept(self, table: TableName, after: int, until: int) -> "Iterator[Kept]":
        """Yield the events after one number and up to another; the first and the last lot may hold more than that."""


class PushFeed:
    """Events of one source. At most `most` are announced at a time, if that is set.

    Whoever only asks what is new needs no more than `levels`; a run gives the `events` too.
    """

    most: int | None = None

    def __init__(self, source: Source, origin: Push, levels: Levels, events: Events | None = None) -> None:
        self._source = source
        self._origin = origin
        self._levels = levels
        self._events = events

    def news(self, state: State | None) -> News:
        """Return how many events came since a state."""
        level = self._levels.level(self._source.table)
        after = _number(state)
        if state is not None and after < level.gone:
            raise self._gone(level.gone - after)
        after = max(after, level.gone)
        until = level.last if self.most is None else min(level.last, after + self.most)
        count = until - after
        if not count and state is not None:
            return News("no new events", is_empty=True)
        told = f"{count:,} new event{'' if count == 1 else 's'}" if count else "nothing was pushed yet"
        return News(told, until={"after": after, "until": until}, rows=count, identity=self._identity(after, until))

    def fetch(self, state: State | None, news: News, folder: Path, tell: Progress) -> Fetched:
        """Write exactly the events that were announced into a file; line n of it is the n-th of them."""
        from runnel.lake.catalog.database import moment

        assert self._events is not None and news.until is not None and news.identity is not None
        after, until = int(news.until["after"]), int(news.until["until"])
        path, at, oldest_at, is_empty = folder / "events.jsonl", after, None, True
        with path.open("wb") as out:
            for kept in self._events.kept(self._source.table, after, until):
                if kept.first > at + 1:
                    break  # let go in the meantime
                oldest_at = oldest_at or moment(kept.received_at).timestamp()
                lines = _between(kept, after, until)
                is_empty = is_empty and not lines.strip()
                out.write(lines)
                at = min(kept.last, until)
                tell("reading events", at - after, until - after)
        if at < until:
            raise self._missing(at)
        if is_empty:  # or all were erased: the table gets its columns all the same
            return Fetched((), {"number": until}, news.identity)
        part = Part(path, f"{self._source.table} from {after + 1} to {until}", "jsonl")
        return Fetched((part,), {"number": until}, news.identity, oldest_at=oldest_at)

    def _identity(self, after: int, until: int) -> str:
        """Return what the rows are: these events, read this way."""
        read = [str(self._source.table), after, until, repr(self._origin.schema), self._source.partition]
        return f"push:{hashlib.sha256(json.dumps(read).encode()).hexdigest()}"

    def _missing(self, at: int) -> RunnelError:
        level = self._levels.level(self._source.table)
        if level.gone > at:
            return self._gone(level.gone - at)
        what = f"the inbox of `{self._source.table}` lacks the events after number {at:,}"
        return Broken("INBOX_DAMAGED", what, fix="restore the catalog database from a backup")

    def _gone(self, count: int) -> RunnelError:
        table = self._source.table
        what = (
            f"{count:,} event{'' if count == 1 else 's'} of `{table}` that this branch has not read are gone: the inbox"
        )
        what += " keeps events for a while after main has taken them in, and no longer"
        fix = f"merge main into this branch, or runnel rewind {table} --to REF, a later commit"
        return RunnelError("SOURCE_PUSH_GONE", what, at=str(self._source.place), fix=fix)


def _number(state: State | None) -> int:
    return int(state["number"]) if state is not None else 0


def _between(kept: "Kept", after: int, until: int) -> bytes:
    r"""Return those lines of a lot whose events are after one number and up to another.

    >>> from runnel.lake.flow_state.inbox_reader import Kept
    >>> _between(Kept(3, 5, b"a\nb\nc\n", ""), 3, 4)
    b'b\n'
    """
    if kept.first > after and kept.last <= until:
        return kept.body
    lines = kept.body.splitlines(keepends=True)
    return b"".join(lines[max(after + 1 - kept.first, 0) : until + 1 - kept.first])
