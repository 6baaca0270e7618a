"""A branch is a catalog name: forking copies rows, and what happens on one is not seen on another."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from runnel.errors import Mistake
from runnel.lake.history.branches import delete_branch, fork_branch, list_branches
from runnel.lake.store import Store
from tests.lake.factories import add, create, read, rows


def test_a_fork_is_apart(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    fork_branch(both.db, "dev", both.commit("main"), "ada")
    add(both, "ods.orders", rows((2, "d2", 7)), branch="dev")
    assert len(read(both, "ods.orders", "dev")) == 2
    assert len(read(both, "ods.orders", "main")) == 1
    assert [one.name for one in both.db.read(list_branches)] == ["main", "dev"]


def test_a_fork_of_an_old_commit_has_its_tables(both: Store) -> None:
    first = create(both, "ods.a", rows((1, "d1", 5)))
    create(both, "ods.b", rows((1, "d1", 5)))
    fork_branch(both.db, "old", both.commit(first.id), "ada")
    assert [str(name) for name in both.state("old")] == ["ods.a"]
    fork_branch(both.db, "older", both.commit("old~1"), "ada")
    assert both.state("older") == {}


def test_a_fork_of_a_fork_walks_back_to_the_beginning(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    for origin, name in (("main", "one"), ("one", "two"), ("two", "three")):
        fork_branch(both.db, name, both.commit(origin), "ada")
        add(both, "ods.a", rows((2, name, 7)), branch=name)
    assert len(read(both, "ods.a", "three")) == 4
    assert len(read(both, "ods.a", "three~2")) == 2
    assert both.commit("three~4").message == "the lake is created"
    with pytest.raises(Mistake, match="before the first commit"):
        both.commit("three~5")


def test_a_deleted_branch_leaves_its_commits(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    fork_branch(both.db, "dev", both.commit("main"), "ada")
    made = add(both, "ods.a", rows((2, "d1", 5)), branch="dev")
    delete_branch(both.db, "dev")
    assert len(read(both, "ods.a", made.id)) == 2
    with pytest.raises(Mistake, match="no branch, tag or commit"):
        both.commit("dev")
    fork_branch(both.db, "dev", both.commit("main"), "ada")
    assert len(read(both, "ods.a", "dev")) == 1


MISTAKES = {
    "exists": (lambda store: fork_branch(store.db, "main", store.commit("main"), "x"), "exists"),
    "reserved": (lambda store: fork_branch(store.db, "run_1", store.commit("main"), "x"), "reserved"),
    "main stays": (lambda store: delete_branch(store.db, "main"), "can't be deleted"),
    "unknown": (lambda store: delete_branch(store.db, "mian"), "close: `main`"),
    "bad time": (lambda store: store.commit("main@yesterday"), "not a time"),
    "before all": (lambda store: store.commit("main@2001-01-01"), "before the first commit"),
    "unknown commit": (lambda store: store.commit("abcdef12"), "no branch, tag or commit"),
    "hostile": (lambda store: store.commit("main' or 1=1 --"), "no branch, tag or commit"),
}


@pytest.mark.parametrize(("act", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told(store: Store, act, said: str) -> None:
    with pytest.raises(Mistake, match=said):
        act(store)


def test_many_forks_at_once(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    start = both.commit("main")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: fork_branch(both.db, f"b{n}", start, "ada"), range(16)))
    assert len(both.db.read(list_branches)) == 17
