"""Which commits lie behind a commit, and where two of them last agreed."""

from random import Random

import pytest
import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.history.ancestry import (
    find_merge_base,
    find_merge_bases,
    find_next_merge_bases,
    find_tables_changed_between,
    is_ancestor,
    read_ancestor_sequences,
)
from runnel.lake.history.branches import delete_branch
from runnel.lake.history.commits import Commit
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import branch


def commit(store: Store, on: str = "main", merged: str | None = None) -> Commit:
    """Publish a commit without changes; `merged` names the branch that it takes in."""
    taken = store.commit(merged).id if merged else None
    return publish(store.db, CommitDraft(on, f"on {on}", store.author, (), merged=taken))


def base(store: Store, a: Commit, b: Commit) -> Commit:
    return store.db.read(lambda connection: find_merge_base(connection, a, b))


def test_the_merge_base_is_the_newest_common_ancestor(both: Store) -> None:
    forked = commit(both)
    branch(both, "dev")
    assert base(both, both.commit("main"), both.commit("dev")) == forked
    dev, main = commit(both, "dev"), commit(both)
    assert base(both, main, dev) == base(both, dev, main) == forked
    assert base(both, main, forked) == forked and base(both, main, main) == main
    merge = commit(both, merged="dev")
    assert base(both, merge, dev) == dev
    newer = commit(both, "dev")
    assert base(both, merge, newer) == dev
    branch(both, "deep", "dev~1")
    deep = commit(both, "deep")
    assert base(both, commit(both), deep) == dev
    back = commit(both, "dev", merged="main")
    assert base(both, back, commit(both)).branch == "main"


def test_ancestors_through_merges_of_merges(both: Store) -> None:
    for name in ("a", "b"):
        branch(both, name)
    one, two = commit(both, "a"), commit(both, "b")
    commit(both, "a", merged="b")
    commit(both, merged="a")
    delete_branch(both.db, "a")
    behind = both.db.read(lambda connection: read_ancestor_sequences(connection, both.commit("main")))
    assert is_ancestor(behind, one) and is_ancestor(behind, two)
    assert not is_ancestor(behind, commit(both, "b")) and len(behind) == 3


def test_crosswise_merges_have_two_bases(both: Store) -> None:
    branch(both, "dev")
    main, dev = commit(both), commit(both, "dev")
    branch(both, "was")
    one, other = commit(both, merged="dev"), commit(both, "dev", merged="was")
    found = both.db.read(lambda connection: find_merge_bases(connection, one, other))
    assert found == [dev, main]


def test_the_cost_does_not_grow_with_commits(store: Store) -> None:
    branch(store, "dev")
    line = store.commit("main").line
    values = {"line": line, "branch": "main", "kind": "write", "author": "x", "message": "m", "at": "2026"}
    rows_made = [{"id": f"{n:020x}", "seq": n + 100, "parent": None, **values} for n in range(2000)]
    store.db.write(lambda connection: connection.execute(schema.commits.insert(), rows_made))
    asked: list[str] = []
    listen = sa.event.listens_for(store.db.engine, "before_cursor_execute")
    listen(lambda connection, cursor, statement, *rest: asked.append(statement))
    newest, dev = store.commit(f"{1999:020x}"), store.commit("dev")
    asked.clear()
    assert base(store, newest, dev) == dev and len(asked) < 6
    plan = "explain query plan select seq from runnel_commits where merged is not null order by line, seq"
    with store.db.read_transaction() as connection:
        shown = connection.execute(sa.text(plan)).all()
    assert "runnel_commits_merged" in str(shown)


@pytest.mark.parametrize("flip", [False, True])
def test_tables_between_are_those_that_changed(both: Store, flip: bool) -> None:
    for name in ("ods.a", "ods.b", "ods.c"):
        create(both, name, rows((1, "d", 1)))
    start = both.commit("main")
    branch(both, "dev")
    add(both, "ods.a", rows((2, "d", 2)))
    main = both.commit("main")
    dev = add(both, "ods.b", rows((3, "d", 3)), branch="dev")

    def between(a: Commit, b: Commit) -> list[str]:
        one, other = (b, a) if flip else (a, b)
        return both.db.read(lambda connection: find_tables_changed_between(connection, one, other))

    assert between(start, main) == ["ods.a"] and between(start, dev) == ["ods.b"]
    assert between(main, dev) == ["ods.a", "ods.b"] and between(main, main) == []
    assert between(both.commit("main~2"), main) == ["ods.a", "ods.c"]


@pytest.mark.parametrize("seed", range(4))
def test_the_bases_of_all_next_merges_are_those_of_each_pair(store: Store, seed: int) -> None:
    random = Random(seed)
    commit(store)
    live = ["main"]
    for step in range(60):
        at, act = random.choice(live), random.random()
        if act < 0.25:
            branch(store, f"b{step}", at)
            live.append(f"b{step}")
        elif act < 0.4 and at != "main":
            delete_branch(store.db, at)
            live.remove(at)
        else:
            commit(store, at, merged=random.choice(live) if act < 0.7 else None)
    heads = [store.commit(name) for name in live]
    with store.db.read_transaction() as connection:
        found = find_next_merge_bases(connection, [(head.line, head.seq) for head in heads])
        pairs = [(a, b) for number, a in enumerate(heads) for b in heads[:number]]
        expected = {base.id for a, b in pairs for base in find_merge_bases(connection, a, b)}
    assert {base.id for base in found} >= expected - {head.id for head in heads}
    assert {base.id for base in found} <= expected | {head.id for head in heads}
