"""A version that another branch made of the same files is reused, unless it lacks rows that this run must not lack."""

from pathlib import Path

import pytest

from tests.run.project import Project, did

GOOD = "id,name\n1,a\n"
SOURCE = (
    "import runnel as rn\n"
    'rn.source("ods.orders", rn.files("data/*.csv", schema="id long, name string"), on_bad="{on_bad}")\n'
)


def declare(project: Project, on_bad: str) -> None:
    project.write("flows/flow.py", SOURCE.format(on_bad=on_bad))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose main has read one good file, with a branch dev."""
    project = Project(tmp_path)
    declare(project, "stop")
    project.write("data/a.csv", GOOD)
    project.run()
    with project.open() as lake:
        lake.branch("dev")
    return project


WRONG_TYPE = "id,name\n2,b\nx,c\n"
CASES = {
    # how dev reads the file, its text, where the run of main says that it is wrong
    "a value of another type, dropped": ("drop", WRONG_TYPE, "data/b.csv:3"),
    "a value of another type, in quarantine": ("quarantine", WRONG_TYPE, "data/b.csv:3"),
    "a row that is too long": ("drop", "id,name\n2,b\n3,c,d\n", "data/b.csv:3"),
    "a file without a column": ("drop", "name\nb\n", "data/b.csv:1"),
}


@pytest.mark.parametrize(("on_bad", "text", "place"), CASES.values(), ids=CASES)
def test_a_version_that_lacks_bad_rows_is_not_reused_by_a_source_that_stops(
    project: Project, on_bad: str, text: str, place: str
) -> None:
    project.write("data/b.csv", text)
    declare(project, on_bad)
    assert did(project.run(branch="dev")) == {"ods.orders": "ingest"}
    declare(project, "stop")
    failed = project.run()
    assert failed.state == "failed" and failed.commit is None
    assert [step.error.at for step in failed.steps if step.error] == [place]
    assert project.rows("ods.orders") == [(1, "a")]


def test_a_version_that_lacks_bad_rows_is_reused_by_a_source_that_drops_them(project: Project) -> None:
    project.write("data/b.csv", WRONG_TYPE)
    declare(project, "drop")
    project.run(branch="dev")
    assert did(project.run()) == {"ods.orders": "reuse"}
    assert project.rows("ods.orders") == [(1, "a"), (2, "b")]


def test_good_files_are_reused_though_a_bad_one_was_read_with_them(project: Project) -> None:
    """The good files come to main without the bad one: dev has a version with just those too."""
    declare(project, "drop")
    project.write("data/b.csv", "id,name\n2,b\n")
    project.run(branch="dev")
    project.write("data/b.csv", "id,name\n3,c\n")
    project.write("data/c.csv", WRONG_TYPE)
    project.run(branch="dev")
    (project.root / "data/c.csv").unlink()
    project.write("data/b.csv", "id,name\n2,b\n")
    declare(project, "stop")
    assert did(project.run()) == {"ods.orders": "reuse"}
    assert project.rows("ods.orders") == [(1, "a"), (2, "b")]
