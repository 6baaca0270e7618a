"""What docs/flows.md shows loads, and it names every option."""

import re
from pathlib import Path

import runnel
from runnel.declare.options.task_options import OPTION_NAMES
from tests.declare.conftest import Project

PAGE = (Path(__file__).parents[2] / "docs" / "flows.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_load(project: Project) -> None:
    first, template, schedules = blocks("python")
    refunds = '\nrn.source("ods.refunds", rn.manual())\n'
    project.write(
        {"flows/all.py": first + refunds + template + schedules, "flows/dwt/seller_day.sql": blocks("sql")[0]}
    )
    flow = project.load()
    assert (len(flow.tasks), len(flow.sources), len(flow.schedules)) == (4, 2, 3)


def test_every_option_and_public_name_is_documented() -> None:
    assert [name for name in OPTION_NAMES if f"`{name}`" not in PAGE] == []
    public = set(runnel.__all__) - {"RunnelError", "__version__", "open", "testing"}
    assert [name for name in sorted(public) if f"rn.{name}" not in PAGE] == []
