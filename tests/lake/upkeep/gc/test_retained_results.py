"""Results keep their versions for as long as they are known, whoever tidies up meanwhile."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.flow_state import ingest_positions, results
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_processed_files
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.fsck.findings import FsckReport
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.relocate.relocate import relocate
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.table_changes import overwrite

ORDERS, DAY = TableName("ods", "orders"), TableName("dws", "day")
AT_ONCE = Retention(commits="0 seconds", grace="0 seconds")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def staged(store: Store, table: TableName, *values: tuple[int, str, int]) -> str:
    """Write a version of a table from its beginning, that nothing points at."""
    from tests.lake.factories import iceberg_schema

    empty, metadata = table_metadata.create_table(store, table, iceberg_schema(rows().schema))
    made = parquet_writer.write_rows(store, metadata, rows(*values).to_batches())
    return snapshots.stage_version(store, empty, snapshots.VersionEdit(added=made))


def known(store: Store, location: str, key: str = "k", content: str = "rows:1", **values: object) -> TaskResult:
    used = store.state().get(ORDERS)
    inputs = {ORDERS: TableVersion(used.location, used.content)} if used else {}
    made = TaskResult(DAY, key, TableVersion(location, content), {"digest": "d"}, inputs, "r1", "main", now(), **values)  # type: ignore[arg-type]
    results.record(store.db, made)
    return made


def published(store: Store, table: TableName, location: str, content: str) -> None:
    before = store.state().get(table)
    change = CommitChange(table, before.location if before else None, location, content)
    publish(store.db, CommitDraft("main", "run", "ada", (change,), kind="run"))


def data(store: Store, location: str) -> list[Path]:
    """Return every file that a version needs."""
    metadata = table_metadata.load_metadata(store, location)
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    found = {location, snapshot.manifest_list}
    for entry in read_entries(store, metadata):
        found |= {entry.path, entry.manifest}
    return [Path(path) for path in found]


def is_there(store: Store, location: str) -> bool:
    table_metadata.clear_cache()
    return Path(location).exists() and all(path.exists() for path in data(store, location))


def later(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def orphans(report: FsckReport) -> tuple[str, ...]:
    assert report.is_clean, report.findings
    return report.orphans


def test_a_result_of_a_failed_run_is_kept_for_its_time(both: Store) -> None:
    location, aside = staged(both, DAY, (1, "d1", 5)), staged(both, DAY, (9, "d9", 9))
    result = known(both, location, quarantine=TableVersion(aside, "rows:q"))
    gc(both, AT_ONCE)
    assert is_there(both, location) and is_there(both, aside)
    assert orphans(fsck(both, retention=AT_ONCE)) == ()
    foretold = gc(both, AT_ONCE, now=later(4), dry_run=True)
    assert foretold.expired_results == 1 and results.mark_used(both.db, result)
    swept = gc(both, AT_ONCE, now=later(4))
    assert swept.expired_results == 1 and foretold.deleted == swept.deleted > 0
    assert not Path(location).exists() and not Path(aside).exists()
    assert results.find_by_keys(both.db, [(DAY, "k")]) == {} and not results.mark_used(both.db, result)


def test_a_result_that_a_commit_holds_is_known_as_long_as_it(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    first = staged(both, DAY, (1, "d1", 5))
    known(both, first)
    published(both, DAY, first, "rows:1")
    gc(both, AT_ONCE, now=later(40))
    assert results.find_by_content(both.db, DAY, "rows:1") and is_there(both, first)
    published(both, DAY, staged(both, DAY, (2, "d2", 6)), "rows:2")
    gc(both, Retention(grace="0 seconds"), now=later(20))
    assert results.find_by_content(both.db, DAY, "rows:1")  # a revert would find it
    gc(both, AT_ONCE, now=later(40))
    assert results.find_by_content(both.db, DAY, "rows:1") is None and not Path(first).exists()


def test_a_current_result_is_known_after_a_compaction(both: Store) -> None:
    first = staged(both, DAY, (1, "a", 1))
    metadata = table_metadata.load_metadata(both, first)
    more = parquet_writer.write_rows(both, metadata, rows((2, "a", 2)).to_batches())
    location = snapshots.stage_version(both, first, snapshots.VersionEdit(added=more))
    known(both, location)
    published(both, DAY, location, "rows:1")
    assert next(done for done in compact(both) if done.table == str(DAY)).commit
    gc(both, AT_ONCE, now=later(40))
    version = both.state()[DAY]
    assert version.location != location and results.find_by_content(both.db, DAY, version.content) is not None


def test_the_inputs_of_current_and_recent_results_are_kept(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    used = both.state()[ORDERS].location
    location = staged(both, DAY, (1, "d1", 5))
    known(both, location)
    published(both, DAY, location, "rows:1")
    overwrite(both, "ods.orders", rows((2, "d2", 6)))
    gc(both, AT_ONCE)
    assert is_there(both, used)
    assert orphans(fsck(both, retention=AT_ONCE)) == ()
    published(both, DAY, staged(both, DAY, (2, "d2", 6)), "rows:2")
    gc(both, AT_ONCE)
    assert is_there(both, used), "the table may be computed on from a recent result, though it does not hold it"
    for number in (3, 4, 5):
        known(both, staged(both, DAY, (number, "d2", 6)), f"k{number}", f"rows:{number}")
    gc(both, AT_ONCE)
    assert not Path(used).exists() and is_there(both, location)  # the result itself has its own time
    published(both, DAY, location, "rows:1")
    gc(both, AT_ONCE)  # an input that went meanwhile stops nobody
    assert is_there(both, location) and fsck(both).is_clean


def test_a_result_that_is_lost_is_told_and_forgotten(both: Store) -> None:
    location = staged(both, DAY, (1, "d1", 5))
    known(both, location)
    next(path for path in data(both, location) if path.suffix == ".parquet").unlink()
    assert [finding.code for finding in fsck(both).findings if finding.severity == "error"] == ["FSCK_FILE_MISSING"]
    Path(location).unlink()
    assert not fsck(both).is_clean
    table_metadata.clear_cache()
    gc(both, AT_ONCE)
    assert results.find_by_content(both.db, DAY, "rows:1") is None and fsck(both).is_clean


def gave(store: Store, *files: str) -> None:
    version = store.state()[ORDERS]
    change = CommitChange(ORDERS, version.location, version.location, "files:1")
    one = ProcessedFile("in/a.csv", 1, 2, "f" * 64, "i1", files)
    publish(store.db, CommitDraft("main", "ingest", "ada", (change,), kind="run", processed_files=((ORDERS, one),)))


def test_an_erasure_forgets_results_that_may_hold_the_rows(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    known(both, staged(both, DAY, (1, "d1", 5)), "before")  # made of a version without such rows
    add(both, "ods.orders", rows((2, "d2", 6), (3, "d3", 7)))
    (file,) = [
        entry.path for entry in read_entries(both, table_metadata.load_metadata(both, both.state()[ORDERS].location))
    ][:1]
    gave(
        both,
        *[
            entry.path
            for entry in read_entries(both, table_metadata.load_metadata(both, both.state()[ORDERS].location))
        ],
    )
    made = staged(both, DAY, (2, "d2", 6))
    known(both, made, "after", "rows:2")
    failed = staged(both, ORDERS, (2, "d2", 6))
    own = TaskResult(ORDERS, "own", TableVersion(failed, "rows:3"), {}, {}, "r1", "main", now())
    results.record(both.db, own)
    held = [str(path) for path in data(both, failed)]
    erase(both, ORDERS, "id = 2")
    assert {key for _, key in results.find_by_keys(both.db, [(DAY, "before"), (DAY, "after"), (ORDERS, "own")])} == {
        "before"
    }
    assert not any(Path(path).exists() for path in held)
    assert read(both, "ods.orders") == [(1, "d1", 5), (3, "d3", 7)] and fsck(both, deep=True).is_clean
    version = both.state()[ORDERS]
    live = {entry.path for entry in read_entries(both, table_metadata.load_metadata(both, version.location))}
    assert (
        set(read_processed_files(both.db, both.commit(), ORDERS)["in/a.csv"].files) == live
        and version.content == version.location
    )
    assert file  # the first file may have stayed


def test_a_moved_lake_takes_its_results_along(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/a/catalog.db", f"{tmp_path}/a/warehouse")
    create(store, "ods.orders", rows((1, "d1", 5)))
    gave(
        store,
        *[
            entry.path
            for entry in read_entries(store, table_metadata.load_metadata(store, store.state()[ORDERS].location))
        ],
    )
    location, aside, lost = (staged(store, DAY, (number, "d1", 5)) for number in range(3))
    known(store, location, quarantine=TableVersion(aside, aside))
    known(store, lost, "lost", "rows:9")
    published(store, DAY, location, "rows:1")
    overwrite(store, "ods.orders", rows((2, "d2", 6)))
    gc(store, AT_ONCE)
    Path(lost).unlink()
    store.close()
    (tmp_path / "a").rename(tmp_path / "b")
    moved = Store.open(f"sqlite:///{tmp_path}/b/catalog.db", f"{tmp_path}/b/warehouse", moved=True)
    relocate(moved)
    found = results.find_by_keys(moved.db, [(DAY, "k"), (DAY, "lost")])
    assert {key for _, key in found} == {"k"}
    result = found[DAY, "k"]
    assert result.quarantine is not None and result.code == {"digest": "d"}
    for kept in (result.head.location, result.quarantine.location, result.inputs[ORDERS].location):
        assert kept.startswith(f"{tmp_path}/b/") and is_there(moved, kept), kept
    assert result.quarantine.content == result.quarantine.location and result.head == TableVersion(*_version(moved))
    files = json.loads(
        moved.db.read(lambda connection: connection.execute(sa.select(schema.ingested.c.files)).scalar_one())
    )
    assert [Path(file).exists() for file in files] == [True]
    gc(moved, AT_ONCE)
    assert fsck(moved, deep=True).is_clean
    moved.close()


def _version(store: Store) -> tuple[str, str]:
    version = store.state()[DAY]
    return version.location, version.content


def test_a_table_with_a_source_is_not_compacted_if_its_rows_have_no_owners(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    add(both, "ods.orders", rows((2, "d2", 6)))
    gave(both, "x")
    (done,) = compact(both, ORDERS)
    assert done.commit is None
    assert done.note == "skipped: 2 files don't say which source files their rows came from"
    assert both.db.read(lambda connection: ingest_positions.has_ingested(connection, both.commit(), ORDERS))
