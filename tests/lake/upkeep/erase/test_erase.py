"""An erasure leaves no trace of the rows in any retained version, and everything else as it was."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DEFAULT_READ_VERSION, MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntry
from pyiceberg.types import StringType

from runnel.errors import Mistake, RunnelError
from runnel.failpoint import InjectedFault
from runnel.lake.catalog import schema
from runnel.lake.diff.lake_diff import diff_commits
from runnel.lake.files.put import put_files
from runnel.lake.history.branches import delete_branch
from runnel.lake.history.commits import commit_from_row, find_version, read_changes
from runnel.lake.history.tags import create_tag
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase import erase as module
from runnel.lake.upkeep.erase import file_rewriter, file_search
from runnel.lake.upkeep.erase.erase import ErasureResult, erase
from runnel.lake.upkeep.erase.file_rewriter import RewriteUnit
from runnel.lake.upkeep.erase.file_search import SearchGroup
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.work_runner import IN_PROCESS, ProcessRunner, WorkContext
from runnel.model.work_place import EXECUTORS, ByteCount, WorkPlaceRules
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.pickling_runner import PicklingRunner
from tests.lake.table_changes import (
    branch,
    columns,
    delete_rows,
    drop,
    equality_delete,
    evolve,
    files,
    overwrite,
    partitions,
)

NAME = "ods.people"
PEOPLE = TableName.parse(NAME)
ANN = "day = 'ann'"
BAD_NUMBER = "id = cast('99999999999999999999' as bigint)"
Rows = list[tuple[Any, ...]]


def history(store: Store) -> dict[str, Rows]:
    """Return the rows of the table at every commit."""

    def commits(connection: sa.Connection) -> list[Any]:
        found = [
            commit_from_row(row) for row in connection.execute(sa.select(schema.commits).order_by(schema.commits.c.seq))
        ]
        return [(commit.id, find_version(connection, commit, PEOPLE)) for commit in found]

    table_metadata.clear_cache()
    found = {}
    with connect_duckdb() as connection:
        for commit, version in store.db.read(commits):
            if version is not None:
                sql = rows_sql(store, table_metadata.load_metadata(store, version.location))
                found[commit] = sorted(connection.execute(sql).fetchall(), key=repr)
    return found


def without(found: dict[str, Rows], gone: Callable[[tuple[Any, ...]], bool]) -> dict[str, Rows]:
    return {commit: [row for row in rows if not gone(row)] for commit, rows in found.items()}


def traces(store: Store, secret: str) -> list[str]:
    """Return the files of the warehouse that hold a value, in rows or in bounds."""
    found = [
        str(path)
        for path in Path(store.warehouse).rglob("*.parquet")
        if any(secret in map(str, column.to_pylist()) for column in pq.ParquetFile(path).read().columns)
    ]
    for path in Path(store.warehouse).rglob("*-m[0-9]*.avro"):
        source = load_file_io().new_input(str(path))
        with AvroFile[ManifestEntry](source, MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]) as reader:
            bounds = [value for entry in reader for at in (10, 11) for value in (entry[4][at] or {}).values()]
        if secret.encode() in bounds:
            found.append(str(path))
    return found


def erased(
    store: Store,
    where: str = ANN,
    secret: str = "ann",
    *,
    gone: Callable[[Any], bool] | None = None,
    work: WorkContext = IN_PROCESS,
) -> ErasureResult:
    """Erase, and check all that must hold afterwards."""
    before = history(store)
    done = erase(store, PEOPLE, where, work=work)
    after = history(store)
    kept = without(before, gone or (lambda row: secret in row))
    assert {commit: after[commit] for commit in before} == kept
    report = fsck(store, deep=True)
    assert report.is_clean, report.findings
    assert not traces(store, secret)
    state = store.state()
    if PEOPLE in state:  # PyIceberg reads it, too
        assert table_metadata.open_table(store, PEOPLE, state[PEOPLE].location).scan().count() == len(read(store, NAME))
    assert erase(store, PEOPLE, where).rows == 0
    assert history(store) == after
    return done


def simple(store: Store) -> None:
    create(store, NAME, rows((1, "ann", 1), (2, "bob", 2)))
    add(store, NAME, rows((3, "cyd", 3)))
    add(store, NAME, rows((4, "ann", 4)))


def overwritten(store: Store) -> None:
    simple(store)
    overwrite(store, NAME, rows((9, "dan", 9)))


def branched(store: Store) -> None:
    simple(store)
    branch(store, "dev")
    add(store, NAME, rows((5, "ann", 5), (6, "bob", 6)), branch="dev")
    overwrite(store, NAME, rows((7, "eve", 7)))
    create_tag(store, "v1", "main~1")
    branch(store, "old", "main~2")


def deleted_branch(store: Store) -> None:
    branched(store)
    delete_branch(store.db, "dev")


def deleted_rows(store: Store) -> None:
    create(store, NAME, rows((1, "bob", 1), (2, "ann", 2), (3, "cyd", 3), (4, "dan", 4)))
    add(store, NAME, rows((5, "eve", 5), (6, "fay", 6)))
    first, second = files(store, NAME)
    delete_rows(store, NAME, {first.path: [2]})
    delete_rows(store, NAME, {first.path: [1], second.path: [0]})


def emptied(store: Store) -> None:
    create(store, NAME, rows((1, "ann", 1)))
    evolve(store, NAME, columns(lambda update: update.add_column("note", StringType())))


def partitioned(store: Store) -> None:
    create(store, NAME, rows((1, "ann", 1), (2, "bob", 2)), by="day")
    evolve(store, NAME, partitions(lambda update: update.remove_field("day").add_identity("amount")))
    add(store, NAME, rows((3, "ann", 1), (4, "bob", 1)))


def compacted(store: Store) -> None:
    simple(store)
    compact(store)
    add(store, NAME, rows((5, "ann", 5)))


def dropped_and_made_anew(store: Store) -> None:
    simple(store)
    drop(store, NAME)
    create(store, NAME, rows((8, "ann", 8), (9, "bob", 9)))


def register_outside(store: Store, outside: Path) -> None:
    entry = files(store, NAME)[0]
    outside.write_bytes(Path(entry.path).read_bytes())
    moved = DataFile(*entry.file._data)
    moved[1], moved.spec_id = str(outside), 0
    publish_edit(store, "main", PEOPLE, lambda version: VersionEdit(added=[moved]), "register")


CASES: dict[str, tuple[Callable[[Store], None], tuple[int, int]]] = {
    # what was written, rows erased and files that held them
    "two files": (simple, (2, 2)),
    "only old commits": (overwritten, (2, 2)),
    "branches and tags": (branched, (3, 3)),
    "a branch that was deleted": (deleted_branch, (3, 3)),
    "position deletes": (deleted_rows, (1, 1)),
    "nothing is left": (emptied, (1, 1)),
    "several specs": (partitioned, (2, 2)),
    "after a compaction": (compacted, (5, 4)),
    "dropped and made anew": (dropped_and_made_anew, (3, 3)),
}


@pytest.mark.parametrize(("write", "counts"), CASES.values(), ids=CASES)
def test_no_version_has_the_rows(store: Store, write: Callable[[Store], None], counts: tuple[int, int]) -> None:
    write(store)
    done = erased(store)
    assert (done.copies, done.files) == counts


@pytest.mark.cluster
@pytest.mark.parametrize(("write", "counts"), CASES.values(), ids=CASES)
def test_files_are_searched_and_rewritten_in_units(
    store: Store, write: Callable[[Store], None], counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_search, "_FILES_AT_ONCE", 1)
    monkeypatch.setattr(file_rewriter, "_MOST_FILES", 1)
    write(store)
    runner, reports = PicklingRunner(), list[tuple[str, int, int | None]]()
    done = erased(store, work=WorkContext(runner, lambda *report: reports.append(report)))
    assert (done.copies, done.files) == counts
    assert done.place is not None
    assert done.place.name == EXECUTORS
    searched = [len(unit.entries) for unit in runner.all_units if isinstance(unit, SearchGroup)]
    rewritten = [len(unit.rewrites) for unit in runner.all_units if isinstance(unit, RewriteUnit)]
    assert searched == [1] * len(searched)
    assert rewritten == [1] * len(rewritten)
    assert ("erase ods.people: look", len(searched), len(searched)) in reports
    assert not any(secret in repr(unit) for unit in runner.all_units for secret in ("= 'ann'", "'ann')"))


def test_a_condition_that_a_unit_refuses_is_the_same_mistake(store: Store) -> None:
    simple(store)
    with pytest.raises(Mistake) as refused:
        erase(store, PEOPLE, BAD_NUMBER, work=WorkContext(PicklingRunner()))
    assert refused.value.code == "ERASE_CONDITION"


def test_files_of_this_machine_are_searched_here(store: Store, tmp_path: Path) -> None:
    simple(store)
    register_outside(store, tmp_path / "outside.parquet")
    rules = WorkPlaceRules("executors", has_cluster=True, shared_folders=(store.warehouse,))

    def choose_runner(byte_count: ByteCount, local_paths: Iterable[str] = ()) -> ProcessRunner:
        return ProcessRunner(rules.choose(byte_count, local_paths).reason)

    done = erase(store, PEOPLE, "day = 'nobody'", work=WorkContext(choose_runner))
    assert done.place is not None
    assert done.place.describe().startswith(f"in this process: {tmp_path}/outside.parquet is on this machine only")


def test_on_both_databases(both: Store) -> None:
    branched(both)
    erased(both)


def test_every_branch_tells_what_was_done_and_not_to_whom(store: Store) -> None:
    branched(store)
    done = erase(store, PEOPLE, ANN)
    assert {found.branch: found.rows for found in done.branches} == {"dev": 3, "main": 0, "old": 1}
    for found in done.branches:
        commit = store.commit(found.branch)
        assert (commit.id, commit.kind, commit.author) == (found.commit, "erase", "ada")
        detail = [change.detail for change in store.db.read(lambda c, at=commit: read_changes(c, at.id))]
        assert "ann" not in json.dumps(detail) + commit.message
    (change,) = store.db.read(lambda connection: read_changes(connection, store.commit("dev").id))
    assert change.detail["erase"]["columns"] == ["day"]
    assert change.detail["erase"]["rows"] == 3


def test_compaction_still_keeps_content_and_names_its_files(store: Store) -> None:
    simple(store)
    compact(store)
    erase(store, PEOPLE, ANN)
    assert not diff_commits(store, "main~2", "main").tables
    (change,) = store.db.read(lambda connection: read_changes(connection, store.commit("main~1").id))
    before = {entry.path for entry in files(store, NAME, "main~2")}
    assert {new: set(old) for new, old in change.detail["replaces"].items()} == {files(store, NAME)[0].path: before}


def test_others_write_on(store: Store) -> None:
    branched(store)
    erase(store, PEOPLE, ANN)
    add(store, NAME, rows((10, "gil", 10)), branch="dev")
    assert [row[1] for row in read(store, NAME, "dev")] == ["gil", "bob", "cyd", "bob"]
    assert fsck(store).is_clean


def test_renamed_column_is_known_by_its_id(store: Store) -> None:
    simple(store)
    evolve(store, NAME, columns(lambda update: update.rename_column("day", "mail")))
    add(store, NAME, pa.table({"id": [7], "mail": ["ann"], "amount": [7]}))
    assert erased(store, "mail = 'ann'").rows == 3


def test_dropped_column_still_finds_rows(store: Store) -> None:
    simple(store)
    evolve(store, NAME, columns(lambda update: update.delete_column("day")))
    add(store, NAME, pa.table({"id": [7], "amount": [7]}))
    done = erased(store, ANN, gone=lambda row: row[0] in (1, 4))
    assert {found.branch: found.rows for found in done.branches} == {"main": 2}


def test_column_that_two_branches_made_is_two_columns(store: Store) -> None:
    simple(store)
    branch(store, "dev")
    evolve(store, NAME, columns(lambda update: update.add_column("mail", StringType())))
    evolve(store, NAME, columns(lambda update: update.add_column("note", StringType())), branch="dev")
    person = {"id": [7], "day": ["x"], "amount": [7]}
    add(store, NAME, pa.table({**person, "mail": ["zoe"]}))
    add(store, NAME, pa.table({**person, "note": ["zoe"]}), branch="dev")
    assert erase(store, PEOPLE, "mail = 'zoe'").rows == 1
    assert [row[3] for row in read(store, NAME, "dev") if row[0] == 7] == ["zoe"]


def test_dry_run_changes_nothing(store: Store) -> None:
    branched(store)
    before = (history(store), sorted(Path(store.warehouse).rglob("*")))
    done = erase(store, PEOPLE, ANN, dry_run=True)
    assert (done.rows, done.files, done.dry_run) == (3, 3, True)
    assert done.versions >= 4
    assert (history(store), sorted(Path(store.warehouse).rglob("*"))) == before


def test_nothing_matches(store: Store) -> None:
    simple(store)
    head = store.commit()
    done = erase(store, PEOPLE, "day = 'nobody'")
    assert (done.rows, done.files, done.versions, done.branches[0].commit) == (0, 0, 0, None)
    assert store.commit() == head


CONDITIONS = {
    "id = 1 or id = 4": 2,
    "amount between 2 and 3 and day <> 'cyd'": 1,
    "DAY in ('ann', 'cyd')": 3,
    "day like 'a%'": 2,
    "day like 'a\\\\%'": 0,
    "not (day = 'ann') and id is not null": 2,
    "id <=> 3": 1,
    "id > 1.5 and id < cast('4' as bigint)": 2,
    "day is null": 0,
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open a lake with rows that tests only look at."""
    folder = tmp_path_factory.mktemp("people")
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    simple(store)
    yield store
    store.close()


