"""Compaction keeps rows and content, whatever the table went through and whoever else writes."""

import itertools
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from runnel.errors import Mistake
from runnel.failpoint import InjectedFault
from runnel.lake.diff.lake_diff import diff_commits
from runnel.lake.diff.row_diff import diff_rows
from runnel.lake.history.commits import read_changes
from runnel.lake.iceberg import manifests, snapshots
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.lake.upkeep.compact import compact as module
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.compact.file_selection import SORTED_BIN_SHARE
from runnel.lake.work_runner import ProcessRunner, WorkContext
from runnel.model.work_place import ByteCount
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.pickling_runner import PicklingRunner
from tests.lake.table_changes import columns, delete_rows, equality_delete, evolve, files, metadata, partitions

NAME = "ods.orders"
ORDERS = TableName.parse(NAME)


def live(store: Store) -> list[FileEntry]:
    return list(manifests.read_entries(store, metadata(store, NAME)))


def many(store: Store, count: int = 4, by: str | None = None) -> None:
    create(store, NAME, rows((0, "a", 0)), by=by)
    for number in range(1, count):
        add(store, NAME, rows((number, "ab"[number % 2], number)))


def edit(store: Store, change: VersionEdit) -> None:
    publish_edit(store, "main", ORDERS, lambda version: change, "edit")


def with_deletes(store: Store) -> None:
    many(store)
    add(store, NAME, rows(*((number, "a", number) for number in range(100, 120))))
    large = max(files(store, NAME), key=lambda entry: entry.file.record_count)
    delete_rows(store, NAME, {large.path: [3, 5]})
    delete_rows(store, NAME, {large.path: [5, 7]})


def with_renamed_column(store: Store) -> None:
    many(store)
    evolve(store, NAME, columns(lambda update: update.rename_column("amount", "total")))


def with_new_column(store: Store) -> None:
    many(store, by="day")
    add_column(store)


def add_column(store: Store) -> None:
    evolve(store, NAME, columns(lambda update: update.add_column("note", StringType())))


CASES: dict[str, tuple[Callable[[Store], None], int, int]] = {
    # what was written, data files rewritten, data files left
    "50 small files": (lambda store: many(store, 50), 50, 1),
    "by partition": (lambda store: many(store, 4, by="day"), 4, 2),
    "position deletes": (with_deletes, 5, 1),
    "a renamed column": (with_renamed_column, 4, 1),
    "a new column": (with_new_column, 4, 2),
}


@pytest.mark.parametrize(("write", "before", "after"), CASES.values(), ids=CASES)
def test_rows_and_content_stay(store: Store, write: Callable[[Store], None], before: int, after: int) -> None:
    write(store)
    old, head, version = read(store, NAME), store.commit(), store.state()[ORDERS]
    (done,) = compact(store, ORDERS)
    assert (done.files_before, done.files_after, done.rows) == (before, after, len(old))
    assert read(store, NAME) == old
    assert store.state()[ORDERS].content == version.content
    assert [entry.is_data for entry in live(store)] == [True] * after
    assert done.manifests_after <= 4
    assert read(store, NAME, head.id) == old
    assert not diff_commits(store, head.id, "main").tables
    assert [found.commit for found in compact(store)] == [None]


def test_commit_says_what_replaces_what(store: Store) -> None:
    many(store, 4)
    old = {entry.path for entry in live(store)}
    (done,) = compact(store)
    commit = store.commit()
    (change,) = store.db.read(lambda connection: read_changes(connection, commit.id))
    assert (commit.kind, commit.id) == ("compact", done.commit)
    assert {new: set(gone) for new, gone in change.detail["replaces"].items()} == {live(store)[0].path: old}


def test_target_size_holds_and_second_time_does_nothing(store: Store) -> None:
    generator = random.Random(7)
    create(store, NAME, rows((0, "a", 0)))
    for start in range(10):
        add(store, NAME, rows(*((start * 1000 + n, "a", generator.randrange(2**60)) for n in range(1000))))
    (done,) = compact(store, target_bytes=40_000)
    assert 2 <= done.files_after <= 5
    assert compact(store, target_bytes=40_000)[0].commit is None


