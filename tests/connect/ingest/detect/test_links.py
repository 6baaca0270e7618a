"""Whoever may put files into a source's folder does not choose what else Runnel reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runnel.connect.ingest.detect.listing import list_files
from runnel.errors import Mistake
from tests.run.project import Project

FLOW = 'rn.source("ods.orders", rn.files("data/*", format="csv", schema="id long"{options}))\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project's folder with one file of data, and a file outside of it."""
    (tmp_path / "shop/data/in").mkdir(parents=True)
    (tmp_path / "shop/data/a.csv").write_text("id\n1\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.csv").write_text("id\n2\n")
    return tmp_path / "shop"


def link(path: Path, target: str) -> None:
    """Put a link somewhere."""
    path.symlink_to(target)


def link_twice(root: Path) -> None:
    """Put a link to a link that leads out."""
    link(root / "data/in/x", "../../other.csv")
    link(root / "data/b", "in/x")


LEADING_OUT: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a file": ("data/*.csv", lambda root: link(root / "data/b.csv", "../../elsewhere/b.csv")),
    "an absolute path": ("data/*", lambda root: link(root / "data/b", str(root.parent / "elsewhere/b.csv"))),
    "a folder": ("data/**/*.csv", lambda root: link(root / "data/more", "../../elsewhere")),
    "a folder of a pattern": ("data/mo*/*.csv", lambda root: link(root / "data/more", "../../elsewhere")),
    "a file of the project": ("data/*", lambda root: link(root / "data/b.csv", "../other.csv")),
    "a link of a link": ("data/*", link_twice),
}


@pytest.mark.parametrize(("pattern", "put_link"), LEADING_OUT.values(), ids=LEADING_OUT)
def test_a_link_that_leads_out_is_refused(root: Path, pattern: str, put_link: Callable[[Path], None]) -> None:
    (root / "other.csv").write_text("id\n3\n")
    put_link(root)
    with pytest.raises(Mistake, match="is behind a link that leads out of 'data'") as raised:
        list_files(root, pattern)
    assert raised.value.code == "SOURCE_FILE_LINK" and "follow_links=True" in str(raised.value.fix)
    assert list_files(root, pattern, follow_links=True)


FOLLOWED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a link within": ("data/*.csv", lambda root: link(root / "data/b.csv", "a.csv"), "data/b.csv"),
    "the folder": ("linked/*.csv", lambda root: link(root / "linked", "../elsewhere"), "linked/b.csv"),
    "a folder above it": ("up/elsewhere/*.csv", lambda root: link(root / "up", ".."), "up/elsewhere/b.csv"),
    "a file that is named": ("b.csv", lambda root: link(root / "b.csv", "../elsewhere/b.csv"), "b.csv"),
    "a broken link is left out": ("data/*.csv", lambda root: link(root / "data/b.csv", "../gone"), "data/a.csv"),
}


@pytest.mark.parametrize(("pattern", "put_link", "path"), FOLLOWED.values(), ids=FOLLOWED)
def test_links_that_users_make_are_followed(
    root: Path, pattern: str, put_link: Callable[[Path], None], path: str
) -> None:
    put_link(root)
    assert path in list_files(root, pattern)


def test_a_source_reads_behind_links_only_if_it_declares_so(root: Path) -> None:
    project = Project(root)
    project.flow(FLOW.format(options=""), orders=None)
    project.run()
    link(root / "data/b.csv", "../../elsewhere/b.csv")
    with pytest.raises(Mistake, match="leads out"):
        project.run()
    project.flow(FLOW.format(options=", follow_links=True"), orders=None)
    project.run()
    assert project.rows("ods.orders") == [(1,), (2,)]
