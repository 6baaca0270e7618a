"""Many small files of a source share data files, and each still replaces exactly its own rows."""

import gzip
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from runnel.connect.ingest import part_writer
from runnel.connect.ingest.part_writer import LEAST_SHARED, SMALL_BYTES
from runnel.connect.ingest.units import file_unit
from runnel.connect.load.quarantine import read_quarantined_rows
from runnel.lake.diff.change_size import measure_change
from runnel.lake.iceberg import parquet_writer
from runnel.lake.iceberg.data_file_owners import is_shared
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.merge.merge import MergeConflict, merge_branch
from runnel.lake.upkeep.compact import file_selection
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.work_runner import WorkContext
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.lake.pickling_runner import PicklingRunner
from tests.lake.table_changes import branch, delete_rows

MANY = LEAST_SHARED + 8
UNIT_FILES = MANY // 2


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let units have few files, so that two of them write shared data files."""
    monkeypatch.setattr(file_unit, "SHARED_UNIT_BYTES", UNIT_FILES << 16)


def fill(ods: Ingesting, count: int = MANY) -> None:
    """Write files of two rows each: 3.csv has the ids 6 and 7."""
    for number in range(count):
        ods.write(f"{number}.csv", f"id,name\n{2 * number},a\n{2 * number + 1},b\n")


def data_files(ods: Ingesting, table: str = "ods.orders") -> list[str]:
    version = next(version for name, version in ods.store.state().items() if str(name) == table)
    entries = read_entries(ods.store, load_metadata(ods.store, version.location))
    return [entry.path for entry in entries if entry.is_data]


def unit_count(ods: Ingesting) -> int:
    """Return how many units read the files together; in this process they are one batch."""
    return 2 if isinstance(ods.choose_runner, PicklingRunner) else 1


def numbers(ods: Ingesting) -> list[int]:
    return sorted(row[0] for row in ods.rows)


@pytest.mark.parametrize("partition", [(), ("name",)])
def test_each_file_replaces_its_own_rows(ods: Ingesting, partition: tuple[str, ...]) -> None:
    ods.source = replace(ods.source, partition=partition)
    ods.declare("v1", removed="delete")
    fill(ods)
    ods.run()
    assert numbers(ods) == list(range(2 * MANY))
    assert len(data_files(ods)) == unit_count(ods) * (2 if partition else 1)
    assert all(map(is_shared, data_files(ods)))
    content = ods.content
    ods.write("3.csv", "id,name\n600,a\n")
    ods.write("5.csv", "id,name\n")
    (ods.root / "data/7.csv").unlink()
    ods.run()
    left = set(range(2 * MANY)) - {6, 7, 10, 11, 14, 15}
    assert numbers(ods) == sorted(left | {600})
    ods.write("3.csv", "id,name\n6,a\n7,b\n")
    ods.write("5.csv", "id,name\n10,a\n11,b\n")
    ods.write("7.csv", "id,name\n14,a\n15,b\n")
    ods.run()
    assert numbers(ods) == list(range(2 * MANY)) and ods.content == content
    assert fsck(ods.store, deep=True).is_clean


def test_a_changed_file_counts_as_a_change_of_its_own_rows(ods: Ingesting) -> None:
    fill(ods)
    ods.run()
    before = ods.store.state()[ORDERS].location
    ods.write("3.csv", "id,name\n600,a\n")
    ods.run()
    change = measure_change(ods.store, ORDERS, before, ods.store.state()[ORDERS].location)
    assert (change.rows_added, change.rows_removed) == (1, 2)
    assert (change.files_added, change.files_removed, change.deletes) == (2, 1, False)


def test_few_files_and_large_ones_have_data_files_of_their_own(ods: Ingesting) -> None:
    fill(ods, LEAST_SHARED - 1)
    ods.write("large.csv", "id,name\n" + "".join(f"{number},{'x' * 1000}\n" for number in range(SMALL_BYTES // 1000)))
    ods.run()
    assert len(data_files(ods)) == LEAST_SHARED and not any(map(is_shared, data_files(ods)))


def test_all_files_are_read_with_other_options(ods: Ingesting) -> None:
    fill(ods)
    ods.run()
    ods.write("0.csv", "id,name\n1000,a\n")
    ods.run()
    ods.declare("v2", schema="id string, name string")
    ods.run()
    assert sorted(row[0] for row in ods.rows) == sorted(map(str, [1000, *range(2, 2 * MANY)]))
    assert len(data_files(ods)) == unit_count(ods)


def test_bad_rows_among_many_small_files(ods: Ingesting) -> None:
    ods.source = replace(ods.source, on_bad="quarantine")
    for number in range(MANY):
        ods.write(f"{number}.csv", f"id,name\n{number},a\nx,b\n{number},b,c\n")
    ods.run()
    assert numbers(ods) == list(range(MANY))
    bad = read_quarantined_rows(ods.store, ORDERS)
    assert len(bad) == 2 * MANY and len({row.owner for row in bad}) == MANY
    assert {row.position for row in bad} == {"line 3", "line 4"}
    shared = data_files(ods, "quarantine.ods_orders")
    assert len(shared) == unit_count(ods) and all(map(is_shared, shared))
    ods.write("3.csv", "id,name\n3,a\n4,b\n")
    ods.run()
    bad = read_quarantined_rows(ods.store, ORDERS)
    assert len(bad) == 2 * (MANY - 1) and not any(row.file == "data/3.csv" for row in bad)
    assert numbers(ods) == sorted([*range(MANY), 4])


def test_lines_of_bad_values_are_right_next_to_rejected_rows_of_other_files(ods: Ingesting) -> None:
    ods.source = replace(ods.source, on_bad="quarantine")
    fill(ods)
    ods.write("0.csv", "id,name\n0,a,c\nx,a\n1,b\n")
    ods.write("1.csv", "id,name\n2,a\nx,a\n3,b,c\n3,b\ny,a\n")
    ods.run()
    places = {(row.file, row.position, row.raw) for row in read_quarantined_rows(ods.store, ORDERS)}
    assert places == {
        ("data/0.csv", "line 2", "0,a,c"),
        ("data/0.csv", "line 3", "x,a"),
        ("data/1.csv", "line 3", "x,a"),
        ("data/1.csv", "line 4", "3,b,c"),
        ("data/1.csv", "line 6", "y,a"),
    }


def test_fsck_reports_a_data_file_that_does_not_name_the_owners_of_its_rows(ods: Ingesting) -> None:
    fill(ods)
    ods.run()
    path = Path(normalize_location(data_files(ods)[0]))
    size, rows = path.stat().st_size, pq.read_table(path)
    pq.write_table(rows, path, compression="zstd", store_schema=False)
    contents = path.read_bytes()
    path.write_bytes(contents[:4] + b"\0" * (size - len(contents)) + contents[4:])
    assert fsck(ods.store).is_clean
    [finding] = [found for found in fsck(ods.store, deep=True).findings if found.severity == "error"]
    what = f"{path} does not say of each of its {len(rows)} rows from which file of the source it came"
    assert (finding.code, finding.what, finding.tables) == ("FSCK_OWNERS", what, ("ods.orders",))


ODD_FILES = {
    "bom.csv": "\ufeffid,name\n1,a\n",
    "no_end.csv": "id,name\n2,a\n3,b",
    "header_only.csv": "id,name\n",
    "quotes.csv": 'id,name\n4,"a, b"\n5,"c ""d"""\n',
    "line_break.csv": 'id,name\n6,"a\nb"\n7,c\n',
    "windows.csv": "id,name\r\n8,a\r\n9,b\r\n",
    "empty_lines.csv": "id,name\n\n10,a\n\n\n11,b\n\n",
    "other_order.csv": "name,id\na,12\nb,13\n",
    "empty_values.csv": 'id,name\n14,\n15,""\n',
    "packed.csv.gz": gzip.compress(b"id,name\n16,a\n"),
    "stray_quote.csv": 'id,name\n17,a"b\n18,c\n',
    "hash.csv": "id,name\n19,#00000001\n",
}
BAD_FILES = {
    "bad_value.csv": "id,name\n20,a\nx,b\n",
    "bad_width.csv": "id,name\n21,a\n22,b,c\n23\n",
    "open_quote.csv": 'id,name\n24,a\n25,"b\n',
    "not_utf8.csv": b"id,name\n26,a\n27,\xff\n",
}