@pytest.mark.parametrize(("where", "count"), CONDITIONS.items(), ids=list(CONDITIONS))
def test_condition(people: Store, where: str, count: int) -> None:
    assert erase(people, PEOPLE, where, dry_run=True).rows == count


BAD = {
    "": "ERASE_CONDITION",
    "day = ": "ERASE_CONDITION",
    "true": "ERASE_CONDITION",
    "1 = 1": "ERASE_CONDITION",
    "id = 1; drop table x": "ERASE_CONDITION",
    "lower(day) = 'ann'": "ERASE_CONDITION",
    "id in (select 1)": "ERASE_CONDITION",
    "id + 1 = 2": "ERASE_CONDITION",
    "id = 'one'": "ERASE_CONDITION",
    "day = 1": "ERASE_CONDITION",
    "day rlike 'a'": "ERASE_CONDITION",
    "day = 'it''s'": "ERASE_CONDITION",
    BAD_NUMBER: "ERASE_CONDITION",
    "read_text('/etc/passwd') = day": "ERASE_CONDITION",
    "dya = 'ann'": "ERASE_COLUMN_UNKNOWN",
}


@pytest.mark.parametrize(("where", "code"), BAD.items(), ids=list(BAD))
def test_bad_condition_is_refused(people: Store, where: str, code: str) -> None:
    with pytest.raises(Mistake) as refused:
        erase(people, PEOPLE, where)
    assert refused.value.code == code
    assert refused.value.fix