@pytest.mark.cluster
def test_large_table_is_rewritten_in_groups_that_can_be_sent_to_executors(store: Store) -> None:
    generator = random.Random(7)
    create(store, NAME, rows((0, "a", 0)))
    for start in range(1, 13):
        add(store, NAME, rows(*((start * 1000 + n, "a", generator.randrange(2**60)) for n in range(1000))))
    before, runner = sorted(read(store, NAME)), PicklingRunner()
    small = {entry.path: entry.file.file_size_in_bytes for entry in live(store)}

    (done,) = compact(store, target_bytes=40_000, work=WorkContext(runner))
    assert runner.chosen == [sum(small.values())]  # everything but nothing twice
    assert len(runner.units) > 2
    assert all(sum(small[entry.path] for entry in group.data) < 60_000 for group in runner.units)
    (change,) = store.db.read(lambda connection: read_changes(connection, done.commit or ""))
    replaced = {new: set(old) for new, old in change.detail["replaces"].items()}
    assert set().union(*replaced.values()) == small.keys()
    assert all(len(old) < len(small) for old in replaced.values())  # a new file replaces the files of its group only
    assert sorted(read(store, NAME)) == before


def test_groups_of_a_sorted_table_hold_neighbouring_values(store: Store) -> None:
    create(store, NAME, rows((0, "a", 0)))
    for number in (50, 10, 90, 30, 70, 20):
        add(store, NAME, rows(*((1, "a", number * 1000 + n) for n in range(1000))))

    def sort(transaction) -> None:
        with transaction.update_sort_order() as update:
            update.asc("amount", IdentityTransform())

    evolve(store, NAME, sort)
    size = max(entry.file.file_size_in_bytes for entry in live(store))
    compact(store, target_bytes=int(size * 2.5) // SORTED_BIN_SHARE + 1)
    spans = []
    for entry in live(store):
        amounts = pq.ParquetFile(entry.path).read()["amount"].to_pylist()
        assert amounts == sorted(amounts)
        spans.append((amounts[0], amounts[-1]))
    spans.sort()
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


def test_sort_order_is_kept(store: Store) -> None:
    many(store, 5)

    def sort(transaction) -> None:
        with transaction.update_sort_order() as update:
            update.desc("amount", IdentityTransform())

    evolve(store, NAME, sort)
    compact(store)
    (entry,) = live(store)
    assert pq.ParquetFile(entry.path).read()["amount"].to_pylist() == [4, 3, 2, 1, 0]
    assert entry.file.sort_order_id == metadata(store, NAME).default_sort_order_id


def test_file_of_an_old_spec_moves_only_where_its_partition_is_certain(store: Store) -> None:
    create(store, NAME, rows((1, "a", 1)))
    add(store, NAME, rows((2, "b", 1)))
    evolve(store, NAME, partitions(lambda update: update.add_identity("day").add_identity("amount")))
    add(store, NAME, rows((3, "a", 1), (4, "b", 2)))
    evolve(store, NAME, partitions(lambda update: update.remove_field("amount")))
    add(store, NAME, rows((5, "a", 1), (6, "b", 1)))
    old = read(store, NAME)
    compact(store)
    assert sorted(
        (entry.file.spec_id, entry.file.partition[0] if entry.file.spec_id else "") for entry in live(store)
    ) == [
        (0, ""),
        (2, "a"),
        (2, "b"),
    ]
    assert read(store, NAME) == old


def test_files_in_place_are_left_alone_unless_forced(store: Store, tmp_path: Path) -> None:
    many(store, 2)
    outside = tmp_path / "outside.parquet"
    entry = live(store)[0]
    outside.write_bytes(Path(entry.path).read_bytes())
    moved = DataFile(*entry.file._data)
    moved[1], moved.spec_id = str(outside), 0
    edit(store, VersionEdit(added=[moved], removed=[entry]))
    old = read(store, NAME)
    needed_paths: list[str] = []

    def choose_runner(byte_count: ByteCount, local_paths: Iterable[str] = ()) -> ProcessRunner:
        needed_paths.extend(local_paths)
        return ProcessRunner()

    work = WorkContext(choose_runner)
    assert compact(store, work=work)[0].commit is None
    assert diff_rows(store, "main~2", "main", ORDERS, work=work).rows_added
    assert compact(store, force=True, work=work)[0].files_before == 2
    assert needed_paths == [str(outside)] * 2  # executors may not see it
    assert read(store, NAME) == old


def test_manifests_are_put_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "merge_small_manifests", lambda store, pen, found: list(found))
    many(store, 20)
    assert compact(store, target_bytes=1)[0].manifests_before == 20
    assert len(manifests.read_manifests(store, metadata(store, NAME))) == 1
    assert (len(live(store)), len(read(store, NAME))) == (20, 20)
    assert compact(store, target_bytes=1)[0].commit is None