@pytest.mark.parametrize("odd_files", [ODD_FILES, ODD_FILES | BAD_FILES], ids=["good", "bad"])
def test_small_files_have_the_rows_that_they_have_one_by_one(
    ods: Ingesting, odd_files: dict[str, str | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ods.source = replace(ods.source, on_bad="quarantine", origin=replace(ods.source.origin, glob="data/*.csv*"))
    for number in range(MANY):
        ods.write(f"{number}.csv", f"id,name\n{100 + number},a\n")
    for name, text in odd_files.items():
        ods.write(name, text)
    ods.run()
    assert any(map(is_shared, data_files(ods)))
    together = sorted(ods.rows), sorted(map(str, read_quarantined_rows(ods.store, ORDERS)))
    monkeypatch.setattr(part_writer, "LEAST_SHARED", 1000)
    ods.declare("v2")
    ods.run()
    assert not any(map(is_shared, data_files(ods)))
    alone = sorted(ods.rows), sorted(map(str, read_quarantined_rows(ods.store, ORDERS)))
    assert [len(rows) for rows in alone] == [len(rows) for rows in together]
    assert alone[0] == together[0]
    assert [text.partition("datetime")[0] for text in alone[1]] == [
        text.partition("datetime")[0] for text in together[1]
    ]


def test_a_compaction_is_divided_so_that_no_data_file_has_too_many_owners(
    ods: Ingesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_selection, "MAX_RUNS", 8)
    monkeypatch.setattr(parquet_writer, "MAX_RUNS", 8)
    fill(ods, 21)
    ods.run()
    runner = PicklingRunner()
    [done] = compact(ods.store, ORDERS, work=WorkContext(runner))
    assert [len(group.data) for group in runner.units] == [8, 8, 5]
    assert (done.files_before, done.files_after, done.rows) == (21, 3, 42)
    assert compact(ods.store, ORDERS, work=WorkContext(runner))[0].note == "nothing to do"
    ods.write("3.csv", "id,name\n600,a\n")
    ods.run()
    assert numbers(ods) == sorted({*range(42), 600} - {6, 7})
    assert fsck(ods.store, deep=True).is_clean


def test_compaction_and_erasure_move_the_owners_along(ods: Ingesting) -> None:
    fill(ods, 20)
    ods.run()
    fill(ods, 20 + MANY)
    ods.run()
    assert len(data_files(ods)) == 20 + unit_count(ods)
    work = WorkContext(ods.choose_runner)
    [done] = compact(ods.store, ORDERS, work=work)
    assert (done.files_before, done.files_after, done.rows) == (20 + unit_count(ods), 1, 2 * (20 + MANY))
    erase(ods.store, ORDERS, "id in (7, 30, 31, 50)")
    ods.write("3.csv", "id,name\n600,a\n")
    ods.write("25.csv", "id,name\n5000,a\n")
    ods.run()
    expected = set(range(2 * (20 + MANY))) - {6, 7, 30, 31, 50, 51}
    assert numbers(ods) == sorted(expected | {600, 5000})
    [again] = compact(ods.store, ORDERS, work=work)
    assert again.files_after == 1 and numbers(ods) == sorted(expected | {600, 5000})
    ods.write("15.csv", "id,name\n1,z\n")
    ods.run()
    assert numbers(ods) == sorted([*expected, 600, 5000, 1])


def test_a_compaction_leaves_files_alone_from_which_another_engine_deleted_rows(ods: Ingesting) -> None:
    """A merge takes rows that were moved for the same rows, so a deleted one would come back unnoticed."""
    fill(ods, 20)
    ods.run()
    branch(ods.store, "dev")
    delete_rows(ods.store, str(ORDERS), {data_files(ods)[0]: [0]}, branch="dev")
    [done] = compact(ods.store, ORDERS, branch="dev")
    assert (done.files_before, done.files_after, done.deletes_dropped) == (19, 1, 0)
    ods.write("more.csv", "id,name\n600,a\n")
    ods.run()
    with pytest.raises(MergeConflict, match="both sides changed its rows"):
        merge_branch(ods.store, "dev")