def test_unknown_table(people: Store) -> None:
    with pytest.raises(Mistake, match=r"TABLE_UNKNOWN.*close: `ods.people`"):
        erase(people, TableName("ods", "poeple"), ANN)


def test_rows_of_a_file_in_place_are_refused(store: Store, tmp_path: Path) -> None:
    simple(store)
    register_outside(store, tmp_path / "outside.parquet")
    before = history(store)
    with pytest.raises(RunnelError, match=r"ERASE_OUTSIDE_FILE.*outside\.parquet"):
        erase(store, PEOPLE, ANN)
    assert history(store) == before
    assert erase(store, PEOPLE, "day = 'cyd'").rows == 1


def test_equality_deletes_are_refused(store: Store) -> None:
    simple(store)
    publish_edit(
        store, "main", PEOPLE, lambda version: VersionEdit(added=[equality_delete(files(store, NAME)[0])]), "delete"
    )
    with pytest.raises(RunnelError, match="ERASE_NEEDS_SPARK"):
        erase(store, PEOPLE, ANN)


def test_version_that_comes_up_meanwhile_is_treated_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    simple(store)
    real, left = module.publish_erasure, [lambda: branch(store, "dev"), lambda: add(store, NAME, rows((5, "ann", 5)))]

    def late(*args: Any) -> Any:
        if left:
            left.pop()()
        return real(*args)

    monkeypatch.setattr(module, "publish_erasure", late)
    assert erase(store, PEOPLE, ANN).rows == 3
    assert not [row for found in history(store).values() for row in found if "ann" in row]
    assert not traces(store, "ann")
    assert fsck(store, deep=True).is_clean


