"""A lake behind a service, with the same methods as a lake that is opened by its folder: `runnel.client.lake`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import quote

from runnel.client.remote import json_values
from runnel.client.remote.lake_operations import RemoteLakeOperations
from runnel.model.run_request import RunRequest
from runnel.names import TableName

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from runnel.client.json_views.backfill import BackfillFacts
    from runnel.connect.ingest.release.release import ReleaseResult
    from runnel.connect.load.quarantined_row import QuarantinedRow
    from runnel.lake.flow_state.runs import Run
    from runnel.lake.merge.merge import MergeResult
    from runnel.lake.merge.rewind import RewindResult
    from runnel.plan.steps import Plan
    from runnel.project.execution.backfill import BackfillPreview, BackfillResult
    from runnel.project.execution.release import DiscardResult
    from runnel.project.execution.replay import CommitReplay
    from runnel.project.following.run_follower import RunFollower
    from runnel.project.inspection.lineage import Lineage
    from runnel.project.inspection.quarantine import QuarantineSummary
    from runnel.project.inspection.schedule_list import ScheduleStatus
    from runnel.project.inspection.status import LakeStatus
    from runnel.query.result import QueryResult
    from runnel.run.results.run_result import ProgressCallback, RunResult


class RemoteLake(RemoteLakeOperations):
    """The lake behind a service. Use it as a context manager, or close it when you are done.

    Runs are computed by the service's workers, with the code on the service's machine.
    """

    def __enter__(self) -> "RemoteLake":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return the project's name and address."""
        return f"<lake of {self.project} at {self.url}>"

    def _repr_html_(self) -> str:
        """Return the project, its branches and its tables, for notebooks."""
        from runnel.client.lake_html import MOST_TABLES, render_lake_html

        page = self._connection.get("/tables", limit=MOST_TABLES)
        names = [branch.name for branch in self.branches()]
        return render_lake_html(self.project, self.url, names, page["items"], is_more=page["next"] is not None)

    @property
    def spark(self) -> NoReturn:
        """Refuse: Spark runs on the workers."""
        raise self._unsupported_error("spark", "lake.query(SQL) uses the workers' Spark if it is needed")

    def query(
        self, sql: str, *, at: str = "main", engine: Literal["auto", "duckdb", "spark"] = "auto"
    ) -> "QueryResult":
        """Answer a query in Spark SQL at a ref: Arrow by `.table()`, pandas by `.df()`, a stream by `.batches()`."""
        from runnel.client.remote.query_answer import run_query
        from runnel.model.worker_request import QueryRequest

        return run_query(self._connection, QueryRequest(sql, at, engine), time.perf_counter())

    def read(self, table: str, *, at: str = "main") -> "DataFrame":
        """Refuse: a Spark frame needs Spark in this process."""
        raise self._unsupported_error(
            "read", f'lake.query("select * from {table}", at=...) has .table(), .df() and .batches()'
        )

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
        from runnel.model.worker_request import PlanRequest

        overrides = (*self.overrides, *_format_params(params))
        request = RunRequest.create(select, exclude, branch, full_refresh, overrides=overrides)
        return json_values.parse_plan(self._connection.post("/plan", PlanRequest(request).to_body()))

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
        """Let a worker compute what changed, check it and publish it as one commit; raise if a step fails.

        `verify` compares every table with a full computation of its task before anything is published. `params` sets
        parameters of tasks.
        """
        overrides = (*self.overrides, *_format_params(params))
        request = RunRequest.create(select, exclude, branch, full_refresh, verify, message=message, overrides=overrides)
        return self._follow(self._submit(request), watch)

    def backfill(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "BackfillResult":
        """Let workers recompute the slices from one day to another, both included, with everything downstream.

        Options are `chunk`, such as "7d", the days of one run and commit, `branch`, and `watch`. Raises if a step
        fails; chunks that are finished stay published.
        """
        from runnel.client.remote.backfill import backfill
        from runnel.project.execution.backfill import build_backfill_request

        watch = options.pop("watch", None)
        request, chunk_days = build_backfill_request(select, first, last, **options)
        return backfill(self._connection, replace(request, overrides=self.overrides), chunk_days, watch)

    def preview(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "BackfillPreview":
        """Refuse: previewing a backfill needs the project's folder."""
        raise self._unsupported_error("preview", "`runnel backfill --dry-run` in the project's folder")

    def merge(self, branch: str, *, into: str = "main", run: bool = False) -> "MergeResult":
        """Merge a branch into another, if nothing has to be computed for it."""
        from runnel.client.remote.merge import merge

        if run:
            raise self._unsupported_error("merge(run=True)", f"`runnel merge {branch} --run` in the project's folder")
        return merge(self._connection, branch, into)

    def rewind(self, source: str, *, to: str, branch: str = "main", dry_run: bool = False) -> "RewindResult":
        """Reset a source's table and position to a ref, so that the next run reads again what arrived since.

        `dry_run` only returns what would be done.
        """
        from runnel.client.remote.repair import rewind

        return rewind(self._connection, source, to, branch, dry_run=dry_run)

    def release(
        self, source: str, corrected: str | Path | None = None, *, file: str | None = None, branch: str = "main"
    ) -> "ReleaseResult":
        """Ingest a source's quarantined rows again, as they are or as a file corrects them."""
        from runnel.client.remote.repair import release

        path = Path(corrected) if corrected is not None else None
        return release(self._connection, source, path, file=file, branch=branch)

    def discard(self, table: str, *, file: str | None = None, branch: str = "main") -> "DiscardResult":
        """Remove the quarantined rows of a table in one commit; only those of `file` if it is not None."""
        from runnel.client.remote.quarantine import discard_quarantined_rows

        return discard_quarantined_rows(self._connection, table, branch, file)

    def lineage(self, table: str, *, up: bool = True, down: bool = True) -> "Lineage":
        """Return the tables that a table is computed from, and those that are computed from it."""
        params = {"up": str(up).lower(), "down": str(down).lower()}
        return json_values.parse_lineage(self._connection.get(f"/tables/{TableName.parse(table)}/lineage", **params))

    def replay(self, commit: str) -> "CommitReplay":
        """Refuse: replaying a commit needs the project's folder."""
        raise self._unsupported_error("replay", f"`runnel replay {commit}` in the project's folder")

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
        request = RunRequest.create(
            select, exclude, branch, full_refresh, verify, message=message, overrides=self.overrides
        )
        return self.runs(self._submit(request))[0]

    def follow(self, run: str, *, watch: "ProgressCallback | None" = None) -> "RunResult":
        """Wait until a submitted run has ended, and return its result; raise if a step failed."""
        return self._follow(self.runs(run)[0].id, watch)

    def cancel(self, run: str, *, wait: bool = True) -> "Run":
        """Cancel a queued or running run; `wait` until it has stopped."""
        run_id = self._connection.post(f"/runs/{quote(run, safe='')}/cancel")["run"]
        if wait:
            self._open_follower(run_id).wait_for_end()
        return self.runs(run_id)[0]

    def retry(self, run: str, *, watch: "ProgressCallback | None" = None) -> "RunResult":
        """Run the request of a run again; steps that it finished are reused."""
        return self._follow(self._connection.post(f"/runs/{quote(run, safe='')}/retry")["run"], watch)

    def logs(self, run: str, *, attempt: int | None = None) -> str:
        """Return the logs of all attempts of a run, or of one attempt, with the whole trace of every error."""
        response = self._connection.send("GET", f"/runs/{quote(run, safe='')}/logs", params={"attempt": attempt})
        return response.content.decode("utf-8", "replace")

    def status(self, *, branch: str | None = None) -> "LakeStatus":
        """Return the running services and workers, the length of the queue, open alarms and the health of streams."""
        from runnel.project.inspection.service_presence import Presence
        from runnel.project.inspection.status import LakeStatus

        body = self._connection.get("/status")
        presence = Presence.from_workers([json_values.parse_worker(item) for item in body["workers"]], body["queue"])
        streams = self._connection.get("/streams", branch=branch)["streams"]
        return LakeStatus(
            presence, tuple(self.alarms()), tuple(json_values.parse_stream_health(item) for item in streams)
        )

    def schedules(self) -> "list[ScheduleStatus]":
        """Return all schedules, with when each is due next and how its last run went."""
        return [json_values.parse_schedule_status(item) for item in self._connection.get("/schedules")["items"]]

    def pause_schedule(self, name: str) -> "ScheduleStatus":
        """Pause a schedule: it queues nothing until it is resumed."""
        return json_values.parse_schedule_status(self._connection.post(f"/schedules/{quote(name, safe='')}/pause"))

    def resume_schedule(self, name: str) -> "ScheduleStatus":
        """Resume a paused schedule."""
        return json_values.parse_schedule_status(self._connection.post(f"/schedules/{quote(name, safe='')}/resume"))

    def backfills(self, *, limit: int = 20) -> "list[BackfillFacts]":
        """Return the newest backfills that workers compute, newest first."""
        from runnel.client.json_views.backfill import BackfillFacts

        return [BackfillFacts.from_json(item) for item in self._connection.get("/backfills", limit=limit)["items"]]

    def pause_backfill(self, name: str) -> "BackfillFacts":
        """Pause a backfill: the running chunk is finished, later chunks wait."""
        return self._change_backfill(name, "pause")

    def resume_backfill(self, name: str) -> "BackfillFacts":
        """Resume a backfill, starting with the chunk that failed."""
        return self._change_backfill(name, "resume")

    def cancel_backfill(self, name: str) -> "BackfillFacts":
        """Cancel a backfill: stop the running chunk, and run no further one."""
        return self._change_backfill(name, "cancel")

    def quarantines(self, *, branch: str = "main") -> "list[QuarantineSummary]":
        """Return the tables that have quarantined rows."""
        from runnel.project.inspection.quarantine import QuarantineSummary

        return [QuarantineSummary(**item) for item in self._connection.get("/quarantine", branch=branch)["items"]]

    def quarantine(self, table: str, *, branch: str = "main", file: str | None = None) -> "list[QuarantinedRow]":
        """Return the quarantined rows of a table, the oldest first, with the reason."""
        from runnel.client.remote.quarantine import fetch_quarantined_rows

        return fetch_quarantined_rows(self._connection, table, branch, file)

    def close(self) -> None:
        """Close the connection; submitted runs continue."""
        self._connection.close()

    def _submit(self, request: RunRequest) -> str:
        return str(self._connection.post("/runs", request.to_body())["run"])

    def _follow(self, run: str, watch: "ProgressCallback | None") -> "RunResult":
        return self._open_follower(run, watch).follow().raise_for_errors()

    def _open_follower(self, run: str, watch: "ProgressCallback | None" = None) -> "RunFollower":
        from runnel.client.remote.rest_event_source import RestEventSource
        from runnel.project.following.run_follower import RunFollower

        return RunFollower(RestEventSource(self._connection, run, reads_events=watch is not None), watch)

    def _change_backfill(self, name: str, action: str) -> "BackfillFacts":
        from runnel.client.json_views.backfill import BackfillFacts

        return BackfillFacts.from_json(self._connection.post(f"/backfills/{quote(name, safe='')}/{action}"))


def _format_params(params: Mapping[str, Any] | None) -> list[str]:
    """Return parameters as `--set` takes them.

    >>> _format_params({"limit": 5, "strict": True})
    ['limit=5', 'strict=true']
    """
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in (params or {}).items()
    ]
