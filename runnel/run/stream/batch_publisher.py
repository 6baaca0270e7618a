"""Publish the batches of a stream: write each onto the current table, check it, and commit it with its epoch."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.connect.feed.upsert import displace_rows
from runnel.errors import RunnelError, VersionConflict
from runnel.lake.catalog.database import format_time
from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.flow_state import streams
from runnel.lake.flow_state.append_log import build_schema_updates
from runnel.lake.history.commits import CommitChange, read_sequence
from runnel.lake.iceberg.snapshot_descent import RUN_PROPERTY, check_descent
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases import slots
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish, retry_on_conflict
from runnel.model.table_version import TableVersion
from runnel.phase_timer import record_phases
from runnel.run.checks.check_verdict import judge_findings
from runnel.run.checks.table_checks import run_table_checks
from runnel.run.metrics.phase_times import split_passes
from runnel.run.stream import failpoints
from runnel.run.table_changes import TableUpdate, table_changes
from runnel.run.task.refresh_table import (
    BaseVersion,
    RefreshResult,
    SchemaMismatch,
    apply_row_changes,
    replace_all_rows,
)
from runnel.run.write.target_layout import prepare_table
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.lake.flow_state.streams import StreamLease
    from runnel.lake.history.commits import LakeState
    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.task_context import TaskContext

BatchObserver = Callable[["BatchPublisher"], None]
"""Called after a batch of a stream was published."""

_ATTEMPTS = 5


class BatchPublisher:
    """Publish each batch that Spark passes to it. Keeps the error, of which Spark reports only a summary.

    `observers` are called after each batch, in their order; an error of one fails the stream.
    """

    def __init__(
        self,
        context: "TaskContext",
        task: "Task",
        branch: str,
        claim: "StreamLease",
        code: "Fingerprint",
        *,
        observers: "Sequence[BatchObserver]" = (),
    ) -> None:
        self.context = context
        self.task = task
        self.branch = branch
        self.claim = claim
        self.code = code
        self.inputs: Mapping[TableName, TableVersion] = {}  # versions that the next batch reads
        self._observers = tuple(observers)
        self.query_id = ""
        self.error: BaseException | None = None
        self.warnings: tuple[str, ...] = ()
        self.commit: str | None = None
        self.rows = 0
        self.quarantined_rows = 0
        self._has_published = False  # a batch of this query was published
        self._is_closed = False
        self._busy = threading.Lock()
        self._ready = threading.Event()  # set once the id of the query is known

    def begin_query(self, query_id: str) -> None:
        """Accept the batches of the query with this id; none if it is empty."""
        self.query_id, self._is_closed = query_id, not query_id
        self._has_published = bool(query_id) and streams.read_last_epoch(self.context.store.db, query_id) is not None
        self._ready.set()

    def close(self, seconds: float) -> None:
        """Accept no more batches; wait for the current one."""
        self._is_closed = True
        if self._busy.acquire(timeout=seconds):
            self._busy.release()

    def add_warnings(self, warnings: Iterable[str]) -> None:
        """Collect warnings for the end of the run, each one once."""
        self.warnings = tuple(dict.fromkeys((*self.warnings, *warnings)))

    def publish_batch(self, frame: "DataFrame", epoch: int) -> None:
        """Publish a batch, unless it was published before a crash."""
        self._ready.wait()
        with self._busy:
            if self._is_closed:
                raise RunnelError("STREAM_CLOSED", f"the stream of `{self.task.table}` accepts no more batches")
            try:
                failpoints.reach(failpoints.BATCH_STARTED)
                if streams.is_batch_published(self.context.store.db, self.query_id, epoch):
                    frame.write.format("noop").mode("overwrite").save()  # to update its state and its watermark
                else:
                    self._publish_traced(frame, epoch)
                failpoints.reach(failpoints.BATCH_PUBLISHED)
                self._has_published = True
                for observer in self._observers:
                    observer(self)
            except BaseException as error:
                self.error = error
                raise

    def _publish_traced(self, frame: "DataFrame", epoch: int) -> None:
        """Publish a batch, and export it as a span with its phases."""
        table = str(self.task.table)
        with (
            tracing.span(f"batch {table}", table=table, branch=self.branch, batch=epoch) as span,
            record_phases("write") as clock,
        ):
            rows_before = self.rows
            try:
                # Written again if another commit changed the table so that the batch does not fit.
                retry_on_conflict(lambda: self._publish_once(frame, epoch), _ATTEMPTS)
            finally:
                tracing.record_phases(split_passes(clock.stop(), ()), span.traceparent)
            span.set_attributes(rows=self.rows - rows_before, commit=self.commit)

    def _publish_once(self, frame: "DataFrame", epoch: int) -> None:
        store, started = self.context.store, time.monotonic()
        with acquire_pin(store.db, "write") as pin:
            planned, state = store.db.read(read_sequence), store.state(self.branch)
            batch_write = self._write_batch(frame, state)
            failpoints.reach(failpoints.BATCH_WRITTEN)
            seconds = time.monotonic() - started
            detail = {"rows": batch_write.refresh.written_rows, "set_aside": batch_write.refresh.quarantined_rows}
            detail["write_ms"] = round(1000 * seconds)
            batch = streams.StreamBatch(self.branch, self.task.table, self.claim.token, self.query_id, epoch, detail)
            self._commit_batch(batch_write, state, batch, planned, pin)
        self.rows += batch_write.refresh.written_rows
        self.quarantined_rows += batch_write.refresh.quarantined_rows
        self.add_warnings(batch_write.refresh.warnings)

    def _commit_batch(
        self, batch_write: "_BatchWrite", state: "LakeState", batch: streams.StreamBatch, planned: int, pin: str
    ) -> None:
        """Publish what was written; onto a newer version of the table if another commit changed it meanwhile."""
        store = self.context.store
        for attempt in range(1, _ATTEMPTS + 1):
            changes = self._list_changes(
                state, self._stage_version(batch_write, state), batch_write.refresh.quarantine, batch.epoch
            )
            if not changes:
                streams.record_empty_batch(store.db, batch)
                return
            draft = CommitDraft(
                self.branch,
                f"{self.task.table}, batch {batch.epoch}",
                store.author,
                changes,
                kind="stream",
                run=self.context.run,
                planned_sequence=planned,
                pin=pin,
                slot=self.context.slot.lease,
                batch=batch,
            )
            try:
                self.commit = publish(store.db, draft).id
                return
            except VersionConflict:
                state = store.state(self.branch)
                if attempt == _ATTEMPTS or not batch_write.fits_onto(store, self.task, state):
                    raise

    def _write_batch(self, frame: "DataFrame", state: "LakeState") -> "_BatchWrite":
        """Write a batch: the first one replaces the table of a previous query, all others append files."""
        task, store = self.task, self.context.store
        base = state.get(task.table)
        tables = (task.table, *([task.quarantine_table] if task.quarantine_table is not None else []))
        existing_versions = {table: state[table] for table in tables if table in state}
        slot, session = replace(self.context.slot, base=existing_versions), frame.sparkSession
        context = replace(self.context, slot=slot, session=session, now=datetime.now(UTC))
        if not self._has_published:
            return _BatchWrite(replace_all_rows(context, task, frame, base), base, state)
        if base is None:
            what = f"`{task.table}` was dropped while its stream ran: its earlier rows are gone"
            raise RunnelError("STREAM_TABLE_GONE", what, fix="start it again: it reads all rows of its inputs")
        try:
            start_head = _choose_start_head(store, base, prepare_table(store, task, frame.schema, base))
            refresh = apply_row_changes(context, _drop_table_checks(task), frame, None, BaseVersion(start_head))
        except SchemaMismatch as error:
            what = f"{error.what}: its rows can't be added to the existing ones"
            fix = f"start it again from the beginning: runnel stream reset {task.table}"
            raise RunnelError("STREAM_COLUMNS", what, at=str(task.place), fix=fix) from None
        added_entries = (
            compute_file_delta(store, start_head.location, refresh.head.location).added if refresh.written_rows else ()
        )
        check_descent(store, start_head.location, refresh.head.location, context.run)
        batch_write = _BatchWrite(refresh, base, state, added_entries)
        return self._check_updated_table(context, batch_write) if task.options.output == "update" else batch_write

    def _check_updated_table(self, context: "TaskContext", batch_write: "_BatchWrite") -> "_BatchWrite":
        """Judge the table checks of a stream that updates rows, on the table without the replaced rows."""
        checks = tuple(check for check in self.task.checks if not check.is_row_check)
        if not checks:
            return batch_write
        slots.place_tables(
            context.store.db,
            context.slot,
            {self.task.table: self._stage_version(batch_write, batch_write.state).location},
        )
        warnings = judge_findings(self.task, run_table_checks(context, context.identifier(self.task.table), checks))
        return replace(
            batch_write, refresh=replace(batch_write.refresh, warnings=(*batch_write.refresh.warnings, *warnings))
        )

    def _stage_version(self, batch_write: "_BatchWrite", state: "LakeState") -> TableVersion:
        """Return a version of the table with the batch: Spark's own if it replaces all rows, else a compact one.

        Spark's version lists every snapshot of the table, so that each commit takes longer to write.
        """
        store, task, current_head = self.context.store, self.task, state.get(self.task.table)
        if batch_write.added_entries is None or current_head is None:
            return batch_write.refresh.head
        if not batch_write.added_entries:
            return current_head
        updates = build_schema_updates(store, current_head.location, batch_write.refresh.head.location)
        edit = VersionEdit(reused=batch_write.added_entries, summary={RUN_PROPERTY: self.context.run}, updates=updates)
        if task.options.output == "update":
            files = [entry.file for entry in batch_write.added_entries if entry.is_data]
            displacement = displace_rows(
                store,
                current_head.location,
                load_metadata(store, batch_write.refresh.head.location),
                files,
                task.options.key,
            )
            edit = replace(edit, added=displacement.added, removed=displacement.removed)
        location = stage_version(store, current_head.location, edit)
        return TableVersion(location, location)

    def _list_changes(
        self,
        state: "LakeState",
        table_head: TableVersion,
        quarantine_head: TableVersion | None,
        epoch: int,
    ) -> tuple[CommitChange, ...]:
        detail = self._describe_batch(epoch)
        updates = [TableUpdate(self.task.table, table_head, detail)]
        if self.task.quarantine_table is not None and quarantine_head is not None:
            updates.append(TableUpdate(self.task.quarantine_table, quarantine_head, detail))
        return table_changes(state, updates)

    def _describe_batch(self, epoch: int) -> dict[str, object]:
        """Return the provenance that the commit of a batch records."""
        return {
            "key": f"stream:{self.query_id}:{epoch}",
            "run": self.context.run,
            "made_at": format_time(datetime.now(UTC)),
            "task": self.task.name,
            "place": str(self.task.place),
            "action": "stream",
            "reason": describe_batch_order(epoch, is_first=not self._has_published),
            "author": self.context.store.author,
            "fingerprint": self.code.digest,
            "code": self.code.to_json(),
            "inputs": {str(table): vars(version) for table, version in self.inputs.items()},
        }


@dataclass(frozen=True)
class _BatchWrite:
    """A batch that was written in the slot: the result, and the table version and lake state that it was written onto.

    `added_entries` are the files of its rows; None if they replace all others.
    """

    refresh: RefreshResult
    base: TableVersion | None
    state: "LakeState"
    added_entries: "tuple[FileEntry, ...] | None" = None

    def fits_onto(self, store: "Store", task: "Task", current_state: "LakeState") -> bool:
        """Return whether its files can be added to a newer version of the table."""
        base_version, current_version, quarantine_table = (
            self.state.get(task.table),
            current_state.get(task.table),
            task.quarantine_table,
        )
        if (
            self.added_entries is None
            or base_version is None
            or current_version is None
            or (quarantine_table and self.state.get(quarantine_table) != current_state.get(quarantine_table))
        ):
            return False
        before, after = load_metadata(store, base_version.location), load_metadata(store, current_version.location)
        return before.table_uuid == after.table_uuid and before.schema().as_struct() == after.schema().as_struct()


def describe_batch_order(epoch: int, *, is_first: bool) -> str:
    """Return which batch of a stream it is, for users; batches are numbered from 0, as in the messages of commits.

    >>> describe_batch_order(0, is_first=True), describe_batch_order(2, is_first=False)
    ('batch 0, the first one: it replaced all rows', 'batch 2, on the rows of the batches before it')
    """
    what = "the first one: it replaced all rows" if is_first else "on the rows of the batches before it"
    return f"batch {epoch}, {what}"


def _drop_table_checks(task: "Task") -> "Task":
    """Return a task without table checks if it updates rows: these run after the replaced rows are removed."""
    if task.options.output != "update":
        return task
    return replace(task, checks=tuple(check for check in task.checks if check.is_row_check))


def _choose_start_head(store: "Store", base: TableVersion, prepared: str) -> TableVersion:
    """Return the version to write onto: with new columns if the task has more than the table."""
    old_schema, new_schema = load_metadata(store, base.location).schema(), load_metadata(store, prepared).schema()
    if old_schema.fields == new_schema.fields or any(field not in new_schema.fields for field in old_schema.fields):
        return base
    return TableVersion(prepared, base.content)
