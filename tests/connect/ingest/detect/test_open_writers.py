"""Files that somebody is still writing are left alone, and told of; so are those that are not finished by name."""

import os
from pathlib import Path

import pytest

from runnel.connect.ingest import failpoints
from runnel.connect.ingest.detect.listing import list_files
from runnel.errors import Mistake
from tests.run.project import Project, did, reasons

FLOW = 'rn.source("ods.orders", rn.files("data/*", format="csv", schema="id long"{more}){options})\n'


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.flow(FLOW.format(more="", options=""), orders=None)
    return project


def ids(project: Project) -> list[int]:
    return [row[0] for row in project.rows("ods.orders")]


@pytest.mark.skipif(not hasattr(__import__("fcntl"), "F_SETLEASE"), reason="only Linux tells who writes")
def test_a_file_that_is_open_for_writing_is_left_alone(shop: Project) -> None:
    shop.write("data/a.csv", "id\n1\n")
    shop.run()
    with (shop.root / "data/b.csv").open("w") as file:
        file.write("id\n2\n3")
        file.flush()
        assert reasons(shop.plan()) == {"ods.orders": "skip: no new files; data/b.csv is still being written"}
        assert did(shop.run()) == {}
        shop.write("data/c.csv", "id\n5\n")
        assert did(shop.run()) == {"ods.orders": "ingest"}
        file.write("4\n")
    shop.run()
    assert ids(shop) == [1, 2, 34, 5]
    with (shop.root / "data/a.csv").open("a") as file:
        file.write("6\n")
        file.flush()
        shop.run()
        assert ids(shop) == [1, 2, 34, 5]
        os.utime(shop.root / "data/a.csv", (1, 1))  # open, as logs are, and yet at rest
        shop.run()
        assert ids(shop) == [1, 2, 34, 5, 6]


@pytest.mark.skipif(not hasattr(__import__("fcntl"), "F_SETLEASE"), reason="only Linux tells who writes")
def test_the_first_file_is_still_written(shop: Project) -> None:
    shop.write("data/a.csv", "id\n1\n")
    told = r"has nothing to read yet: data/a.csv is still being written"
    with (shop.root / "data/a.csv").open("a"), pytest.raises(Mistake, match=told):
        shop.plan()
    assert did(shop.run()) == {"ods.orders": "ingest"}


def test_a_file_that_changes_while_it_is_read_is_left_for_the_next_run(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("data/a.csv", "id\n1\n")
    shop.run()
    reach = failpoints.reach

    def append(point: str) -> None:
        if point == failpoints.READ:
            with (shop.root / "data/b.csv").open("a") as file:
                file.write("3\n")
        reach(point)

    monkeypatch.setattr(failpoints, "reach", append)
    shop.write("data/b.csv", "id\n2\n")
    ran = shop.run()
    assert (ran.state, ran.commit, did(ran)) == ("nothing", None, {})
    assert [step.reason for step in ran.steps] == ["data/b.csv is still being written"]
    shop.write("data/c.csv", "id\n4\n")
    [step] = shop.run().steps
    assert (step.rows, step.warnings) == (1, ("data/b.csv is still being written",))
    monkeypatch.undo()
    shop.run()
    assert ids(shop) == [1, 2, 3, 3, 3, 4]


def test_unfinished_files_are_known_by_name(tmp_path: Path) -> None:
    names = "a.csv b.csv.tmp c.csv.part d.csv._COPYING_ .e.csv _SUCCESS _temporary/0/f.csv _y=1/g.csv h~"
    for name in names.split():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert list(list_files(tmp_path, "in/**")) == ["in/_y=1/g.csv", "in/a.csv"]
    assert list(list_files(tmp_path, "in/_temporary/**/*.csv")) == ["in/_temporary/0/f.csv"]
    assert list(list_files(tmp_path, "in/*.tmp")) == ["in/b.csv.tmp"]


def test_what_is_skipped_is_told(shop: Project) -> None:
    shop.flow(FLOW.format(more="", options=', on_bad="drop"'), orders=None)
    shop.write("data/a.csv", "id\n1\n")
    shop.write("data/b.csv", "di\n2\n")
    [step] = shop.run().steps
    assert step.warnings == ("a file was skipped: data/b.csv lacks `id`",)
    assert did(shop.run()) == {}


MISTAKES = {
    "unknown": (", sep=';'", "there is no option `sep`"),
    "another format": (", row_tag='x'", "`row_tag` applies only to XML, but this is CSV"),
    "delimiter": (", delimiter='12345'", "`delimiter` can't be '12345'"),
    "quote": (", quote='ab'", "`quote` can't be 'ab'"),
    "null": (", null=5", "`null` can't be '5'"),
    "skip": (", skip=-1", "`skip` must be a whole number"),
    "missing": (", missing='nul'", "`missing` can't be 'nul'; close: `null`"),
    "decimal": (", decimal=';'", "`decimal` can't be ';'"),
    "date": (", date_format='qq'", "`date_format` can't be 'qq'"),
}


@pytest.mark.parametrize(("more", "told"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_declared_wrongly_is_told(shop: Project, more: str, told: str) -> None:
    shop.flow(FLOW.format(more=more, options=""), orders=None)
    with pytest.raises(Mistake) as raised:
        shop.plan()
    assert told in str(raised.value)
    assert "flows/flow.py" in str(raised.value)


def test_options_as_users_type_them(shop: Project) -> None:
    more = ", delimiter=';', null=['', 'NA'], skip=1, comment='#', trim=True, missing='null', date_format='dd/MM/yyyy'"
    shop.flow(FLOW.format(more=more, options="").replace("id long", "id long, day date"), orders=None)
    shop.write("data/a.csv", "x\nid;day\n# y\n 1 ; 31/12/2026\n NA\n")
    shop.run()
    assert [(number, str(day)) for number, day in shop.rows("ods.orders")] == [(1, "2026-12-31"), (None, "None")]
