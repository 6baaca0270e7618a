"""A merge takes each file of a source once, though both sides read it; a file that changed replaces its rows."""

from dataclasses import dataclass

import pytest

from runnel.lake.diff.content_id import content_of_files
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_processed_files
from runnel.lake.history.branches import fork_branch
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import parquet_writer, table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.merge.merge import MergeConflict, merge_branch
from runnel.lake.merge.revert import revert_commit
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.names import TableName
from tests.lake.factories import create, read, rows
from tests.lake.table_changes import columns, delete_rows, evolve, files

T, ORDERS = "ods.orders", TableName("ods", "orders")


@dataclass(frozen=True)
class File:
    """A file of a source: its path, and the number that its one row shows; None is a file that is gone."""

    path: str
    number: int | None

    @property
    def identity(self) -> str:
        return f"{self.number}"


def ingest(store: Store, *given: File, branch: str = "main") -> None:
    """Read files of a source into the table, replacing what they gave before."""
    version, commit = store.state(branch)[ORDERS], store.commit(branch)
    had, metadata = (
        read_processed_files(store.db, commit, ORDERS),
        table_metadata.load_metadata(store, version.location),
    )
    live = {entry.path: entry for entry in read_entries(store, metadata)}
    added, removed, told, came, went = [], [], [], [], []
    for file in given:
        before = had.get(file.path)
        if before:
            removed += [live[path] for path in before.files if path in live]
            went.append(before.identity)
        made = []
        if file.number is not None:
            row = rows((file.number, "d1", file.number))
            row = row.append_column("note", row["day"]) if "note" in metadata.schema().column_names else row
            made = parquet_writer.write_rows(store, metadata, row.to_batches())
            came.append(file.identity)
        added += made
        paths = tuple(each.file_path for each in made)
        told.append((ORDERS, ProcessedFile(file.path, 1, 2, "f" * 64, file.identity, paths, file.number is None)))
    content = content_of_files(version.content, came, went)
    change = CommitChange(
        ORDERS, version.location, stage_version(store, version.location, VersionEdit(added, removed)), content
    )
    publish(store.db, CommitDraft(branch, "ingest", "ada", (change,), kind="run", processed_files=tuple(told)))


def parted(store: Store, ours: tuple[File, ...], theirs: tuple[File, ...]) -> str:
    """Let both branches read files, and return the content of the table before it had any."""
    create(store, T, rows())
    empty = store.state()[ORDERS].content
    ingest(store, File("a", 1), File("b", 2))
    fork_branch(store.db, "dev", store.commit("main"), "ada")
    for branch, given in (("main", ours), ("dev", theirs)):
        if given:
            ingest(store, *given, branch=branch)
    return empty


A2, B3, C4, C5, D6, GONE = File("a", 12), File("b", 13), File("c", 4), File("c", 5), File("d", 6), File("a", None)
CASES: dict[str, tuple[tuple[File, ...], tuple[File, ...], list[int]]] = {
    # what main reads, what dev reads, the rows after the merge
    "only they": ((), (C4,), [1, 2, 4]),
    "the same file": ((C4, D6), (C4,), [1, 2, 4, 6]),
    "the same and another": ((C4,), (C4, D6), [1, 2, 4, 6]),
    "each another": ((C4,), (D6,), [1, 2, 4, 6]),
    "they changed one": ((C4,), (A2,), [2, 4, 12]),
    "we changed one": ((A2,), (C4,), [2, 4, 12]),
    "each changed another": ((A2,), (B3,), [12, 13]),
    "both changed one alike": ((A2,), (A2, C4), [2, 4, 12]),
    "they let one go": ((C4,), (GONE,), [2, 4]),
    "both let one go": ((GONE, C4), (GONE, D6), [2, 4, 6]),
}


@pytest.mark.parametrize(("ours", "theirs", "numbers"), CASES.values(), ids=CASES)
def test_each_file_is_taken_once(
    store: Store, ours: tuple[File, ...], theirs: tuple[File, ...], numbers: list[int]
) -> None:
    empty = parted(store, ours, theirs)
    merge_branch(store, "dev", "main")
    assert sorted(row[0] for row in read(store, T)) == numbers
    position = read_processed_files(store.db, store.commit(), ORDERS)
    assert sorted(int(one.identity) for one in position.values()) == numbers
    held = {
        entry.path for entry in read_entries(store, table_metadata.load_metadata(store, store.state()[ORDERS].location))
    }
    assert {file for one in position.values() for file in one.files} == held
    assert store.state()[ORDERS].content == content_of_files(empty, [str(number) for number in numbers])
    assert merge_branch(store, "dev", "main").commit is None and fsck(store).is_clean


CLASHES: dict[str, tuple[tuple[File, ...], tuple[File, ...], str]] = {
    "read differently": ((C4,), (C5, D6), "both sides read c, with different contents"),
    "changed differently": ((A2,), (File("a", 99),), "both sides read a, with different contents"),
    "changed and let go": ((A2,), (GONE,), "both sides read a, with different contents"),
}


@pytest.mark.parametrize(("ours", "theirs", "told"), CLASHES.values(), ids=CLASHES)
def test_a_file_that_differs_is_named(
    store: Store, ours: tuple[File, ...], theirs: tuple[File, ...], told: str
) -> None:
    parted(store, ours, theirs)
    with pytest.raises(MergeConflict, match=told):
        merge_branch(store, "dev", "main")


def test_the_position_goes_along_on_both_databases(both: Store) -> None:
    parted(both, (C4,), (C4, D6))
    merge_branch(both, "dev", "main")
    assert set(read_processed_files(both.db, both.commit(), ORDERS)) == {"a", "b", "c", "d"}
    fork_branch(both.db, "next", both.commit(), "ada")
    assert read_processed_files(both.db, both.commit("next"), ORDERS) == read_processed_files(
        both.db, both.commit(), ORDERS
    )


def test_a_file_that_was_reverted_here_comes_with_the_branch_that_has_it(store: Store) -> None:
    """A revert makes a table what it was; another branch's rows are then taken as they are, once."""
    parted(store, (C4,), (C4, D6))
    revert_commit(store, store.commit("main").id, "main")
    merge_branch(store, "dev", "main")
    assert sorted(row[0] for row in read(store, T)) == [1, 2, 4, 6]
    assert set(read_processed_files(store.db, store.commit(), ORDERS)) == {"a", "b", "c", "d"}


def test_their_columns_and_our_files(store: Store) -> None:
    """The side that changed the columns stays whole, so files that both read are its own."""
    parted(store, (C4, D6), ())
    evolve(store, T, columns(lambda update: update.add_column("note", _text())), branch="dev")
    ingest(store, C4, A2, branch="dev")
    merge_branch(store, "dev", "main")
    assert sorted(row[0] for row in read(store, T)) == [2, 4, 6, 12]
    held = {
        entry.path for entry in read_entries(store, table_metadata.load_metadata(store, store.state()[ORDERS].location))
    }
    assert {
        file for one in read_processed_files(store.db, store.commit(), ORDERS).values() for file in one.files
    } == held


def test_rows_deleted_by_another_engine_are_not_guessed_about(store: Store) -> None:
    parted(store, (C4,), (C4,))
    first = files(store, T)[0]
    delete_rows(store, T, {first.path: [0]})
    ingest(store, D6, branch="dev")
    with pytest.raises(MergeConflict, match="both sides read c, and rows were deleted"):
        merge_branch(store, "dev", "main")


def _text() -> object:
    from pyiceberg.types import StringType

    return StringType()
