"""A project in a folder of its own, driven as a user would: files are written, runs are run, rows are looked at."""

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import runnel as rn
from runnel.client.lake import Lake
from runnel.run.results.run_result import RunResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.plan.steps import Plan

HEAD = "import runnel as rn\nfrom pyspark.sql import functions as F\n\n"
ORDERS = """
rn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, day date, amount long"{options}))
"""


class Project:
    """A project and its lake. `spark` is the session of the test run."""

    def __init__(self, root: Path, spark: "SparkSession | None" = None) -> None:
        self.root = root
        self.spark = spark
        (root / "runnel.toml").write_text('[project]\nname = "shop"\n')

    def flow(self, text: str, name: str = "flow.py", *, orders: str | None = "") -> None:
        """Write a flow file; unless told otherwise it declares the source of orders."""
        source = ORDERS.format(options=orders) if orders is not None else ""
        self.write(f"flows/{name}", HEAD + source + dedent(text))

    def write(self, path: str, text: str) -> None:
        """Write a file below the project's folder."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def orders(self, name: str, *rows: tuple[int, str, int]) -> None:
        """Write a file of orders: (id, day, amount)."""
        lines = ["id,day,amount", *(f"{number},{day},{amount}" for number, day, amount in rows)]
        self.write(f"data/orders/{name}.csv", "\n".join(lines) + "\n")

    def open(self, **options: Any) -> Lake:
        """Open the lake, with the session of the test run."""
        lake = rn.open(self.root, **options)
        if self.spark is not None:
            lake.spark_provider.replace(self.spark)
        return lake

    def run(self, *select: str, params: tuple[str, ...] = (), **options: Any) -> RunResult:
        """Run, and return what became of it, failures too."""
        from runnel.model.run_request import RunRequest
        from runnel.project.execution.run_project import run_project

        with self.open(overrides=params) as lake:
            branch, full = options.get("branch", "main"), options.get("full_refresh", False)
            wish = RunRequest(select, options.get("exclude", ()), branch, full, options.get("verify", False))
            return run_project(lake, wish)

    def plan(self, *select: str, params: tuple[str, ...] = (), branch: str = "main") -> "Plan":
        """Plan."""
        with self.open(overrides=params) as lake:
            return lake.plan(select, branch=branch)

    def rows(self, table: str, at: str = "main") -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted."""
        with self.open() as lake:
            return sorted(lake.query(f"select * from {table}", at=at, engine="duckdb").rows(), key=repr)

    def commits(self, branch: str = "main") -> int:
        """Return how many commits a branch has."""
        with self.open() as lake:
            return len(lake.log(branch))


def did(ran: RunResult) -> dict[str, str]:
    """Return what was done to which table; what was skipped is left out."""
    return {str(step.table): step.action for step in ran.steps if step.state == "succeeded"}


def reasons(plan: "Plan") -> dict[str, str]:
    """Return each step of a plan as `action: reason`."""
    return {str(step.table): f"{step.action}: {step.reason}" for step in plan.steps}
