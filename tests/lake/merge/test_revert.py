"""Revert: a new commit that undoes an old one, keeping what came later where it can."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from pyiceberg.types import StringType

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.history.commits import Commit, read_history
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.merge.merge import merge_branch
from runnel.lake.merge.revert import RevertConflict, revert_commit
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.table_changes import branch, columns, compact, delete_rows, drop, evolve, files, overwrite

T = "ods.orders"
Act = Callable[[Store], Commit]
START = ((1, "d1", 5), (2, "d2", 6))


def append(*values: tuple[int, str, int]) -> Act:
    return lambda store: add(store, T, rows(*values))


def replace(day: str, *values: tuple[int, str, int]) -> Act:
    return lambda store: overwrite(store, T, rows(*values), day=day)


def remove(day: str) -> Act:
    return lambda store: delete_rows(store, T, {files(store, T, day=day)[0].path: [0]})


def note(store: Store) -> Commit:
    return evolve(store, T, columns(lambda update: update.add_column("note", StringType())))


def compacted(day: str) -> Act:
    return lambda store: compact(store, T, day=day)


def dropped(store: Store) -> Commit:
    return drop(store, T)


# The commit, what came later, and the rows once it is undone.
REVERTS: dict[str, tuple[Act, list[Act], list[Any]]] = {
    "the newest": (append((3, "d1", 7)), [], [*START]),
    "a new column": (note, [], [*START]),
    "a dropped table": (dropped, [], [*START]),
    "an append before other appends": (append((3, "d1", 7)), [append((4, "d1", 8))], [*START, (4, "d1", 8)]),
    "an append before an overwrite of other files": (append((3, "d3", 7)), [replace("d1")], [(2, "d2", 6)]),
    "an append before a new column": (append((3, "d1", 7)), [note], [(*row, None) for row in START]),
    "an overwrite before work elsewhere": (replace("d1", (9, "d1", 9)), [append((4, "d2", 8))], [*START, (4, "d2", 8)]),
    "a delete before work elsewhere": (remove("d1"), [append((4, "d2", 8))], [*START, (4, "d2", 8)]),
    "compacted since": (append((3, "d1", 7)), [compacted("d1")], [*START]),
    "compacted since, and work elsewhere": (
        append((3, "d1", 7)),
        [compacted("d1"), append((4, "d2", 8))],
        [*START, (4, "d2", 8)],
    ),
}


@pytest.mark.parametrize(("act", "later", "expected"), REVERTS.values(), ids=REVERTS)
def test_a_commit_is_undone(store: Store, act: Act, later: list[Act], expected: list[Any]) -> None:
    create(store, T, rows(*START), by="day")
    commit = act(store)
    for one in later:
        one(store)
    before = read(store, T) if act is not dropped else None
    undone = revert_commit(store, commit.id)
    assert undone.kind == "revert" and commit.id[:8] in undone.message
    assert read(store, T) == sorted(expected, key=repr)
    if before is not None:
        revert_commit(store, undone.id)
        assert read(store, T) == before


CONFLICTS: dict[str, tuple[Act, Act, str]] = {
    "the same partition": (replace("d1", (9, "d1", 9)), append((4, "d1", 8)), "both sides changed rows of day=d1"),
    "an append that was overwritten": (append((3, "d1", 7)), replace("d1"), "both sides changed rows of day=d1"),
    "columns, and rows since": (note, remove("d1"), "changed its columns"),
    "dropped since": (append((3, "d1", 7)), dropped, "it was dropped"),
    "created, and rows since": (lambda store: store.commit("main"), append((4, "d1", 8)), "this commit created it"),
    "dropped, and created anew": (dropped, lambda s: create(s, T, rows((7, "d7", 7))), "created again later"),
}


@pytest.mark.parametrize(("act", "later", "reason"), CONFLICTS.values(), ids=CONFLICTS)
def test_later_commits_stand_against_it(store: Store, act: Act, later: Act, reason: str) -> None:
    create(store, T, rows(*START), by="day")
    commit, newer = act(store), later(store)
    with pytest.raises(RevertConflict, match=reason) as caught:
        revert_commit(store, commit.id)
    assert caught.value.code == "REVERT_CONFLICT" and newer.id[:8] in caught.value.what
    assert store.commit("main") == newer


def test_all_tables_of_a_commit_or_none(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 1)))
    branch(both, "dev")
    add(both, "ods.a", rows((2, "d2", 2)), branch="dev")
    create(both, "ods.b", rows((3, "d3", 3)), branch="dev")
    drop(both, "ods.a", branch="dev")
    create(both, "ods.a", rows((4, "d4", 4)), branch="dev")
    merged = merge_branch(both, "dev").commit
    assert merged is not None
    undone = revert_commit(both, merged.id)
    assert [str(name) for name in both.state()] == ["ods.a"] and read(both, "ods.a") == [(1, "d1", 1)]
    assert merge_branch(both, "dev").commit is None  # it was merged; the revert said no to it
    again = revert_commit(both, undone.id)
    assert read(both, "ods.a") == [(4, "d4", 4)] and read(both, "ods.b") == [(3, "d3", 3)]
    assert [c.id for c in both.db.read(lambda c: read_history(c, again))][:3] == [again.id, undone.id, merged.id]


def test_a_file_that_comes_back_keeps_the_deletes_that_it_had(store: Store) -> None:
    """One delete file for two data files stays when one of them is overwritten, and counts again when it is back."""
    create(store, T, rows((1, "d1", 5), (2, "d1", 6)))
    add(store, T, rows((3, "d1", 7)))
    first, second = files(store, T)
    delete_rows(store, T, {first.path: [0]})
    gone = publish_edit(
        store, "main", TableName.parse(T), lambda version: VersionEdit(removed=[first]), "overwrite one file"
    )
    assert read(store, T) == [(3, "d1", 7)]
    evolve(store, T, columns(lambda update: update.add_column("note", StringType())))
    revert_commit(store, gone.id)
    assert read(store, T) == [(2, "d1", 6, None), (3, "d1", 7, None)]
    assert {entry.sequence for entry in files(store, T)} == {first.sequence, second.sequence}


def expire(store: Store, commit: Commit) -> None:
    table = schema.commits
    update = sa.update(table).where(table.c.id == commit.id).values(expired_at="2026-01-01T00:00:00.000000Z")
    store.db.write(lambda connection: connection.execute(update))


def test_mistakes(both: Store) -> None:
    root = both.commit("main")
    first = create(both, T, rows(*START))
    branch(both, "dev")
    second = add(both, T, rows((3, "d1", 7)))
    there = add(both, T, rows((4, "d1", 8)), branch="dev")

    def code(ref: str, on: str = "main") -> str:
        with pytest.raises(Mistake) as caught:
            revert_commit(both, ref, on)
        return caught.value.code

    assert code(root.id) == "REVERT_ROOT"
    assert code("zzz") == "REF_UNKNOWN"
    assert code(first.id, "dve") == "BRANCH_UNKNOWN"
    assert code(there.id) == code(second.id, "dev") == "REVERT_ELSEWHERE"
    merged = merge_branch(both, "dev").commit
    assert merged is not None
    with pytest.raises(Mistake, match=f"it came with merge {merged.id[:8]}"):
        revert_commit(both, there.id)
    undone = revert_commit(both, merged.id)
    assert code(merged.id) == "REVERT_NOTHING"
    expire(both, second)
    assert code(second.id) == "REF_EXPIRED" and code(merged.id) == "REVERT_EXPIRED"
    assert both.commit("main") == undone


def test_reverts_of_many_writers_all_land(both: Store) -> None:
    create(both, T, rows(*START))
    made = [add(both, T, rows((number, "d1", 0))) for number in range(3, 9)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda commit: revert_commit(both, commit.id), made))
    assert read(both, T) == [*START]
