"""`rewind` takes a source's table and position back together, and branches that read the same take it once."""

import json
from pathlib import Path

import pytest

from runnel.errors import RunnelError
from tests.connect.feed.test_function_feed import ONE, RATES, TWO, days, put
from tests.run.project import Project, did

THREE = {"day": "2026-01-03", "rate": "1.3"}


@pytest.fixture
def files(tmp_path: Path) -> Project:
    """Orders in two files, each read by a run of its own."""
    project = Project(tmp_path)
    project.flow("")
    project.orders("a", (1, "2026-01-01", 5))
    project.run()
    project.orders("b", (2, "2026-01-02", 7))
    project.run()
    return project


@pytest.fixture
def rates(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.flow(RATES.format(options=""), orders=None)
    put(project, ONE)
    project.run()
    return project


def ids(project: Project) -> list[int]:
    return sorted(row[0] for row in project.rows("ods.orders"))


def test_a_reverted_file_is_read_again_after_a_rewind(files: Project) -> None:
    with files.open() as lake:
        lake.revert("main")
        assert ids(files) == [1]
        assert did(files.run()) == {}
        done = lake.rewind("ods.orders", to="main~2")
        assert (done.files, done.has_state, done.drops) == (1, False, False)
    assert did(files.run()) == {"ods.orders": "reuse"}  # the version with the same contents is known
    assert ids(files) == [1, 2]


def test_rows_that_are_there_are_not_doubled(files: Project) -> None:
    with files.open() as lake:
        lake.rewind("ods.orders", to="main~1")
    assert ids(files) == [1]
    files.run()
    assert ids(files) == [1, 2]
    with files.open() as lake:
        lake.rewind("ods.orders", to="main~3~1")
    files.run()
    assert ids(files) == [1, 2]


def test_a_rewind_to_before_the_first_row_reads_everything(files: Project) -> None:
    with files.open() as lake:
        assert lake.rewind("ods.orders", to="main~2").drops
        assert "ods.orders" not in lake.tables()
    files.run()
    assert ids(files) == [1, 2]


def test_a_state_goes_back_too_and_forward_again(rates: Project) -> None:
    put(rates, ONE, TWO)
    rates.run()
    with rates.open() as lake:
        assert lake.rewind("ods.rates", to="main~1").has_state
        assert days(rates) == ["2026-01-01"]
        with pytest.raises(RunnelError, match="REVERT_REWIND"):
            lake.revert("main")
        lake.rewind("ods.rates", to="main~1")
    assert days(rates) == ["2026-01-01", "2026-01-02"]
    assert did(rates.run()) == {}


MISTAKES = {
    "no such table": ("ods.ordres", "main", "close: `ods.orders`"),
    "nothing to take back": ("ods.orders", "main", "REWIND_NOTHING"),
    "no such ref": ("ods.orders", "nope", "nope"),
}


@pytest.mark.parametrize(("table", "to", "told"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told(table: str, to: str, told: str, files: Project) -> None:
    with files.open() as lake, pytest.raises(RunnelError) as error:
        lake.rewind(table, to=to)
    assert told in str(error.value)


def test_a_table_that_no_source_fills_is_refused(files: Project) -> None:
    files.write("more.csv", "id\n1\n")
    with files.open() as lake:
        lake.load("ods.more", files.root / "more.csv")
        with pytest.raises(RunnelError, match="REWIND_NO_SOURCE"):
            lake.rewind("ods.more", to="main~1")


@pytest.mark.parametrize("further", ["main", "dev"])
def test_of_two_branches_the_one_that_read_further_is_taken(further: str, rates: Project) -> None:
    with rates.open() as lake:
        lake.branch("dev")
    put(rates, ONE, TWO)
    rates.run(branch="main" if further == "dev" else "dev")
    put(rates, ONE, TWO, THREE)
    rates.run(branch=further)
    with rates.open() as lake:
        lake.merge("dev")
    assert days(rates) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    put(rates, ONE, TWO, THREE, {"day": "2026-01-04", "rate": "1.4"})
    rates.run()
    assert json.dumps(days(rates)) == json.dumps([f"2026-01-0{day}" for day in range(1, 5)])
