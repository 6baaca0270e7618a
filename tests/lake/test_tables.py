"""Versions of tables in memory: those that were used last, and of a table that changes all the time only some."""

import pytest

from runnel.lake import tables
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import add, create, rows


def test_a_busy_table_leaves_room_for_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_VERSIONS", 3)
    tables.forget()
    create(store, "ods.quiet", rows((1, "a", 1)))
    create(store, "ods.busy", rows((1, "a", 1)))
    first = store.state("main")[TableName("ods", "busy")].location
    for number in range(2, 8):
        add(store, "ods.busy", rows((number, "a", 1)))
    quiet, busy = (store.state("main")[TableName("ods", name)].location for name in ("quiet", "busy"))
    assert quiet in tables._cache and busy in tables._cache and first not in tables._cache
    assert sorted(map(len, tables._versions.values())) == [2, 3]
    snapshot = tables.load(store, first).current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.summary["total-records"] == "1"


def test_the_least_used_goes_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CACHED", 4)
    tables.forget()
    for name in ("a", "b", "c", "d"):
        create(store, f"ods.{name}", rows((1, "x", 1)))
    state = store.state("main")
    for name in ("a", "b", "c", "d"):
        tables.load(store, state[TableName("ods", name)].location)
    assert len(tables._cache) == 4 == sum(map(len, tables._versions.values()))
    assert list(tables._cache) == [state[TableName("ods", name)].location for name in ("a", "b", "c", "d")]
