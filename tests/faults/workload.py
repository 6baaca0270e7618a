"""What a killed process was doing: every kind of write, each commit acknowledged to a file once it is known.

Two tables move together in every pair commit, so that a torn read or publish shows.
"""

import os
import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from runnel.errors import Conflict, Mistake, RunnelError, VersionConflict
from runnel.lake.files.put import put_files
from runnel.lake.flow_state import results
from runnel.lake.history import branches, tags
from runnel.lake.history.commits import Commit, CommitChange, read_sequence
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.leases import slots
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.merge import merge, revert
from runnel.lake.publish import CommitDraft, publish_with_retry
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from tests.lake.factories import add, create, rows

LEFT, RIGHT = TableName.parse("ods.left"), TableName.parse("ods.right")
PAGES, PEOPLE = TableName.parse("raw.pages"), TableName.parse("ods.people")


class Place:
    """Where a workload works: a lake, a file of acknowledged commits, and a folder of files to put."""

    def __init__(self, catalog: str, folder: Path) -> None:
        self.catalog = catalog
        self.folder = folder
        self.acks = folder / "acks"

    def open(self) -> Store:
        return Store.open(self.catalog, f"{self.folder}/warehouse")

    def acknowledge(self, commit: Commit | str | None) -> None:
        """Note a commit that the writer was told of, durably, as a caller would."""
        if commit is None:
            return
        with self.acks.open("a") as acks:
            acks.write(f"{commit if isinstance(commit, str) else commit.id}\n")
            acks.flush()
            os.fsync(acks.fileno())

    def acknowledged(self) -> list[str]:
        return self.acks.read_text().split() if self.acks.exists() else []


def prepare(place: Place) -> None:
    """Make the lake that the workloads work on."""
    place.folder.mkdir(parents=True, exist_ok=True)
    store = place.open()
    place.acknowledge(create(store, str(LEFT), rows((0, "d0", 1)), by="day"))
    place.acknowledge(create(store, str(RIGHT), rows((0, "d0", 1))))
    place.acknowledge(create(store, str(PEOPLE), rows((0, "d0", 1), (1, "d1", 1))))
    source = place.folder / "pages"
    source.mkdir(exist_ok=True)
    (source / "small.txt").write_text("small")
    (source / "large.bin").write_bytes(os.urandom(2 * 2**20))
    place.acknowledge(put_files(store, PAGES, [source], branch="main").commit)


def pair(store: Store, branch: str = "main") -> Commit:
    """Append one row to each of two tables, in one commit."""
    number = random.getrandbits(40)
    data = rows((number, f"d{number % 5}", 1))

    with acquire_pin(store.db, "write") as pin:

        def draft() -> CommitDraft:
            state = store.state(branch)
            changes = tuple(_appended(store, name, state[name].location, data) for name in (LEFT, RIGHT))
            return CommitDraft(branch, f"pair {number}", "crew", changes, pin=pin)

        return publish_with_retry(store.db, draft)


def _appended(store: Store, name: TableName, location: str, data: pa.Table) -> CommitChange:
    files = parquet_writer.write_rows(store, table_metadata.load_metadata(store, location), data.to_batches())
    return CommitChange(name, location, snapshots.stage_version(store, location, snapshots.VersionEdit(added=files)))


def branch_and_merge(store: Store) -> Commit | None:
    """Fork, write on both sides, merge back, delete the branch."""
    name = f"b{uuid.uuid4().hex[:8]}"
    branches.fork_branch(store.db, name, store.commit("main"), "crew")
    pair(store, name)
    pair(store)
    try:
        return merge.merge_branch(store, name, "main").commit
    finally:
        branches.delete_branch(store.db, name)


def undo(store: Store) -> Commit | None:
    """Revert a pair commit; what others did since may make that a conflict."""
    made = pair(store)
    try:
        return revert.revert_commit(store, made.id, "main")
    except (Conflict, VersionConflict):
        return made


def put_pages(store: Store, folder: Path) -> Commit | None:
    source = folder / f"put-{uuid.uuid4().hex[:8]}"
    source.mkdir()
    (source / f"{uuid.uuid4().hex}.txt").write_text("page")
    (source / f"{uuid.uuid4().hex}.bin").write_bytes(os.urandom(1_200_000))
    return put_files(store, PAGES, [source], branch="main").commit


def tidy(store: Store) -> str | None:
    for made in compact(store, LEFT, branch="main"):
        return made.commit
    return None


