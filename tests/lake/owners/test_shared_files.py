"""Data files that source files share: who owns which rows, whatever is taken out, erased or moved."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import CorruptData
from runnel.lake.iceberg import parquet_writer, table_metadata
from runnel.lake.iceberg.data_file_owners import RowRun, is_shared, make_owner_prefix, read_file_id
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.owners.file_stripper import strip_pieces, strip_rows
from runnel.lake.owners.row_parts import compute_part_delta, plan_part_edit, split_into_parts, write_excerpts
from runnel.lake.owners.row_runs import OwnerLookup, find_run_numbers, list_runs, read_shared_runs
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import create, rows
from tests.lake.table_changes import position_delete

T, ORDERS = "ods.orders", TableName("ods", "orders")
A, B, C = (make_owner_prefix(path) for path in "abc")


def orders(*owned: tuple[str, int]) -> tuple[pa.Table, list[RowRun]]:
    """Return rows that are numbered from 1 on, of so many each owner; days alternate."""
    number, values = 0, []
    for _, count in owned:
        for _ in range(count):
            number += 1
            values.append((number, f"d{number % 2}", number))
    return rows(*values), [RowRun(owner, "", count) for owner, count in owned]


def write(store: Store, *owned: tuple[str, int], by: str | None = None) -> tuple[str, list[DataFile]]:
    """Make a version whose data files source files share."""
    create(store, T, rows(), by=by)
    location = store.state()[ORDERS].location
    writer = RowWriter(store, table_metadata.load_metadata(store, location), is_shared=True)
    writer.write(*orders(*owned))
    files = writer.close()
    return stage_version(store, location, VersionEdit(files)), files


def entries_of(store: Store, location: str) -> list[FileEntry]:
    return list(read_entries(store, table_metadata.load_metadata(store, location)))


def ids(file: DataFile) -> list[int]:
    return pq.read_table(normalize_location(file.file_path)).column("id").to_pylist()


def owned_ids(store: Store, files: list[DataFile]) -> dict[str, list[int]]:
    """Return the ids of the rows of each owner."""
    numbers: dict[str, list[int]] = {}
    for file in files:
        runs = read_shared_runs(store, file.file_path)
        owners = np.repeat([run.owner for run in runs], [run.rows for run in runs])
        for owner, row_id in zip(owners, ids(file), strict=True):
            numbers.setdefault(str(owner), []).append(row_id)
    return numbers


def metadata_of(store: Store, location: str) -> TableMetadata:
    return table_metadata.load_metadata(store, location)


@pytest.mark.parametrize("by", [None, "day"])
def test_the_footer_says_who_owns_each_row(store: Store, by: str | None) -> None:
    _, files = write(store, (A, 3), (B, 1), (A, 1), (C, 2), by=by)
    assert all(is_shared(file.file_path) for file in files) and len(files) == (2 if by else 1)
    numbers = owned_ids(store, files)
    assert {owner: sorted(owned) for owner, owned in numbers.items()} == {A: [1, 2, 3, 5], B: [4], C: [6, 7]}
    pieces = [run.piece for file in files for run in read_shared_runs(store, file.file_path)]
    assert len(set(pieces)) == len(pieces)
    [first, *_] = files
    assert {piece.split(".")[0] for piece in pieces} == {read_file_id(file.file_path) for file in files}
    assert pq.read_schema(normalize_location(first.file_path)).names == ["id", "day", "amount"]


def test_a_file_has_no_more_runs_than_fit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "MAX_RUNS", 4)
    owners = [make_owner_prefix(str(number)) for number in range(11)]
    _, files = write(store, *((owner, 2) for owner in owners))
    assert [len(read_shared_runs(store, file.file_path)) for file in files] == [4, 4, 3]
    assert owned_ids(store, files) == {owner: [2 * n + 1, 2 * n + 2] for n, owner in enumerate(owners)}


def test_rows_are_taken_out_and_the_others_keep_their_pieces(store: Store) -> None:
    location, [file] = write(store, (A, 3), (B, 2), (C, 2))
    [entry] = entries_of(store, location)
    before = {run.owner: run for run in read_shared_runs(store, file.file_path)}
    left = strip_pieces(store, metadata_of(store, location), entry, {before[A].piece, before[C].piece})
    assert left is not None and owned_ids(store, [left]) == {A: [1, 2, 3], C: [6, 7]}
    assert {run.owner: run for run in read_shared_runs(store, left.file_path)} == {A: before[A], C: before[C]}
    assert read_file_id(left.file_path) != read_file_id(file.file_path)
    assert strip_pieces(store, metadata_of(store, location), entry, ()) is None


def test_an_erasure_shortens_runs_and_keeps_the_id_of_the_file(store: Store) -> None:
    location, [file] = write(store, (A, 3), (B, 2), (C, 2))
    [entry] = entries_of(store, location)
    left, count = strip_rows(store, metadata_of(store, location), entry, np.array([1, 3, 4]))
    assert left is not None and count == 4 and owned_ids(store, [left]) == {A: [1, 3], C: [6, 7]}
    assert read_file_id(left.file_path) == read_file_id(file.file_path) and left.file_path != file.file_path
    assert {run.piece for run in read_shared_runs(store, left.file_path)} == {
        run.piece for run in read_shared_runs(store, file.file_path) if run.owner != B
    }


def test_rows_that_another_engine_marked_as_deleted_are_not_copied(store: Store) -> None:
    location, [file] = write(store, (A, 3), (B, 2))
    [entry] = entries_of(store, location)
    location = stage_version(store, location, VersionEdit([position_delete(entry, [1])]))
    pieces = {run.piece for run in read_shared_runs(store, file.file_path) if run.owner == A}
    left = strip_pieces(store, metadata_of(store, location), entry, pieces)
    assert left is not None and owned_ids(store, [left]) == {A: [1, 3]}


def test_moved_rows_cancel_out_and_a_part_of_a_file_is_taken(store: Store) -> None:
    location, _ = write(store, (A, 3), (B, 2), (C, 2))
    [entry] = entries_of(store, location)
    parts = {part.owner: part for part in split_into_parts(store, [entry]).values()}
    metadata = metadata_of(store, location)
    left = strip_pieces(store, metadata, entry, {parts[A].key, parts[C].key})
    assert left is not None
    own = RowWriter(store, metadata, prefix=B)
    own.write(rows((50, "d1", 1)))
    changed = stage_version(store, location, VersionEdit([left, *own.close()], [entry]))
    now = entries_of(store, changed)
    delta = compute_part_delta(store, now, [entry])
    assert delta.owners == {B} and [part.owner for part in delta.removed.values()] == [B]
    # The version after the change gets the rows of B back that it had before.
    edit = plan_part_edit(store, changed, location, delta.removed.values(), delta.added.values())
    assert [entry.path for entry in edit.removed] == [part.entries[0].path for part in delta.added.values()]
    assert not edit.added and owned_ids(store, write_excerpts(store, edit.excerpts)) == {B: [4, 5]}
    # Rows that it has already are not added again.
    again = plan_part_edit(store, changed, location, [parts[A]], [])
    assert not (again.added or again.removed or again.excerpts)
    lookup = OwnerLookup(store, [entry])
    assert [lookup.find_owner(entry.path.rpartition("/")[2], place) for place in (0, 2, 3, 6)] == [A, A, B, C]
    assert [run.owner for other in now for run in list_runs(store, other)] in ([A, C, B], [B, A, C])


def test_positions_belong_to_runs() -> None:
    runs = [RowRun(A, "p", 2), RowRun(B, "q", 3)]
    assert find_run_numbers(runs, np.arange(5)).tolist() == [0, 0, 1, 1, 1]


def test_a_footer_without_owners_is_reported(store: Store) -> None:
    _, [file] = write(store, (A, 1), (B, 1))

    path = normalize_location(file.file_path).rpartition("/")[0] + f"/shared-{'0' * 32}.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    with pytest.raises(CorruptData, match="does not say which source files its rows came from"):
        read_shared_runs(store, path)
