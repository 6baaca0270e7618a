"""A command that computes little starts Java without its optimising compiler; nothing else does."""

from pathlib import Path

import pytest

from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import _reads_few_bytes
from runnel.project.planning.plan_project import plan_project
from runnel.spark.jvm.command_line import DriverSettings, build_spark_command
from runnel.spark.jvm.java_home import find_java
from tests.run.project import Project

BRIEF = "-XX:TieredStopAtLevel=1"


@pytest.mark.parametrize(
    ("brief", "master", "is_in"), [(True, "local[2]", True), (False, "local[2]", False), (True, "yarn", False)]
)
def test_only_a_brief_local_start_leaves_the_compiler_out(
    tmp_path: Path, brief: bool, master: str, is_in: bool
) -> None:
    settings = DriverSettings(master, is_short_lived=brief)
    command = build_spark_command(find_java(), (), settings, tmp_path)
    assert (BRIEF in command.options) == is_in


def test_what_users_say_about_java_comes_last(tmp_path: Path) -> None:
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    settings = DriverSettings("local", conf, is_short_lived=True)
    options = build_spark_command(find_java(), (), settings, tmp_path).options
    assert options.index(BRIEF) < options.index("-XX:TieredStopAtLevel=4")


@pytest.mark.parametrize(("rows", "is_little"), [(10, True), (3_000_000, False)])
def test_little_is_counted_in_what_is_read(tmp_path: Path, rows: int, is_little: bool) -> None:
    project = Project(tmp_path)
    project.flow('@rn.task("dws.a")\ndef a(orders):\n    return orders\n')
    project.write("data/orders/a.csv", "id,day,amount\n" + "1,2026-01-01,5\n" * rows)
    with project.open() as lake:
        assert _reads_few_bytes(plan_project(lake, RunRequest())) == is_little
