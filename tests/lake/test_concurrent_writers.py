"""Many processes publish to overlapping tables: nothing is lost, nothing comes twice, the order is one."""

from itertools import pairwise

import pytest

from runnel.lake.history.commits import read_history
from runnel.lake.store import Store
from tests.faults.process_helpers import start
from tests.lake.factories import add, create, read, rows

PROCESSES, COMMITS = 8, 25


def publish_many(catalog: str, warehouse: str, worker: int) -> None:
    store = Store.open(catalog, warehouse)
    for number in range(COMMITS):
        table = f"ods.t{(worker + number) % 3}"
        add(store, table, rows((worker * 1000 + number, f"w{worker}", 1)))


@pytest.mark.crash
def test_eight_processes_publish_200_commits(catalog: str, tmp_path) -> None:
    warehouse = f"{tmp_path}/lake/warehouse"
    store = Store.open(catalog, warehouse)
    for number in range(3):
        create(store, f"ods.t{number}", rows((-number, "start", 0)))
    before = store.commit("main").seq
    workers = [start(publish_many, catalog, warehouse, worker) for worker in range(PROCESSES)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    head = store.commit("main")
    found = store.db.read(lambda connection: read_history(connection, head, limit=PROCESSES * COMMITS))
    assert [commit.seq for commit in found] == list(range(before + 200, before, -1))
    assert all(newer.parent == older.id for newer, older in pairwise(found))
    ids = [row[0] for number in range(3) for row in read(store, f"ods.t{number}") if row[0] > 0 or row[1] != "start"]
    wanted = {worker * 1000 + number for worker in range(PROCESSES) for number in range(COMMITS)}
    assert sorted(ids) == sorted(wanted)
