"""Merge: every table is taken, replayed, left or refused, and the rows come out right."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from runnel.errors import Mistake, VersionConflict
from runnel.lake.history.branches import delete_branch
from runnel.lake.history.commits import Commit, CommitChange, read_history
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.merge.merge import MergeConflict, NeedsRun, merge_branch, plan_merge
from runnel.lake.merge.revert import revert_commit
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.table_changes import (
    branch,
    columns,
    compact,
    delete_rows,
    drop,
    equality_delete,
    evolve,
    files,
    metadata,
    overwrite,
    partitions,
    properties,
)

T = "ods.orders"
Act = Callable[[Store, str], object]
START = ((1, "d1", 5), (2, "d2", 6))


def append(*values: tuple[int, str, int]) -> Act:
    return lambda store, on: add(store, T, rows(*values), branch=on)


def replace(day: str, *values: tuple[int, str, int]) -> Act:
    return lambda store, on: overwrite(store, T, rows(*values), branch=on, day=day)


def remove(day: str, position: int = 0) -> Act:
    return lambda store, on: delete_rows(store, T, {files(store, T, on, day)[0].path: [position]}, branch=on)


def evolved(change: Callable[[Any], None]) -> Act:
    return lambda store, on: evolve(store, T, change, branch=on)


def both(*acts: Act) -> Act:
    def act(store: Store, on: str) -> None:
        for one in acts:
            one(store, on)

    return act


nothing: Act = lambda store, on: None  # noqa: E731
note = evolved(columns(lambda update: update.add_column("note", StringType())))
other = evolved(columns(lambda update: update.add_column("other", StringType())))
compacted: Act = lambda store, on: compact(store, T, branch=on, day="d1")  # noqa: E731
dropped: Act = lambda store, on: drop(store, T, branch=on)  # noqa: E731

# What main did, what dev did, the action, and the rows after the merge.
MERGES: dict[str, tuple[Act, Act, str, list[tuple[Any, ...]]]] = {
    "main has not moved": (nothing, append((3, "d1", 7)), "take", [*START, (3, "d1", 7)]),
    "dev has not moved": (append((3, "d1", 7)), nothing, "", [*START, (3, "d1", 7)]),
    "both appended": (append((3, "d1", 7)), append((4, "d1", 8)), "replay", [*START, (3, "d1", 7), (4, "d1", 8)]),
    "other partitions": (
        replace("d1", (9, "d1", 9)),
        replace("d2", (8, "d2", 8)),
        "replay",
        [(8, "d2", 8), (9, "d1", 9)],
    ),
    "append here, overwrite there": (append((3, "d1", 7)), replace("d2"), "replay", [(1, "d1", 5), (3, "d1", 7)]),
    "deletes there": (append((3, "d1", 7)), remove("d2"), "replay", [(1, "d1", 5), (3, "d1", 7)]),
    "deletes here": (remove("d2"), append((3, "d1", 7)), "replay", [(1, "d1", 5), (3, "d1", 7)]),
    "rows and their deletes there": (
        append((3, "d1", 7)),
        both(append((4, "d3", 8), (5, "d3", 9)), remove("d3")),
        "replay",
        [*START, (3, "d1", 7), (5, "d3", 9)],
    ),
    "a column here, rows there": (note, append((3, "d1", 7)), "replay", [(*r, None) for r in (*START, (3, "d1", 7))]),
    "rows here, a column there": (append((3, "d1", 7)), note, "replay", [(*r, None) for r in (*START, (3, "d1", 7))]),
    "a partition spec there": (
        append((3, "d1", 7)),
        evolved(partitions(lambda update: update.remove_field("day"))),
        "replay",
        [*START, (3, "d1", 7)],
    ),
    "properties on both sides": (
        evolved(properties(owner="ada")),
        both(evolved(properties(runnel__key="id")), append((3, "d1", 7))),
        "replay",
        [*START, (3, "d1", 7)],
    ),
    "compacted here, rows there": (compacted, append((3, "d1", 7)), "take", [*START, (3, "d1", 7)]),
    "rows here, compacted there": (append((3, "d1", 7)), compacted, "", [*START, (3, "d1", 7)]),
    "compacted and appended here, appended there": (
        both(append((3, "d1", 7)), compacted),
        append((4, "d1", 8)),
        "replay",
        [*START, (3, "d1", 7), (4, "d1", 8)],
    ),
    "appended here, compacted and appended there": (
        append((4, "d1", 8)),
        both(append((3, "d1", 7)), compacted),
        "replay",
        [*START, (3, "d1", 7), (4, "d1", 8)],
    ),
    "compacted here, overwritten there, appended elsewhere": (
        both(compacted, append((3, "d2", 7))),
        replace("d1", (9, "d1", 9)),
        "replay",
        [(2, "d2", 6), (3, "d2", 7), (9, "d1", 9)],
    ),
    "overwritten here, compacted there, appended elsewhere": (
        replace("d1", (9, "d1", 9)),
        both(compacted, append((3, "d2", 7))),
        "replay",
        [(2, "d2", 6), (3, "d2", 7), (9, "d1", 9)],
    ),
    "dropped there": (nothing, dropped, "drop", []),
    "dropped here": (dropped, nothing, "", []),
    "dropped on both sides": (dropped, dropped, "same", []),
}


@pytest.mark.parametrize(("here", "there", "action", "expected"), MERGES.values(), ids=MERGES)
def test_tables_are_merged(store: Store, here: Act, there: Act, action: str, expected: list[Any]) -> None:
    create(store, T, rows(*START), by="day")
    branch(store, "dev")
    here(store, "main")
    there(store, "dev")
    before = store.commit("main")
    plan = plan_merge(store, "dev")
    assert [step.action for step in plan.steps] == ([action] if action else [])
    done = merge_branch(store, "dev")
    if action == "":
        assert done.commit is None and store.commit("main") == before
    else:
        assert done.commit is not None and done.commit.merged == store.commit("dev").id
        assert merge_branch(store, "dev").commit is None
    if action == "same":  # the branches agree, and a commit without changes says so, once
        assert merge_branch(store, "main", "dev").commit is None
    assert (read(store, T) if expected else []) == sorted(expected, key=repr)
    assert (TableName.parse(T) in store.state("main")) == bool(expected)


CONFLICTS: dict[str, tuple[Act, Act, str]] = {
    "the same partition": (
        replace("d1", (9, "d1", 9)),
        replace("d1", (8, "d1", 8)),
        "both sides changed rows of day=d1",
    ),
    "appended to what was overwritten": (append((3, "d1", 7)), replace("d1"), "both sides changed rows of day=d1"),
    "appended to what was deleted from": (append((3, "d1", 7)), remove("d1"), "both sides changed rows of day=d1"),
    "deleted and overwritten": (remove("d1"), replace("d1", (9, "d1", 9)), "both sides changed rows of day=d1"),
    "compacted, appended and overwritten": (
        both(append((3, "d1", 7)), compacted),
        replace("d1", (9, "d1", 9)),
        "both sides changed rows of day=d1",
    ),
    "compacted and appended on both sides": (
        both(append((3, "d1", 7)), compacted),
        both(append((4, "d1", 8)), compacted),
        "both sides appended to and compacted rows of day=d1",
    ),
    "columns on both sides": (note, other, "both sides changed its columns"),
    "a column that came and went, and another one": (
        both(note, evolved(columns(lambda u: u.delete_column("note"))), append((3, "d1", 7))),
        other,
        "both sides changed its columns",
    ),
    "another spec, and overwritten": (
        both(evolved(partitions(lambda u: u.remove_field("day"))), append((3, "d1", 7))),
        replace("d2"),
        "under different partitions",
    ),
    "one property on both sides": (
        evolved(properties(owner="ada")),
        evolved(properties(owner="bob")),
        "both sides changed the property owner",
    ),
    "dropped here": (dropped, append((3, "d1", 7)), "dropped on main, changed on dev"),
    "dropped there": (append((3, "d1", 7)), dropped, "dropped on dev, changed on main"),
    "created anew there": (
        append((3, "d1", 7)),
        both(dropped, lambda store, on: create(store, T, rows((3, "d3", 3)), branch=on)),
        "dropped and created again on dev",
    ),
    "deleted by value": (
        append((3, "d1", 7)),
        lambda store, on: publish_edit(
            store,
            on,
            TableName.parse(T),
            lambda v: VersionEdit(added=[equality_delete(files(store, T, on)[0])]),
            "by value",
        ),
        "deleted by value on dev",
    ),
}


@pytest.mark.parametrize(("here", "there", "reason"), CONFLICTS.values(), ids=CONFLICTS)
def test_what_does_not_combine_is_reported(store: Store, here: Act, there: Act, reason: str) -> None:
    create(store, T, rows(*START), by="day")
    create(store, "ods.free", rows((1, "d1", 1)))
    branch(store, "dev")
    here(store, "main")
    there(store, "dev")
    add(store, "ods.free", rows((2, "d2", 2)), branch="dev")
    before = store.commit("main")
    with pytest.raises(MergeConflict) as caught:
        merge_branch(store, "dev")
    assert [str(step.table) for step in caught.value.tables] == [T]
    assert reason in caught.value.tables[0].reason and reason in str(caught.value)
    assert caught.value.code == "MERGE_CONFLICT" and caught.value.fix
    assert store.commit("main") == before


def test_an_unpartitioned_table_is_one_partition(store: Store) -> None:
    create(store, T, rows(*START))
    branch(store, "dev")
    append((3, "d1", 7))(store, "main")
    overwrite(store, T, rows((9, "d9", 9)), branch="dev")
    with pytest.raises(MergeConflict, match="not only by appending"):
        merge_branch(store, "dev")


CREATED: dict[str, tuple[pa.Table, str | None]] = {
    "the same rows": (rows((1, "d1", 1), (2, "d2", 2)), None),
    "the same rows in another order": (rows((2, "d2", 2), (1, "d1", 1)), None),
    "other rows": (rows((1, "d1", 1), (2, "d2", 3)), "created on both main and dev"),
    "a row twice": (rows((1, "d1", 1), (1, "d1", 1)), "created on both main and dev"),
    "other columns": (rows((1, "d1", 1), (2, "d2", 2)).rename_columns(["id", "on", "amount"]), "created on both"),
}


@pytest.mark.parametrize(("theirs", "conflict"), CREATED.values(), ids=CREATED)
def test_created_on_both_sides(store: Store, theirs: pa.Table, conflict: str | None) -> None:
    branch(store, "dev")
    create(store, T, rows((1, "d1", 1), (2, "d2", 2)))
    create(store, T, theirs, branch="dev")
    if conflict is not None:
        with pytest.raises(MergeConflict, match=conflict):
            merge_branch(store, "dev")
        return
    [step] = plan_merge(store, "dev").steps
    assert (step.action, step.reason) == ("same", "created on both main and dev with the same rows")
    merge_branch(store, "dev")
    assert read(store, T) == [(1, "d1", 1), (2, "d2", 2)]
    add(store, T, rows((3, "d3", 3)), branch="dev")  # each of both stands for the other from now on
    merge_branch(store, "dev")
    assert [row[0] for row in read(store, T)] == [1, 2, 3]


BACK: dict[str, Act] = {
    "reverted": lambda store, on: revert_commit(store, f"{on}~1", on),
    "dropped": lambda store, on: drop(store, T, branch=on),
}


@pytest.mark.parametrize("back", BACK.values(), ids=BACK)
def test_a_target_that_is_set_back_after_a_merge_without_changes_stays_so(store: Store, back: Act) -> None:
    create(store, T, rows(*START))
    branch(store, "dev")
    version = add(store, T, rows((3, "d3", 3)))
    state = store.state("main")[TableName.parse(T)]
    before = store.state("dev")[TableName.parse(T)].location
    publish(
        store.db,
        CommitDraft(
            "dev", "the same", "ada", (CommitChange(TableName.parse(T), before, state.location, state.content),)
        ),
    )
    done = merge_branch(store, "dev")
    assert done.commit is not None and done.commit.parent == version.id and done.commit.merged == store.commit("dev").id
    back(store, "main")
    now = store.state("main").get(TableName.parse(T))
    assert merge_branch(store, "dev").commit is None and store.state("main").get(TableName.parse(T)) == now


def test_a_task_made_table_is_work_and_not_a_conflict(store: Store) -> None:
    create(store, T, rows(*START))
    evolve(store, T, properties(runnel__made_by="task"))
    branch(store, "dev")
    append((3, "d1", 7))(store, "main")
    append((4, "d1", 8))(store, "dev")
    assert [step.action for step in plan_merge(store, "dev").steps] == ["compute"]
    with pytest.raises(NeedsRun, match=r"`ods\.orders` must be computed again") as caught:
        merge_branch(store, "dev")
    assert caught.value.code == "MERGE_NEEDS_RUN"


def test_merge_goes_on_where_the_last_one_ended(both: Store) -> None:
    create(both, T, rows(*START))
    branch(both, "dev")
    for number in range(3, 9, 2):
        add(both, T, rows((number, "main", 0)))
        add(both, T, rows((number + 1, "dev", 0)), branch="dev")
        done = merge_branch(both, "dev")
        assert done.commit is not None and merge_branch(both, "dev").commit is None
        assert len(done.plan.steps) == 1
    assert [row[0] for row in read(both, T)] == list(range(1, 9))
    assert merge_branch(both, "main", "dev").commit is not None
    assert read(both, T, "dev") == read(both, T)
    assert merge_branch(both, "dev").commit is None and merge_branch(both, "main", "dev").commit is None
    delete_branch(both.db, "dev")
    assert len(both.db.read(lambda c: read_history(c, both.commit("main")))) == 1 + 1 + 3 * 2
    assert [row[0] for row in read(both, T)] == list(range(1, 9))


def crossed(store: Store) -> None:
    """Merge main and dev into each other, each at what the other one was before."""
    create(store, T, rows(*START), by="day")
    branch(store, "dev")
    add(store, T, rows((3, "d1", 7)))
    add(store, T, rows((4, "d2", 8)), branch="dev")
    branch(store, "old_main")
    branch(store, "old_dev", "dev")
    assert merge_branch(store, "old_dev").commit and merge_branch(store, "old_main", "dev").commit
    assert read(store, T) == read(store, T, "dev")


def test_branches_merged_crosswise(both: Store) -> None:
    crossed(both)
    plan = plan_merge(both, "dev")
    assert len(plan.bases) == 2 and merge_branch(both, "dev").commit is not None  # it says that both agree
    assert merge_branch(both, "dev").commit is None
    add(both, T, rows((5, "d1", 9)))
    add(both, T, rows((6, "d1", 9)), branch="dev")
    assert merge_branch(both, "dev").commit is not None
    assert [row[0] for row in read(both, T)] == [1, 2, 3, 4, 5, 6]


def test_what_was_removed_after_a_crosswise_merge_does_not_come_back(store: Store) -> None:
    crossed(store)
    add(store, T, rows((5, "d2", 9)))
    overwrite(store, T, None, branch="dev", day="d1")
    with pytest.raises(MergeConflict, match="crosswise"):
        merge_branch(store, "dev")


def test_merge_of_merges(store: Store) -> None:
    create(store, T, rows(*START))
    for name in ("a", "b", "both"):
        branch(store, name)
    add(store, T, rows((3, "a", 0)), branch="a")
    add(store, T, rows((4, "b", 0)), branch="b")
    merge_branch(store, "a", "both")
    merge_branch(store, "b", "both")
    merge_branch(store, "a")
    merge_branch(store, "both")
    assert [row[0] for row in read(store, T)] == [1, 2, 3, 4]
    assert merge_branch(store, "b").commit is None


def test_another_engine_reads_what_was_merged(store: Store) -> None:
    create(store, T, rows(*START), by="day")
    branch(store, "dev")
    append((3, "d1", 7))(store, "main")
    both(append((4, "d3", 8), (5, "d3", 9)), remove("d3"), remove("d2"))(store, "dev")
    merge_branch(store, "dev")
    handle = table_metadata.open_table(store, TableName.parse(T), store.state()[TableName.parse(T)].location)
    found = sorted(handle.scan().to_arrow().column("id").to_pylist())
    assert found == [1, 3, 5] == [row[0] for row in read(store, T)]
    summary = metadata(store, T).current_snapshot().summary  # type: ignore[union-attr]
    assert summary["total-records"] == "5" and summary["total-position-deletes"] == "2"


WRONG: dict[str, tuple[str, str, str]] = {
    "into itself": ("main", "main", "MERGE_SELF"),
    "no such branch": ("dve", "main", "BRANCH_UNKNOWN"),
    "no such target": ("dev", "man", "BRANCH_UNKNOWN"),
}


@pytest.mark.parametrize(("source", "into", "code"), WRONG.values(), ids=WRONG)
def test_mistakes(store: Store, source: str, into: str, code: str) -> None:
    branch(store, "dev")
    with pytest.raises(Mistake) as caught:
        merge_branch(store, source, into)
    assert caught.value.code == code and caught.value.fix


def test_a_table_that_is_left_as_it_is_can_not_move_under_the_merge(both: Store) -> None:
    create(both, T, rows(*START))
    create(both, "ods.free", rows((1, "d1", 1)))
    branch(both, "dev")
    for on in ("main", "dev"):
        drop(both, T, branch=on)
    add(both, "ods.free", rows((2, "d2", 2)), branch="dev")
    plan = plan_merge(both, "dev")
    assert {str(step.table): step.action for step in plan.steps} == {T: "same", "ods.free": "take"}
    from runnel.lake.merge.merge import _build_draft

    create(both, T, rows((7, "d7", 7)))
    stale: CommitDraft = _build_draft(both, plan, "late", None, {})  # type: ignore[arg-type]
    with pytest.raises(VersionConflict, match=r"`ods\.orders`"):
        publish(both.db, stale)


def test_three_writers_merge_at_once(both: Store) -> None:
    create(both, T, rows(*START))
    names = ["a", "b", "c"]
    for name in names:
        branch(both, name)

    def work(name: str) -> list[Commit | None]:
        made = []
        for number in range(3):
            add(both, T, rows((10 * (names.index(name) + 1) + number, name, 0)), branch=name)
            made.append(merge_branch(both, name).commit)
        return made

    with ThreadPoolExecutor(3) as pool:
        found = [commit for made in pool.map(work, names) for commit in made]
    assert all(found) and len({commit.seq for commit in found if commit}) == 9
    assert [row[0] for row in read(both, T)] == [1, 10, 11, 12, 2, 20, 21, 22, 30, 31, 32]


FILES: dict[str, tuple[dict[str, str | None], dict[str, str | None], dict[str, str] | None]] = {
    "other paths": ({"a": "1"}, {"b": "2"}, {"a": "1", "b": "2", "x": "0", "y": "0"}),
    "replaced there, added here": ({"a": "1"}, {"x": "2"}, {"a": "1", "x": "2", "y": "0"}),
    "both replaced, other paths": ({"x": "1"}, {"y": "2"}, {"x": "1", "y": "2"}),
    "removed there": ({"x": "1"}, {"y": None}, {"x": "1"}),
    "the same path, the same contents": ({"a": "1"}, {"a": "1", "b": "2"}, {"a": "1", "b": "2", "x": "0", "y": "0"}),
    "the same path, other contents": ({"a": "1"}, {"a": "2"}, None),
    "replaced here, removed there": ({"x": "1"}, {"x": None}, None),
}


@pytest.mark.parametrize(("here", "there", "expected"), FILES.values(), ids=FILES)
def test_files_are_merged_by_path(
    store: Store,
    tmp_path: Any,
    here: dict[str, str | None],
    there: dict[str, str | None],
    expected: dict[str, str] | None,
) -> None:
    from runnel.lake.files.put import put_files
    from runnel.lake.files.remove import remove_files

    table = TableName.parse("ods.docs")

    def change(on: str, contents: dict[str, str | None]) -> None:
        for name, text in contents.items():
            if text is None:
                remove_files(store, table, [name], branch=on)
            else:
                (tmp_path / name).write_text(text)
                put_files(store, table, [tmp_path / name], branch=on)

    change("main", {"x": "0", "y": "0"})
    branch(store, "dev")
    change("main", here)
    change("dev", there)
    if expected is None:
        with pytest.raises(MergeConflict, match="both sides changed"):
            merge_branch(store, "dev")
        return
    merge_branch(store, "dev")
    assert {row[0]: bytes(row[4]).decode() for row in read(store, "ods.docs")} == expected
    assert merge_branch(store, "dev").commit is None
