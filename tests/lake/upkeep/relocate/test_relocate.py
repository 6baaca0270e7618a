"""A lake whose folder was moved or copied is mended, whatever happens meanwhile."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from runnel.errors import CorruptData, Mistake
from runnel.failpoint import InjectedFault
from runnel.lake.history import branches
from runnel.lake.history.commits import CommitChange
from runnel.lake.history.tags import create_tag
from runnel.lake.iceberg import manifests, parquet_writer, snapshots, table_metadata
from runnel.lake.leases.slots import acquire_slot
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.relocate.relocate import RelocationResult, relocate
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.files.factories import LARGE, contents, put_tree

ORDERS = TableName("ods", "orders")


def opened(folder: Path, **options) -> Store:
    return Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse", **options)


def delete_row(store: Store, name: TableName, position: int) -> None:
    """Delete a row of a table's first data file by a position delete, as other engines do."""
    base = store.state()[name].location
    metadata = table_metadata.load_metadata(store, base)
    target = next(entry for entry in manifests.read_entries(store, metadata) if entry.is_data)
    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
    path = Path(metadata.location) / "data" / f"deletes-{position}.parquet"
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table([[target.path], [position]], schema=pa.schema(fields)), path)
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        lower_bounds={2147483546: target.path.encode()},
        upper_bounds={2147483546: target.path.encode()},
    )
    made.spec_id = 0
    staged = snapshots.stage_version(store, base, snapshots.VersionEdit(added=[made]))
    publish(store.db, CommitDraft("main", "delete a row", "ada", (CommitChange(name, base, staged),)))


def furnish(store: Store, tmp_path: Path) -> dict[str, list[object]]:
    """Fill a lake with one of everything and return what is read at each ref."""
    create(store, "ods.orders", rows((1, "d1", 5), (2, "d2", 6)), by="day")
    create_tag(store, "first", "main")
    add(store, "ods.orders", rows((3, "d1", 7)))
    create(store, "ods.holes", rows((1, "d1", 1), (2, "d1", 2), (3, "d1", 3)))
    delete_row(store, TableName("ods", "holes"), 1)
    branches.fork_branch(store.db, "dev", store.commit(), "ada")
    add(store, "ods.orders", rows((4, "d4", 8)), branch="dev")
    register(store, tmp_path / "outside.parquet")
    put_tree(store, tmp_path / "docs", {"a.txt": "small", "b.bin": LARGE})
    return shown(store)


def register(store: Store, outside: Path) -> None:
    base = store.state()[ORDERS].location
    metadata = table_metadata.load_metadata(store, base)
    made = parquet_writer.write_rows(store, metadata, rows((9, "d9", 9)).to_batches())[0]
    Path(made.file_path).replace(outside)
    parquet = pq.read_metadata(outside)
    file = parquet_writer.build_data_file(metadata, str(outside), parquet, outside.stat().st_size, made.partition)
    staged = snapshots.stage_version(store, base, snapshots.VersionEdit(added=[file]))
    publish(store.db, CommitDraft("main", "register", "ada", (CommitChange(ORDERS, base, staged),)))


def shown(store: Store) -> dict[str, list[object]]:
    return {
        f"{ref} {name}": read(store, name, ref)
        for ref, name in (
            ("main", "ods.orders"),
            ("first", "ods.orders"),
            ("dev", "ods.orders"),
            ("main", "ods.holes"),
            ("main~2", "ods.holes"),
        )
    }


def assert_mended(store: Store, expected: dict[str, list[object]], tmp_path: Path) -> None:
    assert shown(store) == expected
    assert contents(store, tmp_path / f"out-{len(list(tmp_path.iterdir()))}") == {"a.txt": b"small", "b.bin": LARGE}
    assert [finding for finding in fsck(store, deep=True).findings if finding.severity == "error"] == []
    uri = store.db.url.render_as_string(hide_password=False)
    for name, key in (("ods.orders", "main ods.orders"), ("ods.holes", "main ods.holes")):
        table = SqlCatalog("main", uri=uri, warehouse=store.warehouse).load_table(name)
        found = table.scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["day"], row["amount"]) for row in found) == expected[key]


PLACES: dict[str, tuple[str, str]] = {
    "beside": ("a", "b"),
    "deeper, so that the new place starts with the old one": ("a", "a/warehouse"),
    "higher": ("a/warehouse", "a"),
    "with a space and an umlaut": ("a", "mein Lädchen"),
}


