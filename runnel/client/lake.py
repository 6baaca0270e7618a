"""The public API of a lake: each method is one call into the module that does the work."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from runnel.client.lake_operations import LakeOperations
from runnel.declare.settings import Settings
from runnel.names import TableName
from runnel.project.spark_provider import SparkProvider

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from runnel.client.json_views.backfill import BackfillFacts
    from runnel.connect.ingest.release.release import ReleaseResult
    from runnel.connect.load.load import LoadOptions, LoadResult
    from runnel.connect.load.quarantined_row import QuarantinedRow
    from runnel.lake.files.put import PutResult
    from runnel.lake.flow_state.runs import Run
    from runnel.lake.merge.merge import MergeResult
    from runnel.lake.merge.rewind import RewindResult
    from runnel.lake.provenance.row_provenance import RowProvenance
    from runnel.lake.provenance.table_provenance import Provenance
    from runnel.lake.store import Store
    from runnel.model.progress import Progress
    from runnel.plan.steps import Plan
    from runnel.project.execution.backfill import BackfillPreview, BackfillResult
    from runnel.project.execution.deliver_sinks import SinkState
    from runnel.project.execution.release import DiscardResult
    from runnel.project.execution.replay import CommitReplay
    from runnel.project.inspection.lineage import Lineage
    from runnel.project.inspection.quarantine import QuarantineSummary
    from runnel.project.inspection.schedule_list import ScheduleStatus
    from runnel.project.inspection.status import LakeStatus
    from runnel.project.spark_session import FrameReader
    from runnel.query.result import QueryResult
    from runnel.run.results.delivery_result import DeliveryResult
    from runnel.run.results.run_result import ProgressCallback, RunResult


class Lake(LakeOperations):
    """The lake of a project. Use it as a context manager, or close it when you are done.

    `store` and `spark_provider` are passed in if they are shared or not the default ones.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        moved: bool = False,
        adopt: bool = False,
        store: "Store | None" = None,
        spark_provider: SparkProvider | None = None,
    ) -> None:
        super().__init__(settings, moved=moved, adopt=adopt, store=store)
        self.spark_provider = spark_provider or SparkProvider(settings)
        self._frame_reader: FrameReader | None = None

    def __enter__(self) -> "Lake":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return the project's name and folder."""
        return f"<lake of {self.settings.name} at {self.settings.root}>"

    def _repr_html_(self) -> str:
        """Return the project, its branches and its tables, for notebooks."""
        from runnel.client.lake_html import lake_html

        return lake_html(self)

    @property
    def spark(self) -> "SparkSession":
        """Return the Spark session of this process, started on first use."""
        return self.spark_provider.get()

    def _load_files(
        self, table: TableName, patterns: Sequence[str], options: "LoadOptions", progress: "Progress | None"
    ) -> "LoadResult":
        from runnel.project.execution.load import load

        return load(self, table, patterns, options, progress)

    def _put_files(self, table: TableName, paths: Sequence[Path], branch: str, prefix: str) -> "PutResult":
        from runnel.project.execution.put import put

        return put(self, table, paths, branch=branch, prefix=prefix)

    def query(
        self, sql: str, *, at: str = "main", engine: Literal["auto", "duckdb", "spark"] = "auto"
    ) -> "QueryResult":
        """Answer a query in Spark SQL at a ref: Arrow by `.table()`, pandas by `.df()`, a stream by `.batches()`."""
        from runnel.query.engine import run_query

        return run_query(self.store, sql, at=at, engine=engine, spark=lambda: self.spark)

    def read(self, table: str, *, at: str = "main") -> "DataFrame":
        """Return a table at a ref as a Spark frame; later commits of the branch don't change it."""
        if self._frame_reader is None:
            from runnel.project.spark_session import FrameReader

            self._frame_reader = FrameReader(self.store, self.spark)
        return self._frame_reader.read(TableName.parse(table), at)

    def plan(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
        params: Mapping[str, Any] | None = None,
    ) -> "Plan":
        """Return what a run would compute, and why. `params` sets parameters of tasks."""
        from runnel.model.run_request import RunRequest
        from runnel.project.planning.plan_project import plan_project

        request = RunRequest.create(select, exclude, branch, full_refresh)
        return plan_project(self._with_params(params), request).plan

    def run(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
        verify: bool = False,
        message: str | None = None,
        params: Mapping[str, Any] | None = None,
        watch: "ProgressCallback | None" = None,
    ) -> "RunResult":
        """Compute what changed, check it and publish it as one commit; raise if a step fails.

        `verify` compares every table with a full computation of its task before anything is published. `params` sets
        parameters of tasks, as `--set` does.
        The project's files are read again each time, so changed code is picked up.
        """
        from runnel.model.run_request import RunRequest
        from runnel.project.execution.run_project import run_project

        request = RunRequest.create(select, exclude, branch, full_refresh, verify, message=message)
        return run_project(self._with_params(params), request, watch=watch).raise_for_errors()

    def _with_params(self, params: Mapping[str, Any] | None) -> "Lake":
        """Return a lake with these values of parameters, which shares the connections and Spark of this one."""
        if not params:
            return self
        from dataclasses import replace

        from runnel.declare.settings import FROM_SET, ParamOrigin

        origins = {name: ParamOrigin(FROM_SET, is_hidden=False) for name in params}
        settings = replace(
            self.settings,
            params={**self.settings.params, **params},
            param_origins={**self.settings.param_origins, **origins},
        )
        return Lake(settings, store=self.store, spark_provider=self.spark_provider)

    def backfill(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "BackfillResult":
        """Recompute the slices from one day to another, both included, with everything downstream; read no sources.

        Options are `chunk`, such as "7d", the days of one run and commit, `branch`, and `watch`. Raises if a step
        fails; chunks that are finished stay published.
        """
        from runnel.project.execution.backfill import backfill, build_backfill_request

        watch = options.pop("watch", None)
        result = backfill(self, *build_backfill_request(select, first, last, **options), watch=watch)
        if errors := [error for run in result.runs for error in run.errors]:
            raise errors[0]
        return result

    def preview(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "BackfillPreview":
        """Return what `backfill` would do with the same `chunk` and `branch`: actions, slices, rows and bytes."""
        from runnel.project.execution.backfill import build_backfill_request, preview_backfill

        return preview_backfill(self, *build_backfill_request(select, first, last, **options))

    @overload
    def why(self, table: str, *, at: str = "main") -> "Provenance": ...
    @overload
    def why(self, table: str, *, row: str, at: str = "main") -> "RowProvenance": ...
    def why(self, table: str, *, row: str | None = None, at: str = "main") -> "Provenance | RowProvenance":
        """Return where the contents of a table come from: what computed it, from which inputs, with which code.

        With `row`, a condition such as "order_id = 7", return where the rows that match come from.
        """
        from runnel.lake.provenance.row_provenance import explain_rows
        from runnel.lake.provenance.table_provenance import explain_table
        from runnel.project.inspection.source_lines import make_line_locator

        name = TableName.parse(table)
        if row is None:
            return explain_table(self.store, name, at)
        return explain_rows(self.store, name, row, at, make_line_locator(self, at))

    def merge(self, branch: str, *, into: str = "main", run: bool = False) -> "MergeResult":
        """Merge a branch into another; `run` also recomputes tables of tasks, if needed, in the same commit."""
        from runnel.lake.merge.merge import merge_branch

        if run:
            from runnel.project.execution.merge_and_run import merge_and_run

            return merge_and_run(self, branch, into)
        return merge_branch(self.store, branch, into)

    def rewind(self, source: str, *, to: str, branch: str = "main", dry_run: bool = False) -> "RewindResult":
        """Reset a source's table and position to a ref, so that the next run reads again what arrived since.

        `dry_run` only returns what would be done.
        """
        from runnel.project.execution.rewind import rewind

        return rewind(self, source, to, branch, dry=dry_run)

    def release(
        self, source: str, corrected: str | Path | None = None, *, file: str | None = None, branch: str = "main"
    ) -> "ReleaseResult":
        """Ingest a source's quarantined rows again, as they are or as a file corrects them."""
        from runnel.project.execution.release import release

        return release(self, source, Path(corrected) if corrected is not None else None, file=file, branch=branch)

    def discard(self, table: str, *, file: str | None = None, branch: str = "main") -> "DiscardResult":
        """Remove the quarantined rows of a table in one commit; only those of `file` if it is not None."""
        from runnel.project.execution.release import discard

        return discard(self, table, file=file, branch=branch)

    def lineage(self, table: str, *, up: bool = True, down: bool = True) -> "Lineage":
        """Return the tables that a table is computed from, and those that are computed from it."""
        from runnel.project.inspection.lineage import find_lineage

        return find_lineage(self, TableName.parse(table), up=up, down=down)

    def sinks(self) -> "list[SinkState]":
        """Return the sinks of the project by name: position, backlog and last error of each."""
        from runnel.project.execution.deliver_sinks import list_sink_states, load_declared_sinks

        return list_sink_states(self, load_declared_sinks(self))

    def deliver(self, sink: str | None = None) -> "list[DeliveryResult]":
        """Deliver pending changes to a sink, or to all, now; return the results of those that lacked something."""
        from runnel.project.execution.deliver_sinks import deliver_now

        return list(deliver_now(self, sink))

    def reset_sink(self, sink: str) -> str:
        """Let a sink start from scratch, so that all rows are delivered to it again; return its name."""
        from runnel.project.execution.deliver_sinks import load_declared_sinks, reset_sink

        return reset_sink(self.store.db, load_declared_sinks(self), sink).sink

    def replay(self, commit: str) -> "CommitReplay":
        """Recompute the tables that tasks published in a commit, and compare; nothing is published."""
        from runnel.project.execution.replay import replay_commit

        return replay_commit(self, commit)

    def submit(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
        verify: bool = False,
        message: str | None = None,
    ) -> "Run":
        """Submit a run to the workers of this lake without waiting for it; `follow` waits."""
        from runnel.model.run_request import RunRequest
        from runnel.project.execution.follow_run import submit_request

        request = RunRequest.create(select, exclude, branch, full_refresh, verify, message=message)
        return self.runs(submit_request(self, request))[0]

    def follow(self, run: str, *, watch: "ProgressCallback | None" = None) -> "RunResult":
        """Wait until a submitted run has ended, and return its result; raise if a step failed."""
        from runnel.project.execution.follow_run import follow_run

        return follow_run(self, self.runs(run)[0].id, watch).raise_for_errors()

    def cancel(self, run: str, *, wait: bool = True) -> "Run":
        """Cancel a queued or running run; `wait` until it has stopped."""
        from runnel.project.execution.follow_run import cancel_run

        return self.runs(cancel_run(self, run, wait=wait).id)[0]

    def retry(self, run: str, *, watch: "ProgressCallback | None" = None) -> "RunResult":
        """Run the request of a run again; steps that it finished are reused."""
        from runnel.project.execution.dispatch import retry_run

        return retry_run(self, run, watch).raise_for_errors()

    def logs(self, run: str, *, attempt: int | None = None) -> str:
        """Return the logs of all attempts of a run, or of one attempt, with the whole trace of every error."""
        from runnel.project.inspection.run_logs import read_log

        return read_log(self, run, attempt)

    def status(self, *, branch: str | None = None) -> "LakeStatus":
        """Return the running services and workers, the length of the queue, open alarms and the health of streams."""
        from runnel.project.inspection.status import read_status

        return read_status(self, branch)

    def schedules(self) -> "list[ScheduleStatus]":
        """Return all schedules, with when each is due next and how its last run went."""
        from runnel.project.inspection.schedule_list import list_schedules

        return list_schedules(self)

    def pause_schedule(self, name: str) -> "ScheduleStatus":
        """Pause a schedule: it queues nothing until it is resumed."""
        from runnel.project.inspection.schedule_list import pause_schedule

        return pause_schedule(self, name)

    def resume_schedule(self, name: str) -> "ScheduleStatus":
        """Resume a paused schedule."""
        from runnel.project.inspection.schedule_list import pause_schedule

        return pause_schedule(self, name, resume=True)

    def backfills(self, *, limit: int = 20) -> "list[BackfillFacts]":
        """Return the newest backfills that workers compute, newest first."""
        from runnel.client.json_views.backfill import list_backfills

        return list_backfills(self.store.db, limit)

    def pause_backfill(self, name: str) -> "BackfillFacts":
        """Pause a backfill: the running chunk is finished, later chunks wait."""
        from runnel.client.json_views.backfill import change_backfill

        return change_backfill(self.store.db, name, "pause")

    def resume_backfill(self, name: str) -> "BackfillFacts":
        """Resume a backfill, starting with the chunk that failed."""
        from runnel.client.json_views.backfill import change_backfill

        return change_backfill(self.store.db, name, "resume")

    def cancel_backfill(self, name: str) -> "BackfillFacts":
        """Cancel a backfill: stop the running chunk, and run no further one."""
        from runnel.client.json_views.backfill import change_backfill

        return change_backfill(self.store.db, name, "cancel")

    def quarantines(self, *, branch: str = "main") -> "list[QuarantineSummary]":
        """Return the tables that have quarantined rows."""
        from runnel.project.inspection.quarantine import list_quarantines

        return list_quarantines(self, branch)

    def quarantine(self, table: str, *, branch: str = "main", file: str | None = None) -> "list[QuarantinedRow]":
        """Return the quarantined rows of a table, the oldest first, with the reason."""
        from runnel.project.inspection.quarantine import read_quarantined_rows

        return read_quarantined_rows(self, table, branch, file)

    def close(self) -> None:
        """Close the lake's connections.

        Spark, if it was started, runs until the process ends, or until a lake with other Spark settings needs it.
        """
        if self._frame_reader is not None:
            self._frame_reader.close()
        if self._store is not None:
            self._store.close()
        self.spark_provider.close()