def sweep(store: Store) -> None:
    gc(store, Retention(commits="0 seconds", grace="0 seconds"))


def forget_a_row(store: Store) -> Commit | None:
    """Add a row and erase it from all versions; the pair's tables are left alone, or they would differ meanwhile."""
    number = random.getrandbits(40)
    made = add(store, str(PEOPLE), rows((number, "d1", 1)))
    erase(store, PEOPLE, f"id = {number}")
    return made


def compute_in_vain(store: Store) -> None:
    """Make a version and record it as a result, as a run does that fails afterwards: no commit holds it."""
    number = random.getrandbits(40)
    with (
        acquire_pin(store.db, "write"),
        suppress(VersionConflict),
    ):  # as a run does: what is erased meanwhile is not recorded
        planned = store.db.read(read_sequence)
        state = store.state()
        made = _appended(store, PEOPLE, state[PEOPLE].location, rows((number, "d1", 1))).after
        assert made is not None
        inputs = {LEFT: TableVersion(state[LEFT].location, state[LEFT].content)}
        now = store.db.read(store.db.now)
        results.record(
            store.db,
            TaskResult(PEOPLE, f"k{number}", TableVersion(made, f"rows:{number}"), {}, inputs, "crew", "main", now),
            planned_sequence=planned,
        )


def work_in_a_slot(store: Store) -> None:
    """Take a slot, write a version into it and leave it again, without publishing."""
    slot = slots.acquire_slot(store.db, f"w{os.getpid()}", 1, store.commit("main"), store.state())
    at = slots.read_location(store.db, slot, LEFT)
    assert at is not None
    slots.place_tables(store.db, slot, {LEFT: _appended(store, LEFT, at, rows((1, "d1", 1))).after, RIGHT: None})
    slots.release(store.db, slot)


def label(store: Store) -> None:
    tags.create_tag(store, f"t{uuid.uuid4().hex[:8]}", "main")


def jobs(place: Place) -> dict[str, Callable[[Store], Commit | str | None]]:
    """Return every kind of work by name."""
    return {
        "pair": pair,
        "merge": branch_and_merge,
        "undo": undo,
        "put": lambda store: put_pages(store, place.folder),
        "compact": tidy,
        "tag": lambda store: label(store),
        "gc": lambda store: sweep(store),
        "erase": lambda store: forget_a_row(store),
        "adopt": change_outside,
        "result": lambda store: compute_in_vain(store),
        "slot": lambda store: work_in_a_slot(store),
    }


def change_outside(store: Store) -> Commit | None:
    """Read a branch that another engine has written to, which adopts its change."""
    return store.commit("main")


def ready(place: Place, name: str) -> None:
    """Prepare what one kind of work needs before it is started."""
    store = place.open()
    if name == "adopt":
        uri = store.db.url.render_as_string(hide_password=False)
        SqlCatalog("main", uri=uri, warehouse=store.warehouse).load_table(str(LEFT)).append(rows((7, "d1", 1)))
        SqlCatalog("main", uri=uri, warehouse=store.warehouse).load_table(str(RIGHT)).append(rows((7, "d1", 1)))
    if name in ("compact", "gc"):
        for _ in range(6):  # one more than there are days, so that two files of one day can be put together
            place.acknowledge(pair(store))
    if name == "gc":  # it has something to list and to delete: old versions, and a folder without files
        Path(store.warehouse, "ods", "empty").mkdir()
    store.close()


def once(place: Place, name: str) -> None:
    """Do one kind of work once, and acknowledge it."""
    place.acknowledge(jobs(place)[name](place.open()))


def forever(place: Place, seed: int) -> None:
    """Do work of random kinds until killed."""
    random.seed(seed)
    store, kinds = place.open(), jobs(place)
    names, weights = list(kinds), [8, 2, 2, 2, 1, 1, 1, 1, 0, 1, 1]
    while True:
        try:
            place.acknowledge(kinds[random.choices(names, weights)[0]](store))
        except (Conflict, VersionConflict, Mistake) as error:
            _allow(error)


def _allow(error: RunnelError) -> None:
    """Let pass what concurrent work may rightly refuse; anything else is a failure."""
    if error.code not in (
        "MERGE_CONFLICT",
        "REVERT_CONFLICT",
        "PUBLISH_MOVED",
        "FILES_CONFLICT",
        "REF_EXPIRED",
        "REVERT_EXPIRED",
        "GC_RUNNING",
    ):
        raise error
