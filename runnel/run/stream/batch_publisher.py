"""The batches of a stream: each is written onto its table as it is then, checked, and published with its number."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.connect.feed.upsert import displaced
from runnel.errors import Moved, RunnelError
from runnel.lake.catalog.database import stamp
from runnel.lake.diff.file_delta import delta
from runnel.lake.flow_state import streams
from runnel.lake.flow_state.append_log import grown
from runnel.lake.history.commits import Change, sequence
from runnel.lake.iceberg.snapshot_descent import RUN, check_descent
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases import slots
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish
from runnel.phase_timer import kept
from runnel.plan.facts import Head
from runnel.run.checks.check_verdict import judge
from runnel.run.checks.table_checks import table_checks
from runnel.run.metrics.phase_times import shared
from runnel.run.stream import failpoints
from runnel.run.task.refresh_table import Outcome, Unfit, full, rows
from runnel.run.write.target_layout import prepare
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.lake.flow_state.streams import Hold
    from runnel.lake.history.commits import State, Version
    from runnel.lake.iceberg.manifests import Entry
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.task_context import Context

_ATTEMPTS = 5


class Batches:
    """What Spark calls with each batch. An error is kept: Spark tells only that there was one."""

    def __init__(self, context: "Context", task: "Task", branch: str, held: "Hold", code: "Fingerprint") -> None:
        self.context = context
        self.task = task
        self.branch = branch
        self.held = held
        self.code = code
        self.inputs: Mapping[TableName, Version] = {}  # what the next batch reads
        self.after: Callable[[], None] = lambda: None  # called when a batch is done
        self.query = ""
        self.error: BaseException | None = None
        self.warnings: tuple[str, ...] = ()
        self.commit: str | None = None
        self.rows = 0
        self.set_aside = 0
        self._has_begun = False  # a batch of this query is published
        self._is_closed = False
        self._busy = threading.Lock()
        self._ready = threading.Event()  # set once it is known what Spark calls the query

    def begin(self, query: str) -> None:
        """Let batches be taken, of the query that Spark calls so; none where that is empty."""
        self.query, self._is_closed = query, not query
        self._has_begun = bool(query) and streams.last_epoch(self.context.store.db, query) is not None
        self._ready.set()

    def close(self, seconds: float) -> None:
        """Take no more batches; wait for the one that is under way."""
        self._is_closed = True
        if self._busy.acquire(timeout=seconds):
            self._busy.release()

    def warn(self, warnings: Iterable[str]) -> None:
        """Remember what is to be told in the end, each thing once."""
        self.warnings = tuple(dict.fromkeys((*self.warnings, *warnings)))

    def take(self, frame: "DataFrame", epoch: int) -> None:
        """Publish a batch, unless that was done before a crash."""
        self._ready.wait()
        with self._busy:
            if self._is_closed:
                raise RunnelError("STREAM_CLOSED", f"the stream of `{self.task.table}` takes no more batches")
            try:
                failpoints.reach(failpoints.BEGUN)
                if streams.is_done(self.context.store.db, self.query, epoch):
                    frame.write.format("noop").mode("overwrite").save()  # for what it remembers, and its watermark
                else:
                    self._traced(frame, epoch)
                failpoints.reach(failpoints.PUBLISHED)
                self._has_begun = True
                self.after()
            except BaseException as error:
                self.error = error
                raise

    def _traced(self, frame: "DataFrame", epoch: int) -> None:
        """Publish a batch, and tell of it as a span with its phases."""
        table = str(self.task.table)
        with (
            tracing.span(f"batch {table}", table=table, branch=self.branch, batch=epoch) as mark,
            kept("write") as clock,
        ):
            rows = self.rows
            try:
                self._publish(frame, epoch)
            finally:
                tracing.phases(shared(clock.stop(), ()), mark.trace)
            mark.tell(rows=self.rows - rows, commit=self.commit)

    def _publish(self, frame: "DataFrame", epoch: int) -> None:
        """Write and publish, again where somebody else changed the table meanwhile so that it does not fit."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._once(frame, epoch)
                return
            except Moved:
                if attempt == _ATTEMPTS:
                    raise

    def _once(self, frame: "DataFrame", epoch: int) -> None:
        store, started = self.context.store, time.monotonic()
        with pinned(store.db, "write") as pin:
            planned, state = store.db.read(sequence), store.state(self.branch)
            made = self._written(frame, state)
            failpoints.reach(failpoints.WRITTEN)
            seconds = time.monotonic() - started
            detail = {"rows": made.outcome.written, "set_aside": made.outcome.set_aside}
            detail["write_ms"] = round(1000 * seconds)
            batch = streams.Batch(self.branch, self.task.table, self.held.token, self.query, epoch, detail)
            self._committed(made, state, batch, planned, pin)
        self.rows += made.outcome.written
        self.set_aside += made.outcome.set_aside
        self.warn(made.outcome.warnings)

    def _committed(self, made: "_Written", state: "State", batch: streams.Batch, planned: int, pin: str) -> None:
        """Publish what was written; onto what somebody else made of the table meanwhile, where that is possible."""
        store = self.context.store
        for attempt in range(1, _ATTEMPTS + 1):
            changes = self._changes(state, self._onto(made, state), made.outcome.quarantine, batch.epoch)
            if not changes:
                streams.note(store.db, batch)
                return
            draft = Draft(
                self.branch,
                f"{self.task.table}, batch {batch.epoch}",
                store.author,
                changes,
                kind="stream",
                run=self.context.run,
                planned=planned,
                pin=pin,
                slot=self.context.slot.lease,
                batch=batch,
            )
            try:
                self.commit = publish(store.db, draft).id
                return
            except Moved:
                state = store.state(self.branch)
                if attempt == _ATTEMPTS or not made.fits(store, self.task, state):
                    raise

    def _written(self, frame: "DataFrame", state: "State") -> "_Written":
        """Write a batch: in place of what the life before made, else as files that come to those that are there."""
        task, store = self.task, self.context.store
        base = _head(state.get(task.table))
        tables = (task.table, *([task.quarantine] if task.quarantine is not None else []))
        there = {table: state[table] for table in tables if table in state}
        slot, session = replace(self.context.slot, base=there), frame.sparkSession
        context = replace(self.context, slot=slot, session=session, now=datetime.now(UTC))
        if not self._has_begun:
            return _Written(full(context, task, frame, base), base, state)
        if base is None:
            what = f"`{task.table}` was dropped while its stream ran: what it made before is gone"
            raise RunnelError("STREAM_TABLE_GONE", what, fix="start it again: it reads all rows that are there")
        try:
            start = _wider(store, base, prepare(store, task, frame.schema, base))
            made = rows(context, _appending(task), frame, None, start)
        except Unfit as error:
            what = f"{error.what}: its rows can't be put beside those that are there"
            fix = f"start it anew: runnel stream reset {task.table}"
            raise RunnelError("STREAM_COLUMNS", what, at=str(task.place), fix=fix) from None
        came = delta(store, start.location, made.head.location).added if made.written else ()
        check_descent(store, start.location, made.head.location, context.run)
        found = _Written(made, base, state, came)
        return self._checked(context, found) if task.options.output == "update" else found

    def _checked(self, context: "Context", made: "_Written") -> "_Written":
        """Judge the checks of the table of a stream that replaces rows, once those are out of it."""
        checks = tuple(check for check in self.task.checks if not check.is_row)
        if not checks:
            return made
        slots.place(context.store.db, context.slot, {self.task.table: self._onto(made, made.state).location})
        found = judge(self.task, table_checks(context, context.identifier(self.task.table), checks))
        return replace(made, outcome=replace(made.outcome, warnings=(*made.outcome.warnings, *found)))

    def _onto(self, made: "_Written", state: "State") -> Head:
        """Return the version of the table with a batch: Spark's own where it replaces all, else a short one.

        Spark's lists every snapshot that there ever was, and with each commit takes longer to write.
        """
        store, task, now = self.context.store, self.task, _head(state.get(self.task.table))
        if made.came is None or now is None:
            return made.outcome.head
        if not made.came:
            return now
        updates = grown(store, now.location, made.outcome.head.location)
        edit = Edit(taken=made.came, summary={RUN: self.context.run}, updates=updates)
        if task.options.output == "update":
            files = [entry.file for entry in made.came if entry.is_data]
            taken = displaced(store, now.location, load(store, made.outcome.head.location), files, task.options.key)
            edit = replace(edit, added=taken.added, removed=taken.removed)
        location = stage(store, now.location, edit)
        return Head(location, location)

    def _changes(self, state: "State", made: Head, aside: Head | None, epoch: int) -> tuple[Change, ...]:
        task = self.task
        heads: dict[TableName, Head | None] = {task.table: made}
        if task.quarantine is not None:
            heads[task.quarantine] = aside
        detail = self._detail(epoch)
        found = []
        for table, head in heads.items():
            was = state.get(table)
            if head is not None and (was is None or was.location != head.location):
                before = was.location if was else None
                found.append(Change(table, before, head.location, head.content, detail))
        return tuple(found)

    def _detail(self, epoch: int) -> dict[str, object]:
        """Return what the commit keeps about how its rows were made."""
        return {
            "key": f"stream:{self.query}:{epoch}",
            "run": self.context.run,
            "made_at": stamp(self.context.now),
            "how": "stream",
            "code": self.code.stored(),
            "inputs": {str(table): vars(one) for table, one in self.inputs.items()},
        }


