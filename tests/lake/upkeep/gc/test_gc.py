"""What is retained stays, what is not goes, and no open write or read loses what it uses."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runnel.errors import Mistake, RunnelError
from runnel.failpoint import InjectedFault
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.history.tags import create_tag
from runnel.lake.iceberg import manifests, parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.leases import slots
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.merge.merge import merge_branch
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import GcResult, gc
from runnel.lake.upkeep.gc.retention import Retention, parse_seconds
from runnel.lake.warehouse_owner import FILE_NAME
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.files.factories import DOCS, LARGE, contents, put_tree

AT_ONCE = Retention(commits="0 seconds", grace="0 seconds")
ORDERS = TableName("ods", "orders")


def later(**time: float) -> datetime:
    return datetime.now(UTC) + timedelta(**time)


def files(store: Store) -> set[str]:
    """Return the files of the warehouse, besides the one that names its owner."""
    found = (path for path in Path(store.warehouse).rglob("*") if path.is_file())
    return {str(path) for path in found if path.name != FILE_NAME}


def replaced(store: Store, data: object, branch: str = "main") -> Commit:
    """Overwrite a table, so that the version before shares nothing with the new one."""
    base = store.state(branch)[ORDERS].location
    metadata = table_metadata.load_metadata(store, base)
    made = parquet_writer.write_rows(store, metadata, data.to_batches())
    staged = snapshots.stage_version(
        store, base, snapshots.VersionEdit(added=made, removed=list(read_entries(store, metadata)))
    )
    return publish(store.db, CommitDraft(branch, "replace", "ada", (CommitChange(ORDERS, base, staged),)))


def assert_sound(store: Store) -> None:
    assert [finding for finding in fsck(store, deep=True).findings if finding.severity == "error"] == []


DURATIONS = {"30 days": 2_592_000, "12 hours": 43_200, "0 seconds": 0, "1 week": 604_800, "90m": 5400, "1 day": 86_400}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items(), ids=DURATIONS)
def test_durations(text: str, seconds: int) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1 days", "3", "3 fortnights", "1.5 days", "days"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Mistake, match="RETENTION_DURATION"):
        Retention(commits=text)


# What happens to the first of three commits, each of which replaces all rows.
FATES: dict[str, tuple[Callable[[Store, Commit], object], Retention, timedelta, bool]] = {
    "young": (lambda store, first: None, Retention(), timedelta(days=29), True),
    "old": (lambda store, first: None, Retention(), timedelta(days=31), False),
    "old and tagged": (lambda store, first: create_tag(store, "v1", first.id), Retention(), timedelta(days=31), True),
    "old and a branch's head": (
        lambda store, first: branches.fork_branch(store.db, "b", first, "ada"),
        Retention(),
        timedelta(days=31),
        True,
    ),
    "old by its branch's rule": (
        lambda store, first: None,
        Retention(branches={"ma*": "1 day"}),
        timedelta(days=2),
        False,
    ),
    "young by its branch's rule": (
        lambda store, first: None,
        Retention(commits="1 day", branches={"other": "0 seconds", "main": "60 days"}),
        timedelta(days=31),
        True,
    ),
    "where a branch was forked off that was deleted": (
        lambda store, first: (branches.fork_branch(store.db, "b", first, "ada"), branches.delete_branch(store.db, "b")),
        Retention(),
        timedelta(days=31),
        False,
    ),
    "the base of a branch's next merge": (
        lambda store, first: (
            branches.fork_branch(store.db, "b", first, "ada"),
            replaced(store, rows((9, "b", 9)), "b"),
        ),
        Retention(),
        timedelta(days=31),
        True,
    ),
}


@pytest.mark.parametrize(("change", "retention", "age", "kept"), FATES.values(), ids=FATES)
def test_what_is_retained(
    store: Store, change: Callable[[Store, Commit], object], retention: Retention, age: timedelta, kept: bool
) -> None:
    first = create(store, "ods.orders", rows((1, "d1", 5)))
    replaced(store, rows((2, "d1", 5)))
    replaced(store, rows((3, "d1", 5)))
    change(store, first)
    before, now = files(store), datetime.now(UTC) + age
    foretold = gc(store, retention, now=now, dry_run=True)
    found = gc(store, retention, now=now)
    assert (found.expired_commits, found.candidates) == (foretold.expired_commits, foretold.candidates)
    assert files(store) == before and found.deleted == 0  # the first look deletes nothing
    swept = gc(store, retention, now=now + timedelta(hours=2))
    assert swept.deleted == found.candidates and len(files(store)) == len(before) - swept.deleted
    if kept:
        assert read(store, "ods.orders", first.id) == [(1, "d1", 5)]
    else:
        with pytest.raises(Mistake, match="REF_EXPIRED"):
            read(store, "ods.orders", first.id)
        assert swept.deleted >= 4  # its metadata, manifest list, manifest and data
    assert read(store, "ods.orders") == [(3, "d1", 5)]
    assert_sound(store)
    assert gc(store, retention, now=now + timedelta(hours=4)) == GcResult(kept=swept.kept)


def test_a_version_made_by_an_expired_commit_stays_while_a_kept_one_has_it(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    create(both, "ods.other", rows((1, "d1", 5)))
    branches.fork_branch(both.db, "b", both.commit(), "ada")
    add(both, "ods.other", rows((2, "d1", 5)), branch="b")
    add(both, "ods.other", rows((3, "d1", 5)))
    swept = gc(both, AT_ONCE)
    assert swept.expired_commits and swept.deleted
    for branch in ("main", "b"):
        assert read(both, "ods.orders", branch) == [(1, "d1", 5)]
    assert len(read(both, "ods.other", "b")) == 2
    assert_sound(both)


def test_what_versions_share_stays(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    for number in range(2, 6):
        add(store, "ods.orders", rows((number, "d1", 5)))
    data = {path for path in files(store) if path.endswith(".parquet")}
    assert gc(store, AT_ONCE).deleted == 9  # five metadata files but the last, with the empty table's, and four lists
    assert {path for path in files(store) if path.endswith(".parquet")} == data
    assert len(read(store, "ods.orders")) == 5
    assert_sound(store)


def test_a_commit_is_kept_as_long_as_it_was_current_within_its_retention(store: Store) -> None:
    first = create(store, "ods.orders", rows((1, "d1", 5)))
    old = format_time(later(days=-90))
    store.db.write(lambda c: c.execute(schema.commits.update().where(schema.commits.c.id == first.id).values(at=old)))
    replaced(store, rows((2, "d1", 5)))
    gc(store, Retention())
    assert read(store, "ods.orders", first.id) == [(1, "d1", 5)]


def test_a_deleted_branch_goes_with_its_folders_after_mains_retention(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    branches.fork_branch(store.db, "b", store.commit(), "ada")
    create(store, "ods.only", rows((1, "d1", 5)), branch="b", by="day")
    branches.delete_branch(store.db, "b")
    assert gc(store, Retention(grace="0 seconds", branches={"b": "0 seconds"})).expired_commits == 0
    swept = gc(store, Retention(grace="0 seconds"), now=later(days=31))
    assert swept.deleted
    assert [path.name for path in (Path(store.warehouse) / "ods").iterdir() if path.name.startswith("only")] == []
    assert read(store, "ods.orders") == [(1, "d1", 5)]


def test_an_open_write_keeps_what_it_staged_and_what_it_started_from(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    base = both.state()[ORDERS].location
    with acquire_pin(both.db, "write") as pin:
        made = parquet_writer.write_rows(
            both, table_metadata.load_metadata(both, base), rows((2, "d1", 5)).to_batches()
        )
        staged = snapshots.stage_version(both, base, snapshots.VersionEdit(added=made))
        gc(both, AT_ONCE)
        gc(both, AT_ONCE)
        publish(both.db, CommitDraft("main", "late", "ada", (CommitChange(ORDERS, base, staged),), pin=pin))
    gc(both, AT_ONCE)
    assert read(both, "ods.orders") == [(1, "d1", 5), (2, "d1", 5)]
    assert_sound(both)


def test_a_writer_whose_lease_ended_is_refused_and_its_files_go(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    base = both.state()[ORDERS].location
    with acquire_pin(both.db, "write") as pin:
        made = parquet_writer.write_rows(
            both, table_metadata.load_metadata(both, base), rows((2, "d1", 5)).to_batches()
        )
        staged = snapshots.stage_version(both, base, snapshots.VersionEdit(added=made))
        swept = gc(both, Retention(grace="0 seconds"), now=later(minutes=20))
        assert swept.ended_leases == 1 and staged not in files(both)
        with pytest.raises(RunnelError, match="PUBLISH_LEASE_LOST"):
            publish(both.db, CommitDraft("main", "late", "ada", (CommitChange(ORDERS, base, staged),), pin=pin))
    assert read(both, "ods.orders") == [(1, "d1", 5)]


def test_a_slot_keeps_its_tables_until_its_lease_ends(both: Store) -> None:
    first = create(both, "ods.orders", rows((1, "d1", 5)))
    state = both.state()
    slot = slots.acquire_slot(both.db, "w", 1, first, state)
    replaced(both, rows((2, "d1", 5)))
    gc(both, AT_ONCE)
    assert state[ORDERS].location in files(both) and slots.list_changes(both.db, slot) == ()
    assert read(both, "ods.orders", first.id) == [(1, "d1", 5)]
    gc(both, AT_ONCE, now=later(minutes=20))
    assert state[ORDERS].location not in files(both)
    with pytest.raises(RunnelError, match="PUBLISH_LEASE_LOST"):
        slots.list_changes(both.db, slot)


def test_a_reader_keeps_its_commit(both: Store) -> None:
    first = create(both, "ods.orders", rows((1, "d1", 5)))
    replaced(both, rows((2, "d1", 5)))
    with acquire_pin(both.db, "read", first.id):
        gc(both, AT_ONCE)
        assert read(both, "ods.orders", first.id) == [(1, "d1", 5)]
    assert gc(both, AT_ONCE).expired_commits == 1
    with pytest.raises(Mistake, match="REF_EXPIRED"), acquire_pin(both.db, "read", first.id):
        pass


def test_a_blob_that_is_a_candidate_can_be_put_again(store: Store, tmp_path: Path) -> None:
    put_tree(store, tmp_path / "a", {"one.bin": LARGE, "two.bin": LARGE[1:]})
    branches.fork_branch(store.db, "b", store.commit(), "ada")
    base = store.state()[DOCS].location
    publish(store.db, CommitDraft("main", "drop", "ada", (CommitChange(DOCS, base, None),)))
    gc(store, Retention(commits="0 seconds", grace="0 seconds"))
    assert len([path for path in files(store) if "/.blobs/" in path]) == 2  # the branch still has them
    branches.delete_branch(store.db, "b")
    now = later(hours=2)
    assert gc(store, Retention(commits="0 seconds"), now=now).candidates
    put_tree(store, tmp_path / "c", {"three.bin": LARGE})
    for hours in (3, 5, 7):
        gc(store, Retention(commits="0 seconds"), now=later(hours=hours))
    assert contents(store, tmp_path / "out") == {"three.bin": LARGE}
    assert len([path for path in files(store) if "/.blobs/" in path]) == 1
    assert_sound(store)


def test_a_candidate_that_is_needed_again_is_forgotten(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    old = store.state()[ORDERS].location
    replaced(store, rows((2, "d1", 5)))
    with acquire_pin(store.db, "write") as pin:  # a revert that looked the old version up before it expired
        assert gc(store, AT_ONCE).waiting
        change = CommitChange(ORDERS, store.state()[ORDERS].location, old)
        publish(store.db, CommitDraft("main", "revert", "ada", (change,), pin=pin))
    assert gc(store, AT_ONCE).forgotten
    assert read(store, "ods.orders") == [(1, "d1", 5)]
    assert_sound(store)


def test_a_candidate_that_died_again_under_an_open_write_waits_for_it(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    old = store.state()[ORDERS].location
    replaced(store, rows((2, "d1", 5)))
    with acquire_pin(store.db, "write") as first:
        assert gc(store, AT_ONCE).waiting  # `old` is listed
        branches.fork_branch(store.db, "b", store.commit(), "ada")
        new = store.state("b")[ORDERS].location
        publish(store.db, CommitDraft("b", "revert", "ada", (CommitChange(ORDERS, new, old),), pin=first))
    with acquire_pin(store.db, "write") as second:  # a merge that starts from what the branch has
        taken = store.state("b")[ORDERS].location
        branches.delete_branch(store.db, "b")
        gc(store, AT_ONCE)
        publish(store.db, CommitDraft("main", "merge", "ada", (CommitChange(ORDERS, new, taken),), pin=second))
    gc(store, AT_ONCE)
    assert read(store, "ods.orders") == [(1, "d1", 5)]
    assert_sound(store)


def test_files_outside_the_warehouse_are_never_touched(store: Store, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    outside = tmp_path / "lakeside" / "mine.parquet"
    outside.parent.mkdir()
    create(store, "ods.orders", rows((1, "d1", 5)))
    base = store.state()[ORDERS].location
    metadata = table_metadata.load_metadata(store, base)
    pq.write_table(rows((7, "d7", 7)), outside)
    made = parquet_writer.write_rows(store, metadata, rows((7, "d7", 7)).to_batches())
    Path(made[0].file_path).replace(outside)
    parquet = pq.read_metadata(outside)
    registered = parquet_writer.build_data_file(
        metadata, str(outside), parquet, outside.stat().st_size, made[0].partition
    )
    staged = snapshots.stage_version(store, base, snapshots.VersionEdit(added=[registered]))
    publish(store.db, CommitDraft("main", "register", "ada", (CommitChange(ORDERS, base, staged),)))
    assert read(store, "ods.orders")[-1] == (7, "d7", 7)
    publish(store.db, CommitDraft("main", "drop", "ada", (CommitChange(ORDERS, staged, None),)))
    gc(store, AT_ONCE)
    assert files(store) == set() and outside.exists()


def test_the_catalog_and_other_engines_unadopted_changes_are_kept(store: Store) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    create(store, "ods.orders", rows((1, "d1", 5)))
    uri = store.db.url.render_as_string(hide_password=False)
    SqlCatalog("main", uri=uri, warehouse=store.warehouse).load_table("ods.orders").append(rows((2, "d2", 6)))
    gc(store, AT_ONCE)
    assert read(store, "ods.orders") == [(1, "d1", 5), (2, "d2", 6)]
    assert_sound(store)


STEPS = {
    "gc.leases_ended": 0,
    "gc.before_expire": 0,
    "gc.expired": 0,
    "gc.marked": 0,
    "gc.forgotten": 0,
    "gc.candidates": 0,
    "gc.before_delete": 0,
    "gc.deleted": 1,
    "gc.batch": 1,
    "gc.folders": 1,
}


@pytest.mark.parametrize(("point", "deleted"), STEPS.items(), ids=STEPS)
def test_a_crash_at_any_step_is_gone_on_from(
    store: Store, monkeypatch: pytest.MonkeyPatch, point: str, deleted: int
) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    publish(store.db, CommitDraft("main", "drop", "ada", (CommitChange(ORDERS, store.state()[ORDERS].location, None),)))
    create(store, "ods.orders", rows((2, "d1", 5)))
    before = files(store)
    monkeypatch.setenv("RUNNEL_FAIL", f"{point}:error@1")
    monkeypatch.setattr("runnel.failpoint._passed", {})
    with pytest.raises(InjectedFault):
        gc(store, AT_ONCE)
    monkeypatch.delenv("RUNNEL_FAIL")
    assert bool(before - files(store)) == bool(deleted)
    assert_sound(store)
    assert read(store, "ods.orders") == [(2, "d1", 5)]
    gc(store, AT_ONCE)
    assert len(files(store)) == 4 and gc(store, AT_ONCE).deleted == 0


def test_a_fork_of_an_expiring_commit_is_whole_or_refused(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    commits = [replaced(both, rows((number, "d1", 5))) for number in range(2, 8)]
    start = threading.Barrier(2)
    forked = []

    def fork() -> None:
        start.wait()
        for commit in commits:
            with suppress(Mistake):
                forked.append((branches.fork_branch(both.db, f"b{commit.seq}", commit, "ada"), commit))

    thread = threading.Thread(target=fork)
    thread.start()
    start.wait()
    gc(both, AT_ONCE)
    thread.join()
    gc(both, AT_ONCE)
    for branch, commit in forked:
        assert read(both, "ods.orders", branch.name) == [(commit.seq - 1, "d1", 5)]
    assert_sound(both)


def test_two_gcs_do_not_run_at_once(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    with acquire_pin(both.db, "gc", exclusive=True), pytest.raises(RunnelError, match="GC_RUNNING"):
        gc(both, AT_ONCE)
    replaced(both, rows((2, "d1", 5)))
    codes: list[str] = []

    def run() -> None:
        try:
            gc(both, AT_ONCE)
            codes.append("done")
        except RunnelError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "done" in codes and set(codes) <= {"done", "GC_RUNNING"}
    assert (
        read(both, "ods.orders") == [(2, "d1", 5)] and len(files(both)) == 5
    )  # two manifests: one says what was removed


def test_the_pin_of_a_dead_process_does_not_last(store: Store) -> None:
    import socket
    import subprocess

    process = subprocess.Popen(["true"])
    process.wait()
    values = {
        "id": "x",
        "kind": "gc",
        "owner": f"{socket.gethostname()}:{process.pid}",
        "started_at": format_time(later()),
    }
    expires = format_time(later(minutes=9))
    store.db.write(lambda c: c.execute(schema.pins.insert().values(**values, expires_at=expires)))
    assert gc(store, AT_ONCE).ended_leases == 1


def test_nothing_is_deleted_where_a_kept_version_cannot_be_read(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    replaced(store, rows((2, "d1", 5)))
    manifest = next(path for path in files(store) if "-m0.avro" in path)
    Path(manifest).write_bytes(Path(manifest).read_bytes()[:-40])
    before = files(store)
    with pytest.raises(RunnelError, match="LAKE_FILE_DAMAGED") as told:
        gc(store, Retention(grace="0 seconds"))
    assert manifest in str(told.value) and files(store) == before


def test_a_dry_run_changes_nothing(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    first = replaced(store, rows((2, "d1", 5)))
    replaced(store, rows((3, "d1", 5)))
    before = files(store)
    foretold = gc(store, AT_ONCE, dry_run=True)
    assert foretold.deleted and files(store) == before
    assert read(store, "ods.orders", first.id) == [(2, "d1", 5)]
    swept = gc(store, AT_ONCE)
    assert (swept.deleted, swept.deleted_bytes) == (foretold.deleted, foretold.deleted_bytes)


def through_a_deleted_branch(store: Store) -> None:
    """Fork y off x, which was forked off main, and delete x."""
    branches.fork_branch(store.db, "x", store.commit(), "ada")
    add(store, "ods.orders", rows((2, "d2", 2)), branch="x")
    branches.fork_branch(store.db, "y", store.commit("x"), "ada")
    branches.delete_branch(store.db, "x")


def through_a_merged_branch(store: Store) -> None:
    """Merge x into main, fork y off there, merge x into main once more: y has only the first of both."""
    branches.fork_branch(store.db, "x", store.commit(), "ada")
    for number in (2, 3):
        add(store, "ods.orders", rows((number, f"d{number}", 2)), branch="x")
        add(store, "ods.orders", rows((10 + number, f"m{number}", 2)))
        merge_branch(store, "x")
        if number == 2:
            branches.fork_branch(store.db, "y", store.commit(), "ada")
    branches.delete_branch(store.db, "x")


@pytest.mark.parametrize("forked", [through_a_deleted_branch, through_a_merged_branch])
def test_branches_can_be_merged_however_long_ago_they_parted(store: Store, forked: Callable[[Store], None]) -> None:
    create(store, "ods.orders", rows((1, "d1", 1)))
    forked(store)
    add(store, "ods.orders", rows((4, "d4", 4)), branch="y")
    add(store, "ods.orders", rows((5, "d5", 5)))
    before = {*read(store, "ods.orders"), *read(store, "ods.orders", "y")}
    gc(store, Retention(commits="0 seconds", grace="0 seconds"))
    table_metadata.clear_cache()
    manifests.clear_cache()
    assert merge_branch(store, "y").commit is not None
    assert set(read(store, "ods.orders")) == before
