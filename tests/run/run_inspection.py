"""What tests of slices share: what a step computed, and an oracle that knows nothing of slices.

The oracle is DuckDB over the rows of the lake's tables, or a function of the test.
"""

from typing import TYPE_CHECKING, Any

from runnel.run.results.run_result import RunResult, StepResult
from tests.run.project import Project

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]


def step_of(ran: RunResult, table: str) -> StepResult:
    """Return what became of one table; what a run has done well is taken for granted."""
    assert not ran.errors, ran.errors[0]
    return next(step for step in ran.steps if str(step.table) == table)


def actions(ran: RunResult) -> dict[str, str]:
    """Return what was done to each table that a task makes, and why for those that were left alone."""
    assert not ran.errors, ran.errors[0]
    return {str(step.table): step.action for step in ran.steps if step.action != "ingest"}


def numbers(ran: RunResult) -> dict[str, int | None]:
    """Return how many rows were written to each table that was computed by slices."""
    assert not ran.errors, ran.errors[0]
    return {str(step.table): step.rows for step in ran.steps if step.action == "slices"}


def counted(ran: RunResult, table: str) -> str:
    """Return how many slices of how many were computed: `2 of 10`."""
    step = step_of(ran, table)
    assert step.action == "slices", f"{step.action}: {step.reason}"
    return step.reason.split(", ")[0]


def arrow(project: Project, table: str, at: str = "main") -> "pa.Table":
    """Return a table as Arrow."""
    with project.open() as lake:
        return lake.query(f"select * from {table}", at=at, engine="duckdb").table()


def oracle(project: Project, sql: str, *tables: str, at: str = "main") -> list[Row]:
    """Return what a query in DuckDB's SQL answers over tables, which it knows by their last names; sorted."""
    import duckdb

    with duckdb.connect() as connection:
        for table in tables:
            connection.register(table.rpartition(".")[2], arrow(project, table, at))
        return sorted(connection.execute(sql).fetchall(), key=repr)
