"""A glance tells what the lake tells, or nothing."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.sqlite_fast_path import SqliteBranchReader
from runnel.lake.store import Store
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from tests.lake.factories import create, rows

ORDERS = TableName("ods", "orders")
SEEN = ProcessedFile("data/a.csv", 3, 7, "aa", "aa:how", ("f1",))


def glance(store: Store, branch: str = "main") -> SqliteBranchReader | None:
    return SqliteBranchReader.open(store.db.url.render_as_string(hide_password=False), store.warehouse, branch)


@pytest.fixture
def filled(store: Store) -> Store:
    create(store, "ods.orders", rows((1, "d1", 5)))
    publish(store.db, CommitDraft("main", "read a file", "ada", (), processed_files=((ORDERS, SEEN),)))
    return store


def test_it_tells_what_the_lake_tells(filled: Store) -> None:
    from runnel.lake.flow_state import results
    from runnel.lake.history.branches import fork_branch

    version = filled.state()[ORDERS]
    known = TaskResult(ORDERS, "k", TableVersion(version.location, version.content), {}, {}, "r1", "main", "2026-01-02")
    results.record(filled.db, known)
    fork_branch(filled.db, "dev", filled.commit(), "ada")
    for branch in ("main", "dev"):  # what a branch has of a source may stand on the line that it was forked off
        found = glance(filled, branch)
        assert found is not None
        assert found.commit == filled.commit(branch).id
        assert found.heads == {ORDERS: TableVersion(version.location, version.content)}
        assert found.read_processed_files(ORDERS) == {"data/a.csv": SEEN}
        assert found.read_results([(ORDERS, "k"), (ORDERS, "other")]) == {(ORDERS, "k"): known}
        found.close()


def outside(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("update iceberg_tables set metadata_location = 'elsewhere' where catalog_name = 'main'")


def older(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("update runnel_schema set version_num = '0001'")


def moved(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("update runnel_lake set warehouse = '/elsewhere'")


def damaged(path: Path) -> None:
    path.write_bytes(b"no database")


UNCLEAR = {"another engine was here": outside, "older": older, "moved": moved, "damaged": damaged, "gone": Path.unlink}


@pytest.mark.parametrize("happens", UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_unclear_is_left_to_the_lake(filled: Store, happens: Callable[[Path], None], tmp_path: Path) -> None:
    filled.close()
    for path in (tmp_path / "lake").glob("catalog.db-*"):
        path.unlink()
    happens(tmp_path / "lake/catalog.db")
    assert glance(filled) is None


def test_other_databases_and_unknown_branches_are_left_to_the_lake(filled: Store) -> None:
    assert SqliteBranchReader.open("postgresql://u@h/db", filled.warehouse, "main") is None
    assert glance(filled, "nope") is None
