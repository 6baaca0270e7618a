"""Results are known by their key on every branch, and what sources gave by the version of the lake."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.flow_state import results, runs
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import has_ingested, read_processed_files
from runnel.lake.history import branches
from runnel.lake.history.commits import CommitChange
from runnel.lake.leases import slots
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from tests.lake.factories import create, rows, slots_in_use

DAY, ORDERS = TableName("dws", "day"), TableName("ods", "orders")


def result(key: str = "k1", location: str = "l1", **values: Any) -> TaskResult:
    known: dict[str, Any] = {
        "table": DAY,
        "key": key,
        "head": TableVersion(location, "rows:1"),
        "code": {"digest": "abc", "parts": [1, 2]},
        "inputs": {ORDERS: TableVersion("o1", "files:1")},
        "run": "r1",
        "branch": "main",
        "made_at": "2026-01-01T00:00:00.000000Z",
        "rows": 3,
        "columns": {ORDERS: ("id", "amount")},
    }
    return TaskResult(**{**known, **values})


def test_a_result_is_found_as_it_was_recorded(both: Store) -> None:
    first, second = result(quarantine=TableVersion("q1", "rows:q")), result("k2", "l2", rows=None)
    for one in (first, second, first):
        results.record(both.db, one)
    found = results.find_by_keys(both.db, [(DAY, "k1"), (DAY, "k2"), (DAY, "k3"), (ORDERS, "k1")])
    assert found == {(DAY, "k1"): first, (DAY, "k2"): second}
    assert results.find_by_keys(both.db, []) == {}


def test_many_keys_take_few_queries(both: Store) -> None:
    for number in range(3):
        results.record(both.db, result(f"k{number * 600}"))
    found = results.find_by_keys(both.db, [(DAY, f"k{number}") for number in range(1500)])
    assert {key for _, key in found} == {"k0", "k600", "k1200"}


def test_the_newest_result_of_a_content_counts(both: Store) -> None:
    results.record(both.db, result("k1", "l1"))
    results.record(both.db, result("k2", "l2", made_at="2026-01-02T00:00:00.000000Z"))
    found = results.find_by_content(both.db, DAY, "rows:1")
    assert found is not None and found.key == "k2"
    assert (
        results.find_by_content(both.db, DAY, "rows:2") is None
        and results.find_by_content(both.db, ORDERS, "rows:1") is None
    )
    results.record(both.db, replace(found, head=TableVersion("l3", "rows:3")))
    assert results.find_by_content(both.db, DAY, "rows:1") == result()


def test_a_result_that_was_forgotten_is_not_used(both: Store) -> None:
    results.record(both.db, result())
    assert results.mark_used(both.db, result())
    assert not results.mark_used(both.db, result(location="elsewhere"))
    results.delete(both.db, DAY, result().key)
    assert not results.mark_used(both.db, result()) and results.find_by_content(both.db, DAY, "rows:1") is None


def one(path: str, identity: str = "i1", **values: Any) -> ProcessedFile:
    return ProcessedFile(path, 10, 1_700_000_000_000_000_001, "f" * 64, identity, (f"{path}.parquet",), **values)


def gave(store: Store, *given: ProcessedFile, branch: str = "main") -> None:
    version = store.state(branch)[ORDERS]
    change = CommitChange(ORDERS, version.location, version.location, f"files:{len(given)}")
    publish(
        store.db,
        CommitDraft(
            branch, "ingest", "ada", (change,), kind="run", processed_files=tuple((ORDERS, each) for each in given)
        ),
    )


def test_what_a_source_gave_belongs_to_a_version(both: Store) -> None:
    start = create(both, "ods.orders", rows((1, "d1", 5)))
    gave(both, one("a"), one("b"))
    branches.fork_branch(both.db, "dev", both.commit("main"), "ada")
    gave(both, one("a", "i2"), one("c"), branch="dev")
    gave(both, one("b", is_removed=True))
    assert read_processed_files(both.db, both.commit("main"), ORDERS) == {"a": one("a")}
    assert read_processed_files(both.db, both.commit("dev"), ORDERS) == {
        "a": one("a", "i2"),
        "b": one("b"),
        "c": one("c"),
    }
    assert read_processed_files(both.db, both.commit("main~1"), ORDERS) == {"a": one("a"), "b": one("b")}
    assert read_processed_files(both.db, start, ORDERS) == {} == read_processed_files(both.db, both.commit("main"), DAY)
    assert both.db.read(lambda connection: has_ingested(connection, both.commit("dev"), ORDERS))
    assert not both.db.read(lambda connection: has_ingested(connection, start, ORDERS))


def test_a_table_that_was_dropped_has_nothing_of_its_source(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    gave(both, one("a"))
    at = both.state()[ORDERS].location
    publish(both.db, CommitDraft("main", "drop", "ada", (CommitChange(ORDERS, at, None),)))
    assert read_processed_files(both.db, both.commit("main"), ORDERS) == {}


def test_a_slot_that_another_took_is_out_of_reach(both: Store) -> None:
    commit = create(both, "ods.orders", rows((1, "d1", 5)))
    state = both.state()
    late = slots.acquire_slot(both.db, "w", 1, commit, state)
    now = slots.acquire_slot(both.db, "w", 1, commit, state, layers=["dws", "ods"])
    for touch in (
        lambda: slots.list_changes(both.db, late),
        lambda: slots.place_tables(both.db, late, {ORDERS: None}),
        lambda: slots.read_location(both.db, late, ORDERS),
        lambda: publish(both.db, CommitDraft("main", "late", "ada", (), slot=late.lease)),
    ):
        with pytest.raises(RunnelError, match="PUBLISH_LEASE_LOST"):
            touch()
    slots.release(both.db, late)
    assert slots.read_location(both.db, now, ORDERS) == state[ORDERS].location
    assert publish(both.db, CommitDraft("main", "in time", "ada", (), slot=now.lease)).id
    slots.release(both.db, now)
    assert slots_in_use(both) == []


def test_tables_are_placed_in_a_slot(both: Store) -> None:
    commit = create(both, "ods.orders", rows((1, "d1", 5)))
    slot = slots.acquire_slot(both.db, "w", 1, commit, both.state())
    for _ in range(2):
        slots.place_tables(both.db, slot, {DAY: "l1", ORDERS: None})
    assert (slots.read_location(both.db, slot, DAY), slots.read_location(both.db, slot, ORDERS)) == ("l1", None)
    slots.place_tables(both.db, slot, {DAY: "l2"})
    before = both.state()[ORDERS].location
    assert slots.list_changes(both.db, slot) == (CommitChange(DAY, None, "l2"), CommitChange(ORDERS, before, None))
    layers = sa.select(schema.iceberg_namespaces.c.namespace).where(
        schema.iceberg_namespaces.c.catalog_name == slot.name
    )
    assert both.db.read(lambda connection: set(connection.execute(layers).scalars())) == {"dws", "ods"}
    slots.release(both.db, slot)


def test_runs_are_listed_newest_first_and_a_lost_one_is_told(both: Store) -> None:
    commit = create(both, "ods.orders", rows((1, "d1", 5)))
    with acquire_pin(both.db, "write") as pin:
        runs.start(both.db, "r-aa1", "main", "ada", {"selection": ["+x"]}, leases=runs.RunLeases(pin))
        runs.start(both.db, "r-ab2", "main", "ada", {}, leases=runs.RunLeases(slot=("run_w_1", "nobody")))
        slot = slots.acquire_slot(both.db, "w", 1, commit, both.state())
        runs.start(both.db, "r-ab3", "dev", "eve", {})
        runs.start(both.db, "r-ab3", "dev", "eve", {}, leases=runs.RunLeases(slot=slot.lease))
        listed = both.db.read(lambda connection: runs.list_runs(connection, 10))
        assert [(found.id, found.state) for found in listed] == [
            ("r-ab3", "running"),
            ("r-ab2", "lost"),
            ("r-aa1", "running"),
        ]
        assert listed[2].detail == {"selection": ["+x"]}
        runs.finish(both.db, "r-ab3", "succeeded", commit.id, {"steps": []})
    slots.release(both.db, slot)
    found = both.db.read(lambda connection: runs.find_run(connection, "r-ab3"))
    assert (found.state, found.commit, found.detail) == ("succeeded", commit.id, {"steps": []}) and found.ended_at
    assert both.db.read(lambda connection: runs.find_run(connection, "r-aa")).state == "lost"
    assert [found.id for found in both.db.read(lambda connection: runs.list_runs(connection, 1))] == ["r-ab3"]


BAD = {"ambiguous": ("r-a", "RUN_AMBIGUOUS"), "unknown": ("r-ax1", "close: `r-aa1`"), "empty": ("", "RUN_UNKNOWN")}


@pytest.mark.parametrize(("text", "told"), BAD.values(), ids=BAD)
def test_a_run_that_is_none(store: Store, text: str, told: str) -> None:
    for name in ("r-aa1", "r-ab2"):
        runs.start(store.db, name, "main", "ada", {})
    with pytest.raises(Mistake, match=told):
        store.db.read(lambda connection: runs.find_run(connection, text))