POINTS = [
    "erase.files",
    "erase.staged",
    "erase.swapped",
    "erase.after_commit",
    "erase.delete",
    "erase.delete:error@3",
    "write.metadata",
]


@pytest.mark.parametrize("point", POINTS)
def test_crash_then_again(store: Store, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    simple(store)
    branch(store, "dev")
    before = history(store)
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", point if ":" in point else f"{point}:error")
    with pytest.raises(InjectedFault):
        erase(store, PEOPLE, ANN)
    monkeypatch.delenv("RUNNEL_FAIL")
    assert fsck(store, deep=True).is_clean
    done_already = point.startswith(("erase.after_commit", "erase.delete"))
    expected = without(before, lambda row: "ann" in row)
    found = history(store)
    assert {commit: found[commit] for commit in before} == (expected if done_already else before)
    erase(store, PEOPLE, ANN)
    found = history(store)
    assert {commit: found[commit] for commit in before} == expected
    assert not traces(store, "ann")
    assert fsck(store, deep=True).is_clean


@pytest.mark.parametrize("is_open", [False, True], ids=["after a crash", "after writes have ended"])
def test_gc_finishes(store: Store, monkeypatch: pytest.MonkeyPatch, is_open: bool) -> None:
    simple(store)
    if is_open:
        with acquire_pin(store.db, "write"):
            assert erase(store, PEOPLE, ANN).left > 0
    else:
        monkeypatch.setattr("runnel.failpoint._passed", {})
        monkeypatch.setenv("RUNNEL_FAIL", "erase.after_commit:error")
        with pytest.raises(InjectedFault):
            erase(store, PEOPLE, ANN)
        monkeypatch.delenv("RUNNEL_FAIL")
    assert traces(store, "ann")
    gc(store, Retention(grace="0 seconds"))
    assert not traces(store, "ann")
    assert fsck(store, deep=True).is_clean


def test_blobs_of_erased_files_go_with_the_last_row(store: Store, tmp_path: Path) -> None:
    table = TableName("ods", "scans")
    for name, letter in (("ann.bin", b"a"), ("bob.bin", b"b"), ("copy.bin", b"a"), ("eve.bin", b"e")):
        (tmp_path / name).write_bytes(letter * 400_000)
        put_files(store, table, [tmp_path / name])
    blobs = Path(store.warehouse) / ".blobs"
    assert len([path for path in blobs.rglob("*") if path.is_file()]) == 3
    assert erase(store, table, "path = 'ann.bin'").blobs == 0
    assert erase(store, table, "path = 'copy.bin' or path = 'eve.bin'").blobs == 2
    assert len([path for path in blobs.rglob("*") if path.is_file()]) == 1
    assert fsck(store, deep=True).is_clean
