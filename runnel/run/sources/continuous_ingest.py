"""Take in a source on and on: what is new becomes a commit, each time without a run of its own.

A feed is kept, so that its connections are. Needs no Spark, but for a function that asks for it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from runnel.declare.model.endpoints import Files, Kafka, Push
from runnel.declare.model.flow import Source, quarantine_of
from runnel.errors import Moved
from runnel.lake.flow_state import ingest_positions
from runnel.lake.history.commits import Change, sequence
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish
from runnel.run.sources import failpoints
from runnel.run.sources.file_source import warnings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from runnel.connect.feed.protocol import Feed, News
    from runnel.connect.feed.push_feed import PushFeed
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.connect.ingest.ingest import Ingested
    from runnel.connect.kafka.feed import KafkaFeed
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.lake.history.commits import Commit, State
    from runnel.lake.store import Store

    Look = Callable[[Source, "State", "dict[str, Seen]"], Found | None]
    """Says what the files of a source mean for its table."""

MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class Taken:
    """What one intake took in. `detail` is what is kept of it: rows, times, how old the oldest of them was."""

    commit: str
    detail: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass
class Intake:
    """The intake of one source on a branch. `run` is what its commits are ascribed to."""

    store: "Store"
    source: Source
    root: "Path"
    branch: str
    run: str
    look: "Look"
    spark: "Callable[[], SparkSession]"
    check: Callable[[], None]  # raises where it is to stop

    def take(self) -> Taken | None:
        """Publish what is new; None where nothing is, or where it has to look again."""
        started, store, table = time.monotonic(), self.store, self.source.table
        commit = store.commit(self.branch)
        position = ingest_positions.seen(store.db, commit, table)
        found = self._found(store.state(commit), position)
        if found is None:
            return None
        asked = time.monotonic()
        with pinned(store.db, "write") as pin:
            planned = store.db.read(sequence)
            now = store.commit(self.branch)
            if now.id != commit.id and ingest_positions.seen(store.db, now, table) != position:
                return None  # somebody else has read of it meanwhile
            state = store.state(now)
            made = self._staged(found, state, position)
            failpoints.reach(failpoints.TAKEN)
            changes = self._changes(state, made)
            if not changes and not made.seen:
                return None
            try:
                done = self._published(made, changes, planned, pin)
            except Moved:
                return None
        detail = {"rows": made.rows, "input_rows": made.rows, "set_aside": made.dropped}
        detail["ask_ms"] = round(1000 * (asked - started))
        detail["total_ms"] = round(1000 * (time.monotonic() - started))
        if made.oldest_at is not None:
            detail["oldest_ms"] = max(round(1000 * (time.time() - made.oldest_at)), 0)
        told = warnings(made.dropped, made.new_columns, bool(made.quarantine))
        return Taken(done.id, detail, (*told, *made.warnings, *made.unread))

    @cached_property
    def _feed(self) -> "Feed | None":
        from runnel.connect.feed_registry import feed_of

        found = feed_of(self.source, self.root, spark=self.spark, store=self.store)
        if isinstance(self.source.origin, Kafka | Push):
            # A backlog comes in several commits, each of which is soon there.
            cast("KafkaFeed | PushFeed", found).most = MOST_ROWS
        return found

    def _found(self, state: "State", position: "dict[str, Seen]") -> "Found | News | None":
        if isinstance(self.source.origin, Files):
            found = self.look(self.source, state, position)
            return None if found is None or (found.is_empty and not found.renamed) else found
        from runnel.connect.feed.state import state_of

        assert self._feed is not None
        news = self._feed.news(state_of(position))
        return None if news.is_empty else news

    def _staged(self, found: "Found | News", state: "State", position: "dict[str, Seen]") -> "Ingested":
        table, source = self.source.table, self.source
        head, aside = state.get(table), state.get(quarantine_of(table))
        from runnel.connect.ingest.detect.file_changes import Found
        from runnel.connect.ingest.ingest import Ingested, read

        there, aside_at = head.location if head else None, aside.location if aside else None
        if not isinstance(found, Found):
            from runnel.connect.feed.ingest_feed import take
            from runnel.connect.feed.state import state_of

            assert self._feed is not None
            was, content = state_of(position), head.content if head else None
            return take(self.store, source, self._feed, was, found, there, content, aside_at, self.run, self._tell)
        if found.is_empty and head is not None:  # no row changes, but a later change of the file must find its rows
            return Ingested(head.location, head.content, 0, 0, found.moved)
        return read(
            self.store,
            source,
            self.root,
            found,
            there,
            lambda: position,
            quarantine=aside_at,
            run=self.run,
            progress=self._tell,
        )

    def _tell(self, what: str, done: int, total: int | None) -> None:
        self.check()

    def _changes(self, state: "State", made: "Ingested") -> tuple[Change, ...]:
        table, detail = self.source.table, {"run": self.run}
        was, aside = state.get(table), quarantine_of(table)
        found = []
        if was is None or was.location != made.location:
            found.append(Change(table, was.location if was else None, made.location, made.content, detail))
        if made.quarantine is not None:
            before = state.get(aside)
            more = {"of": str(table)}
            found.append(Change(aside, before.location if before else None, *made.quarantine, more))
        return tuple(found)

    def _published(self, made: "Ingested", changes: tuple[Change, ...], planned: int, pin: str) -> "Commit":
        draft = Draft(
            self.branch,
            f"{made.rows:,} rows of {self.source.table}",
            self.store.author,
            changes,
            kind="stream",
            run=self.run,
            planned=planned,
            pin=pin,
            seen=tuple((self.source.table, one) for one in made.seen),
        )
        return publish(self.store.db, draft)
