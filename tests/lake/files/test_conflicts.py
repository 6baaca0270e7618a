"""Writers of different paths don't disturb each other; two writers of one path conflict."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from runnel.errors import Conflict
from runnel.lake.files import put as put_module
from runnel.lake.files.put import put_files
from runnel.lake.files.remove import remove_files
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from tests.lake.files.factories import DOCS, contents, paths, put_tree, tree

Meanwhile = Callable[[Store, Path], object]
BASE: dict[str, bytes | str] = {"a": "a", "b": "b", "c": "c"}


def puts(files: dict[str, bytes | str]) -> Meanwhile:
    return lambda store, folder: put_tree(store, folder, files)


def removes(*globs: str) -> Meanwhile:
    return lambda store, folder: remove_files(store, DOCS, globs)


CASES: dict[str, tuple[dict[str, bytes | str], Meanwhile, set[str]]] = {
    "another path added": ({"a": "mine", "x": "x"}, puts({"y": "y"}), set()),
    "another path replaced, in the same data file": ({"a": "mine"}, puts({"b": "theirs"}), set()),
    "another path removed, in the same data file": ({"a": "mine"}, removes("b"), set()),
    "the same path replaced": ({"a": "mine"}, puts({"a": "theirs"}), {"a"}),
    "the same path replaced by the same contents": ({"a": "mine"}, puts({"a": "mine"}), set()),
    "the same path added": ({"x": "mine", "y": "mine"}, puts({"x": "theirs", "y": "theirs"}), {"x", "y"}),
    "the same path removed": ({"a": "mine"}, removes("a"), {"a"}),
    "a path that was unchanged for us is replaced": ({"a": "a", "x": "x"}, puts({"a": "theirs"}), {"a"}),
}


@pytest.fixture
def while_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Return a function that has something done once, after a put has read its files and before it publishes."""

    def arrange(work: Callable[[], object]) -> None:
        real = put_module.publish_change_set

        def late(*arguments, **options):
            monkeypatch.setattr(put_module, "publish_change_set", real)
            work()
            return real(*arguments, **options)

        monkeypatch.setattr(put_module, "publish_change_set", late)

    return arrange


@pytest.mark.parametrize(("ours", "theirs", "expected"), CASES.values(), ids=CASES)
def test_two_writers(store: Store, tmp_path: Path, while_reading, ours, theirs, expected):
    put_tree(store, tmp_path / "base", BASE)
    while_reading(lambda: theirs(store, tmp_path / "theirs"))
    if expected:
        with pytest.raises(Conflict) as refused:
            put_tree(store, tmp_path / "ours", ours)
        assert refused.value.code == "FILES_CONFLICT"
        assert all(f"`{path}`" in refused.value.what for path in expected)
        return
    put_tree(store, tmp_path / "ours", ours)
    found = contents(store, tmp_path / "out")
    assert {path: found[path].decode() for path in ours} == ours
    assert len(paths(store)) == len(found)


def test_a_removal_and_a_put_of_one_path_conflict(store: Store, tmp_path: Path, monkeypatch):
    from runnel.lake.files import remove as remove_module

    put_tree(store, tmp_path / "base", BASE)
    real = remove_module.publish_change_set
    theirs = lambda: put_tree(store, tmp_path / "theirs", {"a": "theirs"})  # noqa: E731
    monkeypatch.setattr(
        remove_module, "publish_change_set", lambda *arguments, **options: (theirs(), real(*arguments, **options))[1]
    )
    with pytest.raises(Conflict, match="`a`"):
        remove_files(store, DOCS, ["a"])


def test_what_somebody_else_removed_needs_no_commit(store: Store, tmp_path: Path, monkeypatch):
    from runnel.lake.files import remove as remove_module

    put_tree(store, tmp_path / "base", BASE)
    real = remove_module.publish_change_set

    def late(*arguments, **options):
        monkeypatch.setattr(remove_module, "publish_change_set", real)
        remove_files(store, DOCS, ["a"])
        return real(*arguments, **options)

    monkeypatch.setattr(remove_module, "publish_change_set", late)
    assert remove_files(store, DOCS, ["a"]).commit is None
    assert paths(store) == ["b", "c"]


@pytest.mark.parametrize("theirs", [{"y": "y"}, {"x": "mine"}], ids=["other paths", "the same contents"])
def test_two_writers_may_create_the_table(store: Store, tmp_path: Path, while_reading, theirs):
    while_reading(lambda: put_tree(store, tmp_path / "theirs", theirs))
    put_tree(store, tmp_path / "ours", {"x": "mine"})
    assert paths(store) == sorted({"x"} | theirs.keys())


def test_two_creators_of_one_path_conflict(store: Store, tmp_path: Path, while_reading):
    while_reading(lambda: put_tree(store, tmp_path / "theirs", {"x": "theirs"}))
    with pytest.raises(Conflict, match="`x`"):
        put_tree(store, tmp_path / "ours", {"x": "mine"})


def test_a_compaction_meanwhile_is_no_conflict(store: Store, tmp_path: Path, while_reading):
    for path in "abcdefgh":
        put_tree(store, tmp_path / path, {path: path})
    while_reading(lambda: compact(store, DOCS))
    put_tree(store, tmp_path / "ours", {"a": "mine"})
    assert contents(store, tmp_path / "out")["a"] == b"mine" and len(paths(store)) == 8


def test_many_writers_at_once(both: Store, tmp_path: Path):
    folders = [tree(tmp_path / str(number), {f"{number}/{n}": f"{n}" for n in range(3)}) for number in range(6)]
    failed: list[BaseException] = []

    def work(number: int, folder: Path) -> None:
        try:
            put_files(both, DOCS, [folder])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=one) for one in enumerate(folders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(paths(both)) == 18