@dataclass(frozen=True)
class _Written:
    """A batch in its slot: what became of the table that it was written onto, in which state of the lake.

    `came` are the files of its rows; None where they take the place of all others.
    """

    outcome: Outcome
    base: Head | None
    state: "State"
    came: "tuple[Entry, ...] | None" = None

    def fits(self, store: "Store", task: "Task", now: "State") -> bool:
        """Tell whether its files can come to what somebody else has made of the table meanwhile."""
        was, at, aside = self.state.get(task.table), now.get(task.table), task.quarantine
        if self.came is None or was is None or at is None or (aside and self.state.get(aside) != now.get(aside)):
            return False
        before, after = load(store, was.location), load(store, at.location)
        return before.table_uuid == after.table_uuid and before.schema().as_struct() == after.schema().as_struct()


def _appending(task: "Task") -> "Task":
    """Return a task whose rows are just added: its table is checked after the rows that they replace are gone."""
    if task.options.output != "update":
        return task
    return replace(task, checks=tuple(check for check in task.checks if check.is_row))


def _wider(store: "Store", base: Head, prepared: str) -> Head:
    """Return the version to write onto: with new columns where the task makes more than the table has."""
    old, new = load(store, base.location).schema(), load(store, prepared).schema()
    if old.fields == new.fields or any(field not in new.fields for field in old.fields):
        return base
    return Head(prepared, base.content)


def _head(version: "Version | None") -> Head | None:
    return Head(version.location, version.content) if version is not None else None
