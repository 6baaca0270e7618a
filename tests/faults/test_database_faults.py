"""A database that is locked, restarted, or loses the acknowledgement of a commit: nothing is lost or done twice."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.errors import Unreachable
from runnel.lake.flow_state import results, runs
from runnel.lake.flow_state.inbox_reader import InboxReader
from runnel.lake.flow_state.inbox_writer import PushReceipt, PushRequest, write_events
from runnel.lake.history import branches, tags
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.leases import slots
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from tests.faults.tcp_proxy import Proxy
from tests.lake.factories import add, create, read, rows
from tests.servers.postgres import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def lake(port: int, name: str, tmp_path: Path, server: Server) -> Store:
    engine = sa.create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'create database "{name}"'))
    engine.dispose()
    return Store.open(f"postgresql://runnel@127.0.0.1:{port}/{name}", f"{tmp_path}/warehouse")


def test_a_lock_of_another_process_is_waited_for(store: Store) -> None:
    create(store, "ods.a", rows((1, "d1", 1)))
    other = sqlite3.connect(str(store.db.url.database), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(1.0, lambda: other.execute("COMMIT")).start()
    add(store, "ods.a", rows((2, "d2", 1)))
    assert len(read(store, "ods.a")) == 2


@pytest.mark.postgres
@pytest.mark.parametrize("fault", ["cut_after_commit", "delay_commit"])
def test_a_commit_whose_acknowledgement_is_lost_counts_once(
    server: Server, proxy: Proxy, tmp_path: Path, fault: str
) -> None:
    store = lake(proxy.port, f"lost_{fault}", tmp_path, server)
    create(store, "ods.a", rows((1, "d1", 1)))
    before = store.commit("main")
    table, version = next(iter(store.state("main").items()))
    files = parquet_writer.write_rows(
        store, table_metadata.load_metadata(store, version.location), rows((2, "d2", 1)).to_batches()
    )
    staged = snapshots.stage_version(store, version.location, snapshots.VersionEdit(added=files))
    setattr(proxy, fault, True)
    made = publish(store.db, CommitDraft("main", "more", "ada", (CommitChange(table, version.location, staged),)))
    assert proxy.cuts == 1
    head = store.commit("main")
    assert head.id == made.id and head.parent == before.id and head.seq == before.seq + 1
    assert len(read(store, "ods.a")) == 2
    store.close()


def delete_branch(store: Store) -> None:
    branches.delete_branch(store.db, "dev")


def delete_tag(store: Store) -> None:
    assert tags.delete_tag(store, "v1").name == "v1"


def record_result(store: Store) -> None:
    results.record(store.db, TaskResult(*RESULT))


def take_slot(store: Store) -> None:
    slot = slots.acquire_slot(store.db, "w", 1, store.commit(), store.state())
    slots.place_tables(store.db, slot, {TableName("dws", "x"): "l1"})
    assert slots.read_location(store.db, slot, TableName("dws", "x")) == "l1"


def push_events(store: Store) -> None:
    parcel = PushRequest("ods.events", ['{"id": 1}', '{"id": 2}'])
    assert write_events(store.db, [parcel, parcel]) == [PushReceipt(2, 0), PushReceipt(2, 0)]
    assert InboxReader(store.db).read_level(TableName("ods", "events")).last == 4


def start_run(store: Store) -> None:
    runs.start(store.db, "r1", "main", "ada", {})
    assert store.db.read(lambda connection: runs.find_run(connection, "r1")).id == "r1"


RESULT = (
    TableName("dws", "x"),
    "k",
    TableVersion("l", "rows:1"),
    {},
    {},
    "r1",
    "main",
    "2026-01-01T00:00:00.000000Z",
)
WRITES = {
    "delete a branch": delete_branch,
    "delete a tag": delete_tag,
    "record a result": record_result,
    "take a slot": take_slot,
    "start a run": start_run,
    "push events": push_events,
}


@pytest.mark.postgres
@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_acknowledgement_is_lost_is_done_once(
    server: Server, proxy: Proxy, tmp_path: Path, name: str
) -> None:
    store = lake(proxy.port, f"once_{name.replace(' ', '_')}", tmp_path, server)
    create(store, "ods.a", rows((1, "d1", 1)))
    branches.fork_branch(store.db, "dev", store.commit("main"), "ada")
    tags.create_tag(store, "v1")
    proxy.cut_after_commit = True
    WRITES[name](store)
    assert proxy.cuts == 1
    store.close()


@pytest.mark.postgres
def test_a_restart_in_the_middle_is_survived(server: Server, tmp_path: Path) -> None:
    store = lake(server.port, "restarted", tmp_path, server)
    create(store, "ods.a", rows((0, "d0", 1)))
    done = threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            try:
                add(store, "ods.a", rows((number, "d1", 1)))
            except Exception as error:
                failures.append(error)
                return
        written.append(number)

    written: list[int] = []
    worker = threading.Thread(target=write)
    worker.start()
    for _ in range(2):
        seen = store.commit("main").seq
        server.stop()
        server.start()
        deadline = time.monotonic() + 60
        while store.commit("main").seq <= seen + 2 and not failures and time.monotonic() < deadline:
            pass
    done.set()
    worker.join()
    assert not failures, failures
    assert [row[0] for row in sorted(read(store, "ods.a"))] == list(range(written[0] + 1))
    store.close()


def test_a_database_that_is_down_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        Store.open("postgresql://runnel:secret@127.0.0.1:1/none", f"{tmp_path}/w")
    assert caught.value.exit_code == 3 and "secret" not in str(caught.value)
