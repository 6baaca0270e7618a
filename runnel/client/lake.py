"""A lake as its users hold it: thin, each method one call into the room that does the work."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from runnel.declare.settings import Settings
from runnel.names import TableName

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from runnel.client.backfilling import Backfilled, Preview
    from runnel.client.lineage import Lineage
    from runnel.client.replaying import Replay
    from runnel.client.spark import Frames
    from runnel.connect.load import Loaded
    from runnel.connect.release import Released
    from runnel.lake.branches import Branch
    from runnel.lake.commits import Commit
    from runnel.lake.diff import Diff
    from runnel.lake.files.get import Got
    from runnel.lake.files.ls import FileRow
    from runnel.lake.files.put import Put
    from runnel.lake.merge import Merged
    from runnel.lake.rewind import Rewound
    from runnel.lake.runs import Run
    from runnel.lake.store import Store
    from runnel.lake.tags import Tag
    from runnel.lake.why import Why
    from runnel.plan.steps import Plan
    from runnel.query.result import Result
    from runnel.run.report import Ran, Watch


class Lake:
    """The lake of a project. Use it as a context manager, or close it when you are done.

    `once` tells that the process ends after what it does with it, as a command does.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        moved: bool = False,
        tell: "Callable[[str], None] | None" = None,
        once: bool = False,
    ) -> None:
        self.settings = settings
        self.once = once
        self.is_brief = False  # how Spark starts, if it does
        self._moved = moved
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
        from runnel.client.showing import lake_html

        return lake_html(self)

    @cached_property
    def store(self) -> "Store":
        """Return the handle that the lake's own functions take."""
        from runnel.lake.store import Store

        settings = self.settings
        return Store.open(settings.catalog, settings.warehouse, storage=dict(settings.storage), moved=self._moved)

    @cached_property
    def spark(self) -> "SparkSession":
        """Return the Spark session of this process, started on first use."""
        from runnel.client.spark import session

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
        from runnel.client.spark import Frames

        return Frames(self.store, self.spark)

    def tables(self, *, at: str = "main") -> list[str]:
        """Return the names of the tables at a ref."""
        return [str(name) for name in self.store.state(at)]

    def log(self, ref: str = "main", *, table: str | None = None, limit: int | None = None) -> "list[Commit]":
        """Return the history of a ref, newest first."""
        from runnel.lake.commits import history

        commit, name = self.store.commit(ref), TableName.parse(table) if table else None
        return self.store.db.read(lambda connection: history(connection, commit, table=name, limit=limit))

    def branch(self, name: str, *, at: str = "main") -> "Branch":
        """Create a branch."""
        from runnel.lake.branches import fork

        return fork(self.store.db, name, self.store.commit(at), self.store.author)

    def tag(self, name: str, ref: str = "main") -> "Tag":
        """Give a commit a name that keeps it for ever."""
        from runnel.lake.tags import tag

        return tag(self.store, name, ref)

    def diff(self, a: str, b: str, table: str | None = None) -> "Diff":
        """Compare two versions of the lake."""
        from runnel.lake.diff import diff

        return diff(self.store, a, b, TableName.parse(table) if table else None)

    def plan(
        self,
        select: str | Sequence[str] = (),
        *,
        exclude: str | Sequence[str] = (),
        branch: str = "main",
        full_refresh: bool = False,
    ) -> "Plan":
        """Return what a run would compute, and why."""
        from runnel.client.planning import Wish, plan_project

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
        from runnel.client.planning import Wish
        from runnel.client.running import run_project

        wish = Wish.of(select, exclude, branch, full_refresh, verify)
        done = run_project(self, wish, message=message, watch=watch)
        if done.errors:
            raise done.errors[0]
        return done

    def backfill(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "Backfilled":
        """Compute the slices of some days, both included, again with everything downstream; sources are not read.

        Options are `chunk`, such as "7d": so many days are a run and a commit, `branch`, and `watch`. Raises where a
        step fails: chunks that are finished stay published.
        """
        from runnel.client.backfilling import backfill, wished

        watch = options.pop("watch", None)
        done = backfill(self, *wished(select, first, last, **options), watch=watch)
        if errors := [error for run in done.runs for error in run.errors]:
            raise errors[0]
        return done

    def preview(
        self, select: str | Sequence[str], first: "str | date", last: "str | date", **options: Any
    ) -> "Preview":
        """Return what `backfill` would do with the same `chunk` and `branch`: actions, slices, rows and bytes."""
        from runnel.client.backfilling import preview, wished

        return preview(self, *wished(select, first, last, **options))

    def merge(self, branch: str, *, into: str = "main", run: bool = False) -> "Merged":
        """Merge a branch into another; `run` computes what tasks must make anew, into the same commit."""
        from runnel.lake.merge import merge

        if run:
            from runnel.client.merging import merge_and_run

            return merge_and_run(self, branch, into)
        return merge(self.store, branch, into)

    def revert(self, commit: str, *, branch: str = "main") -> "Commit":
        """Undo a commit with a new one."""
        from runnel.lake.revert import revert

        return revert(self.store, commit, branch)

    def rewind(self, source: str, *, to: str, branch: str = "main") -> "Rewound":
        """Take a source's table and its position back to a ref, so that the next run reads again what came since."""
        from runnel.client.rewinding import rewind

        return rewind(self, source, to, branch)

    def release(
        self, source: str, corrected: str | Path | None = None, *, file: str | None = None, branch: str = "main"
    ) -> "Released":
        """Send rows that a source set aside through again, as they are or as a file corrects them."""
        from runnel.client.releasing import release

        return release(self, source, Path(corrected) if corrected is not None else None, file=file, branch=branch)

    def load(self, table: str, *files: str | Path, branch: str = "main", **options: Any) -> "Loaded":
        """Add the rows of CSV, JSON lines or Parquet files to a table, creating it where it is missing."""
        from runnel.connect.load import load

        patterns: Sequence[str] = [str(file) for file in files]
        for name in ("key", "partition"):  # one column may be given by itself
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        return load(self.store, TableName.parse(table), patterns, branch=branch, **options)

    def put(self, table: str, *paths: str | Path, branch: str = "main", prefix: str = "") -> "Put":
        """Put files and folders into a file table, in one commit."""
        from runnel.lake.files.put import put

        return put(self.store, TableName.parse(table), [Path(path) for path in paths], branch=branch, prefix=prefix)

    def get(self, table: str, out: str | Path, glob: str | None = None, *, at: str = "main") -> "Got":
        """Get files out of a file table into a folder, each one verified."""
        from runnel.lake.files.get import get

        return get(self.store, TableName.parse(table), glob, Path(out), at=at)

    def ls(self, table: str, glob: str | None = None, *, at: str = "main") -> "list[FileRow]":
        """Return the files of a file table."""
        from runnel.lake.files.ls import ls

        return list(ls(self.store, TableName.parse(table), glob, at=at))

    def why(self, table: str, *, at: str = "main") -> "Why":
        """Return why a table holds what it holds: what made it, from which inputs, with which code."""
        from runnel.lake.why import why

        return why(self.store, TableName.parse(table), at)

    def lineage(self, table: str, *, up: bool = True, down: bool = True) -> "Lineage":
        """Return what a table is made from, and what is made from it."""
        from runnel.client.lineage import lineage_of

        return lineage_of(self, TableName.parse(table), up=up, down=down)

    def replay(self, commit: str) -> "Replay":
        """Compute what the tasks of a commit made once more, and compare; nothing is published."""
        from runnel.client.replaying import replay_commit

        return replay_commit(self, commit)

    def runs(self, run: str | None = None, *, limit: int | None = None) -> "list[Run]":
        """Return runs, newest first, or the one that is named."""
        from runnel.lake import recent

        return self.store.db.read(lambda c: [recent.find(c, run)] if run is not None else recent.recent(c, limit))

    def close(self) -> None:
        """Close the lake's connections; Spark, if it was started, goes on until the process ends."""
        if "_frames" in self.__dict__:
            self._frames.close()
        if "store" in self.__dict__:
            self.store.close()
