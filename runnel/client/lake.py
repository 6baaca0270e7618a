"""A lake as its users hold it: thin, each method one call into the room that does the work."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from runnel.client.lake_reader import Contents
from runnel.declare.settings import Settings
from runnel.names import TableName

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

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
    from runnel.project.spark_session import Frames
    from runnel.query.result import Result
    from runnel.run.results.run_result import Ran, Watch


class Lake(Contents):
    """The lake of a project. Use it as a context manager, or close it when you are done.

    `once` tells that the process ends after what it does with it, as a command does.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        moved: bool = False,
        adopt: bool = False,
        tell: "Callable[[str], None] | None" = None,
        once: bool = False,
    ) -> None:
        super().__init__(settings, moved=moved, adopt=adopt)
        self.once = once
        self.is_brief = False  # how Spark starts, if it does
        self._tell = tell

    def __enter__(self) -> "Lake":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return the project's name and place."""
        return f"<lake of {self.settings.name} at {self.settings.root}>"

    def _repr_html_(self) -> str:
        """Return the project, its branches and its tables, for notebooks."""
        from runnel.client.lake_html import lake_html

        return lake_html(self)

    @cached_property
    def spark(self) -> "SparkSession":
        """Return the Spark session of this process, started on first use."""
        from runnel.project.spark_session import session

        return session(self.settings, self._tell, brief=self.is_brief)

    def query(self, sql: str, *, at: str = "main", engine: Literal["auto", "duckdb", "spark"] = "auto") -> "Result":
        """Answer a query in Spark SQL at a ref: Arrow by `.table()`, pandas by `.df()`, a stream by `.batches()`."""
        from runnel.query.engine import query

        return query(self.store, sql, at=at, engine=engine, spark=lambda: self.spark)

    def read(self, table: str, *, at: str = "main") -> "DataFrame":
        """Return a table at a ref as a Spark frame; it does not move when the branch does."""
        return self._frames.read(TableName.parse(table), at)

    @cached_property
    def _frames(self) -> "Frames":
        from runnel.project.spark_session import Frames

        return Frames(self.store, self.spark)

    def plan(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
    ) -> "Plan":
        """Return what a run would compute, and why."""
        from runnel.project.planning.plan_project import plan_project
        from runnel.project.planning.run_request import Wish

        return plan_project(self, Wish.of(select, exclude, branch, full_refresh)).plan

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
        """Compute what changed, check it and publish it as one commit; raise where a step fails.

        `verify` compares every table with a full computation of its task before anything is published.
        The project's files are read anew each time, so changed code is picked up.
        """
        from runnel.project.execution.run_project import run_project
        from runnel.project.planning.run_request import Wish

        wish = Wish.of(select, exclude, branch, full_refresh, verify)
        return run_project(self, wish, message=message, watch=watch).sound()

    def backfill(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "Backfilled":
        """Compute the slices of some days, both included, again with everything downstream; sources are not read.

        Options are `chunk`, such as "7d": so many days are a run and a commit, `branch`, and `watch`. Raises where a
        step fails: chunks that are finished stay published.
        """
        from runnel.project.execution.backfill import backfill, wished

        watch = options.pop("watch", None)
        done = backfill(self, *wished(select, first, last, **options), watch=watch)
        if errors := [error for run in done.runs for error in run.errors]:
            raise errors[0]
        return done

    def preview(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "Preview":
        """Return what `backfill` would do with the same `chunk` and `branch`: actions, slices, rows and bytes."""
        from runnel.project.execution.backfill import preview, wished

        return preview(self, *wished(select, first, last, **options))

    def merge(self, branch: str, *, into: str = "main", run: bool = False) -> "Merged":
        """Merge a branch into another; `run` computes what tasks must make anew, into the same commit."""
        from runnel.lake.merge.merge import merge

        if run:
            from runnel.project.execution.merge_and_run import merge_and_run

            return merge_and_run(self, branch, into)
        return merge(self.store, branch, into)

    def rewind(self, source: str, *, to: str, branch: str = "main") -> "Rewound":
        """Take a source's table and its position back to a ref, so that the next run reads again what came since."""
        from runnel.project.execution.rewind import rewind

        return rewind(self, source, to, branch)

    def release(
        self, source: str, corrected: str | Path | None = None, *, file: str | None = None, branch: str = "main"
    ) -> "Released":
        """Send rows that a source set aside through again, as they are or as a file corrects them."""
        from runnel.project.execution.release import release

        return release(self, source, Path(corrected) if corrected is not None else None, file=file, branch=branch)

    def lineage(self, table: str, *, up: bool = True, down: bool = True) -> "Lineage":
        """Return what a table is made from, and what is made from it."""
        from runnel.project.inspection.lineage import lineage_of

        return lineage_of(self, TableName.parse(table), up=up, down=down)

    def replay(self, commit: str) -> "Replay":
        """Compute what the tasks of a commit made once more, and compare; nothing is published."""
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
        """Ask the workers of this lake for a run, and don't wait for it: `follow` does."""
        from runnel.project.execution.follow_run import submit
        from runnel.project.planning.run_request import Wish
        from runnel.project.planning.run_request_json import Asked

        return self.runs(submit(self, Asked(Wish.of(select, exclude, branch, full_refresh, verify), message)))[0]

    def follow(self, run: str, *, watch: "Watch | None" = None) -> "Ran":
        """Return what became of a run that was asked for, when it has ended; raise where a step failed."""
        from runnel.project.execution.follow_run import follow

        return follow(self, self.runs(run)[0].id, watch).sound()

    def cancel(self, run: str, *, wait: bool = True) -> "Run":
        """Stop a run that waits or goes on; `wait` until it has stopped."""
        from runnel.project.execution.follow_run import cancel

        return self.runs(cancel(self, run, wait=wait).id)[0]

    def retry(self, run: str, *, watch: "Watch | None" = None) -> "Ran":
        """Run again what a run was asked for; what it finished is known."""
        from runnel.project.execution.follow_run import retry

        return retry(self, run, watch).sound()

    def logs(self, run: str) -> str:
        """Return the log of a run, with the whole trace of every error."""
        from runnel.project.inspection.run_logs import text_of

        return text_of(self, run)

    def status(self, *, branch: str | None = None) -> "Status":
        """Return who is there, how much waits, what is wrong, and how streams are."""
        from runnel.project.inspection.status import status

        return status(self, branch)

    def schedules(self) -> "list[Line]":
        """Return all schedules, with when each is due next and how its last run went."""
        from runnel.project.inspection.schedule_list import timetable

        return timetable(self)

    def pause_schedule(self, name: str) -> "Line":
        """Let a schedule queue nothing until it is resumed."""
        from runnel.project.inspection.schedule_list import pause

        return pause(self, name)

    def resume_schedule(self, name: str) -> "Line":
        """Let a paused schedule go on."""
        from runnel.project.inspection.schedule_list import pause

        return pause(self, name, resume=True)

    def backfills(self, *, limit: int = 20) -> "list[BackfillFacts]":
        """Return the newest backfills that workers compute, newest first."""
        from runnel.client.json_views.backfill import backfills

        return backfills(self.store.db, limit)

    def pause_backfill(self, name: str) -> "BackfillFacts":
        """Let later chunks of a backfill wait; the one that goes on is finished."""
        from runnel.client.json_views.backfill import changed

        return changed(self.store.db, name, "pause")

    def resume_backfill(self, name: str) -> "BackfillFacts":
        """Let a backfill go on, with what failed first."""
        from runnel.client.json_views.backfill import changed

        return changed(self.store.db, name, "resume")

    def cancel_backfill(self, name: str) -> "BackfillFacts":
        """Run no further chunk of a backfill, and stop the one that goes on."""
        from runnel.client.json_views.backfill import changed

        return changed(self.store.db, name, "cancel")

    def quarantines(self, *, branch: str = "main") -> "list[Quarantined]":
        """Return the tables of which rows are set aside."""
        from runnel.project.inspection.quarantine import quarantines

        return quarantines(self, branch)

    def quarantine(self, table: str, *, branch: str = "main", file: str | None = None) -> "list[Aside]":
        """Return the rows of a table that were set aside, the oldest first, with why."""
        from runnel.project.inspection.quarantine import rows_aside

        return rows_aside(self, table, branch, file)

    def close(self) -> None:
        """Close the lake's connections; Spark, if it was started, goes on until the process ends."""
        if "_frames" in self.__dict__:
            self._frames.close()
        if "store" in self.__dict__:
            self.store.close()
