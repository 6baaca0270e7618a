"""A lake behind a service, with the methods of a lake that is opened by its folder: `runnel.client.lake`."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import quote

from runnel.client.remote import json_values
from runnel.client.remote.lake_reader import RemoteContents

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from runnel.client.json_views.backfill import BackfillFacts
    from runnel.connect.ingest.release import Released
    from runnel.connect.load.quarantine import Aside
    from runnel.lake.flow_state.runs import Run
    from runnel.lake.merge.merge import Merged
    from runnel.lake.merge.rewind import Rewound
    from runnel.plan.steps import Plan
    from runnel.project.execution.backfill import Backfilled, Preview
    from runnel.project.execution.replay import Replay
    from runnel.project.inspection.lineage import Lineage
    from runnel.project.inspection.quarantine import Quarantined
    from runnel.project.inspection.schedule_list import Line
    from runnel.project.inspection.status import Status
    from runnel.query.result import Result
    from runnel.run.results.run_result import Ran, Watch


class RemoteLake(RemoteContents):
    """The lake behind a service. Use it as a context manager, or close it when you are done.

    What is run is computed by the service's workers, with the code that is there.
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
        from runnel.client.lake_html import MOST_TABLES, html

        found = self._connection.get("/tables", limit=MOST_TABLES)
        names = [branch.name for branch in self.branches()]
        return html(self.project, self.url, names, found["items"], is_more=found["next"] is not None)

    @property
    def spark(self) -> NoReturn:
        """Refuse: Spark is with the workers."""
        raise self._here_only("spark", "lake.query(SQL) asks the workers' Spark where it is needed")

    def query(self, sql: str, *, at: str = "main", engine: Literal["auto", "duckdb", "spark"] = "auto") -> "Result":
        """Answer a query in Spark SQL at a ref: Arrow by `.table()`, pandas by `.df()`, a stream by `.batches()`."""
        from runnel.client.remote.query_answer import answer

        return answer(self._connection, {"sql": sql, "at": at, "engine": engine}, time.perf_counter())

    def read(self, table: str, *, at: str = "main") -> "DataFrame":
        """Refuse: a Spark frame needs Spark in this process."""
        raise self._here_only("read", f'lake.query("select * from {table}", at=...) has .table(), .df() and .batches()')

    def plan(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
    ) -> "Plan":
        """Return what a run would compute, and why."""
        wish = {"select": json_values.texts(select), "exclude": json_values.texts(exclude), "branch": branch}
        told = {**wish, "full_refresh": full_refresh, "set": list(self.overrides)}
        return json_values.plan_of(self._connection.post("/plan", told))

    def run(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
        verify: bool = False,
        message: str | None = None,
        watch: "Watch | None" = None,
    ) -> "Ran":
        """Let a worker compute what changed, check it and publish it as one commit; raise where a step fails.

        `verify` compares every table with a full computation of its task before anything is published.
        """
        options = {"branch": branch, "full_refresh": full_refresh, "verify": verify, "message": message}
        return self._follow(self._submit(select, exclude, **options), watch)

    def backfill(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "Backfilled":
        """Let workers compute the slices of some days, both included, again with everything downstream.

        Options are `chunk`, such as "7d": so many days are a run and a commit, `branch`, and `watch`. Raises where a
        step fails: chunks that are finished stay published.
        """
        from runnel.client.remote.backfill import backfill

        return backfill(self._connection, self.overrides, select, first, last, **options)

    def preview(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "Preview":
        """Refuse: what a backfill would do is seen where the project is."""
        raise self._here_only("preview", "`runnel backfill --dry-run` in the project's folder")

    def merge(self, branch: str, *, into: str = "main", run: bool = False) -> "Merged":
        """Merge a branch into another, where nothing has to be computed for it."""
        from runnel.client.remote.merge import merge

        if run:
            raise self._here_only("merge(run=True)", f"`runnel merge {branch} --run` in the project's folder")
        return merge(self._connection, branch, into)

    def rewind(self, source: str, *, to: str, branch: str = "main") -> "Rewound":
        """Refuse: a source is rewound where the project is."""
        raise self._here_only("rewind", f"`runnel rewind {source} --to {to}` in the project's folder")

    def release(
        self, source: str, corrected: str | Path | None = None, *, file: str | None = None, branch: str = "main"
    ) -> "Released":
        """Refuse: rows are released where the project is."""
        raise self._here_only("release", f"`runnel quarantine {source} release` in the project's folder")

    def lineage(self, table: str, *, up: bool = True, down: bool = True) -> "Lineage":
        """Refuse: the graph is read off the project's files."""
        raise self._here_only("lineage", f"`runnel lineage {table}` in the project's folder; lake.why has its inputs")

    def replay(self, commit: str) -> "Replay":
        """Refuse: a commit is computed again where the project is."""
        raise self._here_only("replay", f"`runnel replay {commit}` in the project's folder")

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
        """Ask the workers of this lake for a run, and don't wait for it: `follow` does."""
        options = {"branch": branch, "full_refresh": full_refresh, "verify": verify, "message": message}
        return self.runs(self._submit(select, exclude, **options))[0]

    def follow(self, run: str, *, watch: "Watch | None" = None) -> "Ran":
        """Return what became of a run that was asked for, when it has ended; raise where a step failed."""
        return self._follow(self.runs(run)[0].id, watch)

    def cancel(self, run: str, *, wait: bool = True) -> "Run":
        """Stop a run that waits or goes on; `wait` until it has stopped."""
        from runnel.client.remote.follow_run import Follower

        found = self._connection.post(f"/runs/{quote(run, safe='')}/cancel")["run"]
        return json_values.run_of(Follower(self._connection, found).wait()) if wait else self.runs(found)[0]

    def retry(self, run: str, *, watch: "Watch | None" = None) -> "Ran":
        """Run again what a run was asked for; what it finished is known."""
        return self._follow(self._connection.post(f"/runs/{quote(run, safe='')}/retry")["run"], watch)

    def logs(self, run: str) -> str:
        """Return the log of a run, with the whole trace of every error."""
        found = self._connection.ask("GET", f"/runs/{quote(run, safe='')}/logs")
        return found.content.decode("utf-8", "replace")

    def status(self, *, branch: str | None = None) -> "Status":
        """Return who is there, how much waits, what is wrong, and how streams are."""
        from runnel.project.inspection.service_presence import Presence
        from runnel.project.inspection.status import Status

        found = self._connection.get("/status")
        there = Presence.of([json_values.worker_of(one) for one in found["workers"]], found["queue"])
        alarms = tuple(json_values.alarm_of(one) for one in self._connection.pages("/alarms", "offset"))
        streams = self._connection.get("/streams", branch=branch)["streams"]
        return Status(there, alarms, tuple(json_values.health_of(one) for one in streams))

    def schedules(self) -> "list[Line]":
        """Return all schedules, with when each is due next and how its last run went."""
        return [json_values.line_of(one) for one in self._connection.get("/schedules")["items"]]

    def pause_schedule(self, name: str) -> "Line":
        """Let a schedule queue nothing until it is resumed."""
        return json_values.line_of(self._connection.post(f"/schedules/{quote(name, safe='')}/pause"))

    def resume_schedule(self, name: str) -> "Line":
        """Let a paused schedule go on."""
        return json_values.line_of(self._connection.post(f"/schedules/{quote(name, safe='')}/resume"))

    def backfills(self, *, limit: int = 20) -> "list[BackfillFacts]":
        """Return the newest backfills that workers compute, newest first."""
        from runnel.client.json_views.backfill import BackfillFacts

        return [BackfillFacts.of(one) for one in self._connection.get("/backfills", limit=limit)["items"]]

    def pause_backfill(self, name: str) -> "BackfillFacts":
        """Let later chunks of a backfill wait; the one that goes on is finished."""
        return self._change_backfill(name, "pause")

    def resume_backfill(self, name: str) -> "BackfillFacts":
        """Let a backfill go on, with what failed first."""
        return self._change_backfill(name, "resume")

    def cancel_backfill(self, name: str) -> "BackfillFacts":
        """Run no further chunk of a backfill, and stop the one that goes on."""
        return self._change_backfill(name, "cancel")

    def quarantines(self, *, branch: str = "main") -> "list[Quarantined]":
        """Return the tables of which rows are set aside."""
        from runnel.project.inspection.quarantine import Quarantined

        return [Quarantined(**one) for one in self._connection.get("/quarantine", branch=branch)["items"]]

    def quarantine(self, table: str, *, branch: str = "main", file: str | None = None) -> "list[Aside]":
        """Return the rows of a table that were set aside, the oldest first, with why."""
        from runnel.client.remote.quarantine import rows_aside

        return rows_aside(self._connection, table, branch, file)

    def close(self) -> None:
        """Close the connection; what was asked for goes on."""
        self._connection.close()

    def _submit(self, select: str | Sequence[str], exclude: str | Sequence[str], **options: Any) -> str:
        wish = {"select": json_values.texts(select), "exclude": json_values.texts(exclude), "set": list(self.overrides)}
        return str(self._connection.post("/runs", {**wish, **options})["run"])

    def _follow(self, run: str, watch: "Watch | None") -> "Ran":
        from runnel.client.remote.follow_run import follow

        return follow(self._connection, run, watch).sound()

    def _change_backfill(self, name: str, action: str) -> "BackfillFacts":
        from runnel.client.json_views.backfill import BackfillFacts

        return BackfillFacts.of(self._connection.post(f"/backfills/{quote(name, safe='')}/{action}"))
