"""Events in Kafka, read as streams, and the same functions over all of them at once."""

import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.lake.history.commits import CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.names import TableName
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.results.run_result import RunResult
from runnel.run.task.build_frame import build_frame
from tests.run.project import Project, did
from tests.servers.kafka import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runnel.client.lake import Lake

CLICKS = "id long, page string, user string, ts timestamp"
BUYS = "buy long, click long, amount long, at timestamp"
Row = tuple[Any, ...]


class Events(Project):
    """A project with topics of its own: clicks, and what was bought."""

    def __init__(self, root: Path, spark: "SparkSession | None", server: Server) -> None:
        super().__init__(root, spark)
        self.server = server
        self._mark = uuid.uuid4().hex[:8]
        for name in ("clicks", "buys"):
            server.topic(f"{name}-{self._mark}")

    def streams(self, text: str, name: str = "flow.py") -> None:
        """Declare the sources and some tasks."""
        self.flow("".join(self._source(*one) for one in (("clicks", CLICKS), ("buys", BUYS))) + text, name, orders=None)

    def click(self, *rows: tuple[int, str, str, str]) -> None:
        """Send clicks: id, page, user and time, on the first of January 2026 unless it says otherwise."""
        keys = ("id", "page", "user", "ts")
        self._put("clicks", [dict(zip(keys, (*row[:3], moment(row[3])), strict=True)) for row in rows])

    def buy(self, *rows: tuple[int, int, int, str]) -> None:
        """Send what was bought: id, the click that it came from, amount and time."""
        keys = ("buy", "click", "amount", "at")
        self._put("buys", [dict(zip(keys, (*row[:3], moment(row[3])), strict=True)) for row in rows])

    def ran(self, *select: str, **options: Any) -> RunResult:
        """Run, which must succeed."""
        found = self.run(*select, **options)
        assert not found.errors, "\n".join(map(str, found.errors))
        return found

    def done(self, *select: str, **options: Any) -> dict[str, str]:
        """Run, and return what was done."""
        return did(self.ran(*select, **options))

    def failed(self, *select: str) -> tuple[str, str]:
        """Run, and return the code of what went wrong, and all that is told of it."""
        error = self.run(*select).errors[0]
        return error.code, f"{error} {error.fix}"

    def in_batch(self, table: str, change: "Callable[[DataFrame], DataFrame] | None" = None) -> list[Row]:
        """Return what a stream's task makes of all rows that are there, at once; `change` them before."""
        with self.open() as lake:
            task = load_project_flow(lake).tasks[TableName.parse(table)]
            frames = {name: self._frame(lake, str(source), change) for name, source in task.inputs}
            if task.function is not None:
                return collected(task.function(**frames, **dict(task.params)))
            session = next(iter(frames.values())).sparkSession
            return collected(
                build_frame(task, {table: frames[name] for name, table in task.inputs}, session, self.root)
            )

    def _frame(self, lake: "Lake", table: str, change: "Callable[[DataFrame], DataFrame] | None") -> "DataFrame":
        found = lake.read(table)
        return change(found) if change else found

    def _source(self, name: str, schema: str) -> str:
        text = f'rn.kafka("{name}-{self._mark}", servers="{self.server.servers}", schema="{schema}")'
        return f'rn.source("ods.{name}", {text})\n'

    def _put(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.server.put(f"{name}-{self._mark}", *rows)


def moment(at: str) -> str | None:
    """Return a time of day on the first of January 2026, or a whole time, as events have it."""
    return (at if "T" in at else f"2026-01-01T{at}Z") if at else None


def collected(frame: "DataFrame") -> list[Row]:
    """Return rows as `Project.rows` does."""
    return sorted((tuple(map(_plain, row)) for row in frame.collect()), key=repr)


def rows_of(project: Project, table: str) -> list[Row]:
    """Return the rows of a table; times without zone, as Spark's are."""
    return sorted((tuple(map(_plain, row)) for row in project.rows(table)), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None) if value.tzinfo else value
    return value


def drop(project: Project, table: str) -> None:
    """Drop a table."""
    name = TableName.parse(table)
    with project.open() as lake:
        change = CommitChange(name, lake.store.state("main")[name].location, None)
        publish(lake.store.db, CommitDraft("main", f"drop {table}", "ada", (change,)))
