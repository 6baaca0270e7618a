"""fsck finds each kind of damage, and names the file and the commits concerned."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit
from runnel.lake.history.tags import create_tag
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.findings import FsckFinding
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.names import TableName
from tests.lake.factories import add, create, rows
from tests.lake.files.factories import LARGE, put_tree

ORDERS = TableName("ods", "orders")


def furnish(store: Store, tmp_path: Path) -> list[Commit]:
    """Return the commits that create, append to, append to and leave alone a table, and what else a lake has."""
    made = [create(store, "ods.orders", rows((1, "d1", 5)))]
    made += [add(store, "ods.orders", rows((number, "d1", 5))) for number in (2, 3)]
    put = put_tree(store, tmp_path / "docs", {"a.txt": "small", "b.bin": LARGE}).commit
    assert put is not None
    branches.fork_branch(store.db, "dev", made[1], "ada")
    return [*made, put]


def metadata_of(store: Store, commit: Commit) -> Path:
    return Path(store.versions(commit, [ORDERS])[ORDERS].location)


def list_of(store: Store, commit: Commit) -> Path:
    snapshot = table_metadata.load_metadata(store, str(metadata_of(store, commit))).current_snapshot()
    assert snapshot is not None
    return Path(snapshot.manifest_list)


def added_by(store: Store, commit: Commit) -> manifests.FileEntry:
    """Return the data file that a commit added."""
    metadata = table_metadata.load_metadata(store, str(metadata_of(store, commit)))
    return max(manifests.read_entries(store, metadata), key=lambda entry: entry.sequence)


def data_of(store: Store, commit: Commit) -> Path:
    return Path(added_by(store, commit).path)


def manifest_of(store: Store, commit: Commit) -> Path:
    return Path(added_by(store, commit).manifest)


def blob_of(store: Store, commit: Commit) -> Path:
    return next(path for path in (Path(store.warehouse) / ".blobs").rglob("*") if path.is_file())


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_block(path: Path) -> None:
    """Cut an Avro file off where a reader can't tell: after its header."""
    contents = path.read_bytes()
    sync = contents[-16:]
    path.write_bytes(contents[: contents.index(sync) + 16])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def flip(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def zero_end(path: Path) -> None:
    contents = path.read_bytes()
    path.write_bytes(contents[:-8] + b"\0" * 8)


def fewer_rows(path: Path) -> None:
    """Put another Parquet file of the same size in its place; only its footer tells."""
    import pyarrow.parquet as pq

    size = path.stat().st_size
    pq.write_table(pq.read_table(path).slice(0, 0), path, compression="zstd", store_schema=False)
    contents = path.read_bytes()
    assert len(contents) <= size
    path.write_bytes(contents[:4] + b"\0" * (size - len(contents)) + contents[4:])


# Which file of which commit, what happens to it, what is found, which commits need it (by place), only if deep.
DAMAGE: dict[str, tuple[Callable, int, Callable, str, tuple[int, ...], bool]] = {
    "a data file is gone": (data_of, 1, remove, "FSCK_FILE_MISSING", (1, 3), False),
    "a data file that all versions have is gone": (data_of, 0, remove, "FSCK_FILE_MISSING", (0, 3), False),
    "a data file has another size": (data_of, 2, grow, "FSCK_FILE_SIZE", (2, 3), False),
    "a data file has a broken footer": (data_of, 2, zero_end, "FSCK_FILE_DAMAGED", (2, 3), True),
    "a data file has other rows": (data_of, 2, fewer_rows, "FSCK_ROW_COUNT", (2, 3), True),
    "a manifest is gone": (manifest_of, 1, remove, "FSCK_FILE_MISSING", (1, 3), False),
    "a manifest is cut off": (manifest_of, 2, cut, "FSCK_FILE_DAMAGED", (2, 3), False),
    "a manifest list is gone": (list_of, 0, remove, "FSCK_FILE_MISSING", (0,), False),
    "a manifest list is cut off": (list_of, 1, cut, "FSCK_FILE_DAMAGED", (1,), False),
    "a manifest list is cut off at a block": (list_of, 1, cut_block, "FSCK_FILE_DAMAGED", (1,), False),
    "a metadata file is gone": (metadata_of, 0, remove, "FSCK_FILE_MISSING", (0,), False),
    "a metadata file is cut off": (metadata_of, 2, cut, "FSCK_FILE_DAMAGED", (2, 3), False),
    "a blob is gone": (blob_of, 3, remove, "FSCK_BLOB", (3,), False),
    "a blob has a flipped bit": (blob_of, 3, flip, "FSCK_BLOB", (3,), True),
}


@pytest.mark.parametrize(("of", "number", "harm", "code", "needed", "deep"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_files(
    store: Store,
    tmp_path: Path,
    of: Callable,
    number: int,
    harm: Callable,
    code: str,
    needed: tuple[int, ...],
    deep: bool,
) -> None:
    commits = furnish(store, tmp_path)
    path = of(store, commits[number])
    harm(path)
    assert fsck(store).is_clean == deep
    found = errors(store, deep=True)
    assert [(finding.code, finding.file) for finding in found] == [(code, str(path))]
    assert found[0].commits == tuple(commits[place].id for place in needed)
    assert found[0].tables == (("ods.docs",) if code == "FSCK_BLOB" else ("ods.orders",))
    assert path.name in found[0].what and found[0].fix


def errors(store: Store, *, deep: bool = False) -> list[FsckFinding]:
    return [finding for finding in fsck(store, deep=deep).findings if finding.severity == "error"]


def change(table: sa.Table, *where: object, **values: object) -> Callable[[Store], object]:
    return lambda store: store.db.write(lambda c: c.execute(table.update().where(*where).values(**values)))


def last_change(store: Store, **values: object) -> object:
    columns = schema.changes.c

    def work(connection: sa.Connection) -> None:
        seq = sa.select(sa.func.max(columns.seq)).where(columns.table_name == "ods.orders").scalar_subquery()
        connection.execute(schema.changes.update().where(columns.seq == seq).values(**values))

    return store.db.write(work)


LEDGER: dict[str, tuple[Callable[[Store], object], set[str]]] = {
    "a change that does not start where the last one ended": (
        lambda store: last_change(store, before="/elsewhere"),
        {"FSCK_CHANGE"},
    ),
    "a change that does not say whose rows": (
        lambda store: last_change(store, content=None),
        {"FSCK_CHANGE", "FSCK_HEAD"},
    ),
    "a head that its history does not have": (
        change(schema.heads, schema.heads.c.branch == "dev", schema.heads.c.table_name == "ods.orders", content="x"),
        {"FSCK_HEAD"},
    ),
    "a branch at a commit that is not its newest": (
        lambda store: change(schema.branches, schema.branches.c.name == "dev", head=store.commit("main~3").id)(store),
        {"FSCK_HEAD"},
    ),
    "a commit with another parent": (
        lambda store: change(schema.commits, schema.commits.c.id == store.commit().id, parent="0" * 20)(store),
        {"FSCK_PARENT"},
    ),
    "a sequence that starts again": (change(schema.lake, seq=1), {"FSCK_SEQUENCE"}),
    "a tag of a commit that is gone": (change(schema.tags, commit_id="0" * 20), {"FSCK_NAME"}),
    "a change without its commit": (
        lambda store: last_change(store, commit_id="0" * 20),
        {"FSCK_CHANGE"},
    ),
}


@pytest.mark.parametrize(("harm", "codes"), LEDGER.values(), ids=LEDGER)
def test_a_history_that_contradicts_itself(
    both: Store, tmp_path: Path, harm: Callable[[Store], object], codes: set[str]
) -> None:
    furnish(both, tmp_path)
    create_tag(both, "v1", "main~1")
    assert errors(both) == []
    harm(both)
    found = errors(both)
    assert {finding.code for finding in found} == codes
    assert all(finding.fix for finding in found)


def test_a_row_of_the_catalog_that_points_nowhere(store: Store, tmp_path: Path) -> None:
    furnish(store, tmp_path)
    gone = f"{store.warehouse}/ods/x/metadata/00001-gone.metadata.json"
    columns = schema.iceberg_tables.c
    change(schema.iceberg_tables, columns.catalog_name == "dev", metadata_location=gone)(store)
    found = fsck(store).findings
    dangling = [finding for finding in found if finding.code == "FSCK_DANGLING_ROW"]
    assert [(finding.severity, finding.file, finding.tables) for finding in dangling] == [
        ("error", gone, ("ods.orders",))
    ]
    assert "FSCK_OUTSIDE" in {finding.code for finding in found}


def test_damage_of_commits_that_are_not_kept_is_none(store: Store, tmp_path: Path) -> None:
    commits = furnish(store, tmp_path)
    path = metadata_of(store, commits[0])
    gc(store, Retention(commits="0 seconds"))
    path.unlink()
    assert errors(store, deep=True) == []


def test_what_is_left_over_is_told_and_no_error(store: Store, tmp_path: Path) -> None:
    furnish(store, tmp_path)
    stray = Path(store.warehouse) / "ods" / "stray.parquet"
    stray.write_bytes(b"x" * 10)
    assert fsck(store).findings == ()  # it may belong to a write that is under way
    hours_ago = time.time() - 3 * 3600
    os.utime(stray, (hours_ago, hours_ago))
    past = format_time(datetime.now(UTC) - timedelta(hours=1))
    values = {"id": "x", "kind": "write", "owner": "elsewhere:1", "started_at": past, "expires_at": past}
    store.db.write(lambda c: c.execute(schema.pins.insert().values(values)))
    report = fsck(store)
    assert report.is_clean and report.orphans == (str(stray),)
    assert {(finding.severity, finding.code) for finding in report.findings} == {
        ("info", "FSCK_LEASES"),
        ("info", "FSCK_ORPHANS"),
    }


def test_a_sound_lake(both: Store, tmp_path: Path) -> None:
    furnish(both, tmp_path)
    steps: list[tuple[str, int, int | None]] = []
    report = fsck(both, deep=True, report_progress=lambda *step: steps.append(step))
    assert report.findings == () and report.is_clean
    assert (report.commits, report.versions) == (5, 4)
    assert report.files > 10 and report.bytes > len(LARGE) and steps[-1][1] == steps[-1][2]


def test_an_empty_lake_is_sound(both: Store) -> None:
    assert fsck(both).findings == ()
