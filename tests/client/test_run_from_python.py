"""Runs from Python: parameters, all errors at once, results that people can read."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.errors import RunnelError
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOW = """
@rn.task("dws.large")
def large(orders, *, least=6):
    return orders.where(F.col("amount") >= least)
"""
FAILING = """
@rn.task("dws.a")
def a(orders):
    raise RuntimeError("first")

@rn.task("dws.b")
def b(orders):
    raise RuntimeError("second")
"""


@pytest.fixture
def shop(tmp_path: Path, spark: "SparkSession") -> Project:
    project = Project(tmp_path, spark)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    return project


def test_parameters(shop: Project) -> None:
    shop.flow(FLOW)
    with shop.open() as lake:
        result = lake.run()
        assert lake.query("select id from dws.large").rows() == [(2,)]
        assert re.fullmatch(
            r"ods\.orders ingest succeeded, 2 rows, \d+\.\d s: 1 new file\n"
            r"dws\.large full succeeded, 1 row, \d+\.\d s: not computed yet\n"
            r"succeeded on main, commit \w{8}, \d+\.\d s",
            str(result),
        )
        assert [step.action for step in lake.plan(params={"least": 1}).work] == ["full"]
        lake.run(params={"least": 1})
        assert lake.query("select id from dws.large order by id").rows() == [(1,), (2,)]
        assert lake.settings.params == {}, "they are those of one run"
        with pytest.raises(ProjectMistakes, match=r"--set leats=... reaches no task.*close: `least`"):
            lake.run(params={"leats": 1})


def test_every_task_that_failed_is_named(shop: Project) -> None:
    shop.flow(FAILING)
    with shop.open() as lake, pytest.raises(RunnelError) as caught:
        lake.run()
    assert caught.value.code == "RUN_TASK_FAILED"
    assert "task `dws.a` failed: RuntimeError: first" in str(caught.value)
    assert "task `dws.b` failed: RuntimeError: second" in str(caught.value)