def while_staging(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let somebody else act once, just before a compaction stages its version."""
    real, left = module._find_removed_entries, [act]

    def first(*args):
        while left:
            left.pop()()
        return real(*args)

    monkeypatch.setattr(module, "_find_removed_entries", first)


OTHERS: dict[str, tuple[Callable[[Store], object], bool]] = {
    "appends": (lambda store: add(store, NAME, rows((9, "c", 9))), True),
    "adds a column": (add_column, True),
    "deletes a row": (lambda store: delete_rows(store, NAME, {live(store)[0].path: [0]}), False),
    "removes a file": (lambda store: edit(store, VersionEdit(removed=live(store)[:1])), False),
    "compacts": (lambda store: compact(store), False),
}


@pytest.mark.parametrize("late", [False, True], ids=["before staging", "before publishing"])
@pytest.mark.parametrize(("other", "wins"), OTHERS.values(), ids=OTHERS)
def test_somebody_else_writes_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch, other: Callable[[Store], object], wins: bool, late: bool
) -> None:
    many(store)
    rows_then: list[object] = []

    def act() -> None:
        other(store)
        rows_then.extend(read(store, NAME))

    if late:
        real, left = module.stage_version, [act]

        def staged(*args):
            found = real(*args)
            while left:
                left.pop()()
            return found

        monkeypatch.setattr(module, "stage_version", staged)
    else:
        while_staging(monkeypatch, act)
    (done,) = compact(store, ORDERS)
    assert (done.commit is not None) == wins
    assert wins or "another process changed" in done.note
    assert read(store, NAME) == rows_then


@pytest.mark.parametrize("point", ["compact.files", "compact.staged", "publish.before_commit"])
def test_crash_leaves_the_table_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    many(store)
    old, head = read(store, NAME), store.commit()
    monkeypatch.setenv("RUNNEL_FAIL", f"{point}:error")
    monkeypatch.setattr("runnel.failpoint._passed", {})
    with pytest.raises(InjectedFault):
        compact(store)
    monkeypatch.delenv("RUNNEL_FAIL")
    assert (read(store, NAME), store.commit()) == (old, head)
    assert compact(store)[0].files_after == 1
    assert read(store, NAME) == old


def test_equality_deletes_are_left_to_spark(store: Store) -> None:
    many(store, 2)
    edit(store, VersionEdit(added=[equality_delete(live(store)[0])]))
    (done,) = compact(store)
    assert done.commit is None
    assert "equality deletes" in done.note


def test_unknown_names(store: Store) -> None:
    many(store, 1)
    with pytest.raises(Mistake, match="BRANCH_UNKNOWN"):
        compact(store, branch="mian")
    with pytest.raises(Mistake, match="TABLE_UNKNOWN"):
        compact(store, TableName("ods", "order"))