@pytest.mark.parametrize(("old", "new"), PLACES.values(), ids=PLACES)
def test_a_lake_that_was_moved(tmp_path: Path, old: str, new: str) -> None:
    first, second = tmp_path / "p" / old, tmp_path / "p" / new
    store = opened(first)
    expected = furnish(store, tmp_path)
    store.close()
    first.rename(tmp_path / "passing")
    shutil.rmtree(tmp_path / "p", ignore_errors=True)
    second.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "passing").rename(second)
    with pytest.raises(Mistake, match="LAKE_MOVED"):
        opened(second)
    moved = opened(second, moved=True)
    done = relocate(moved)
    assert done.versions >= 6 and done.old == f"{first}/warehouse"
    moved.close()
    mended = opened(second)
    assert_mended(mended, expected, tmp_path)
    assert relocate(mended) == RelocationResult(mended.warehouse, mended.warehouse)
    add(mended, "ods.orders", rows((5, "d5", 9)))
    assert gc(mended, Retention(grace="0 seconds")).deleted >= done.files - 2
    assert len(read(mended, "ods.orders")) == 5
    assert [finding for finding in fsck(mended, deep=True).findings if finding.severity == "error"] == []
    mended.close()


def test_a_copy_works_beside_its_original_and_can_go_back(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    expected = furnish(store, tmp_path)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = opened(tmp_path / "b", moved=True)
    relocate(copy)
    add(copy, "ods.orders", rows((7, "d7", 7)))
    gc(copy, Retention(commits="0 seconds", grace="0 seconds"))
    assert_mended(store, expected, tmp_path)
    store.close()
    shutil.rmtree(tmp_path / "a")
    assert len(read(copy, "ods.orders")) == 5
    copy.close()
    (tmp_path / "b").rename(tmp_path / "a")
    back = opened(tmp_path / "a", moved=True)
    relocate(back)
    assert len(read(back, "ods.orders")) == 5 and read(back, "ods.holes") == expected["main ods.holes"]
    assert [finding for finding in fsck(back, deep=True).findings if finding.severity == "error"] == []
    back.close()


STEPS: dict[str, bool] = {
    "relocate.file:error@1": False,
    "relocate.file:error@9": False,
    "write.bytes:enospc@12": False,
    "relocate.written:error": False,
    "relocate.before_commit:error": False,
    "relocate.after_commit:error": True,
}


@pytest.mark.parametrize(("point", "done"), STEPS.items(), ids=STEPS)
def test_a_crash_at_any_step_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, done: bool
) -> None:
    store = opened(tmp_path / "a")
    expected = furnish(store, tmp_path)
    store.close()
    (tmp_path / "a").rename(tmp_path / "passing")
    (tmp_path / "passing").rename(tmp_path / "a2")
    moved = opened(tmp_path / "a2", moved=True)
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", point)
    with pytest.raises(InjectedFault):
        relocate(moved)
    monkeypatch.delenv("RUNNEL_FAIL")
    assert (moved.read_recorded_warehouse() == moved.warehouse) == done
    relocate(moved)
    assert_mended(moved, expected, tmp_path)
    moved.close()


def test_a_file_that_was_not_moved_along_is_named_and_nothing_changes(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    furnish(store, tmp_path)
    store.close()
    (tmp_path / "a").rename(tmp_path / "b")
    manifest = next((tmp_path / "b").rglob("*-m0.avro"))
    manifest.rename(tmp_path / "kept.avro")
    moved = opened(tmp_path / "b", moved=True)
    with pytest.raises(CorruptData, match="LAKE_FILE_MISSING") as told:
        relocate(moved)
    assert str(manifest) in str(told.value) and moved.read_recorded_warehouse() == f"{tmp_path}/a/warehouse"
    (tmp_path / "kept.avro").rename(manifest)
    assert relocate(moved).files
    moved.close()


def test_on_both_databases_with_expired_commits_slots_and_candidates(both: Store, catalog: str, tmp_path: Path) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    for number in range(2, 15):  # more than the snapshots that metadata lists
        add(both, "ods.orders", rows((number, "d1", 5)))
    gc(both, Retention(commits="0 seconds"))
    acquire_slot(both.db, "w", 1, both.commit(), both.state())
    old = Path(both.warehouse).parent
    if not both.db.is_sqlite:
        old.rename(tmp_path / "moved")
    else:
        shutil.copytree(old, tmp_path / "moved")
        catalog = f"sqlite:///{tmp_path}/moved/catalog.db"
    moved = Store.open(catalog, f"{tmp_path}/moved/warehouse", moved=True)
    assert relocate(moved).versions == 1
    assert len(read(moved, "ods.orders")) == 14
    assert [finding for finding in fsck(moved, deep=True).findings if finding.severity == "error"] == []
    gc(moved, Retention(commits="0 seconds", grace="0 seconds"))
    assert len(read(moved, "ods.orders")) == 14
    moved.close()


def test_progress_is_told(tmp_path: Path, new_store: Callable[[], Store]) -> None:
    store = new_store()
    create(store, "ods.orders", rows((1, "d1", 5)))
    store.close()
    (tmp_path / "lake").rename(tmp_path / "lake2")
    moved = opened(tmp_path / "lake2", moved=True)
    told: list[tuple[str, int, int | None]] = []
    relocate(moved, report_progress=lambda *step: told.append(step))
    assert told == [("relocate", 1, 2), ("relocate", 2, 2)]
    moved.close()
