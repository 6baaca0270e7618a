"""Loads at the same time: each lands whole, whoever creates the table or changes its columns first."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from runnel.connect.load import load as module
from runnel.connect.load.file_loader import prepare_load
from runnel.connect.load.load import LoadOptions, LoadResult, load_files
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.store import Store
from runnel.names import TableName
from tests.connect.conftest import Loading, Writing
from tests.lake.factories import read

ORDERS = TableName.parse("ods.orders")


@pytest.fixture
def together(new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[LoadResult]]:
    """Return a function that loads files at once: each is written before the first of them is published."""

    def work(*names: str, **options: Any) -> list[LoadResult]:
        barrier, waited = Barrier(len(names)), set[str]()

        def meeting(store: Store, request: Any, *rest: Any) -> Any:
            brought = prepare_load(store, request, *rest)
            if request.files_label not in waited:  # only the first attempt waits for the others
                waited.add(request.files_label)
                barrier.wait(60)
            return brought

        monkeypatch.setattr(module, "prepare_load", meeting)

        def one(name: str) -> LoadResult:
            store = new_store()
            try:
                return load_files(store, ORDERS, [name], LoadOptions(**options))
            finally:
                store.close()

        with ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(one, names))

    return work


def test_one_creates_and_the_others_append(store: Store, data: Writing, together):
    names = [data(f"{n}.csv", f"id,v{n % 2}\n{n},x\n") for n in range(4)]
    loaded = together(*names)
    assert sum(done.created for done in loaded) == 1
    assert sorted(row[0] for row in read(store, "ods.orders")) == [0, 1, 2, 3]


def test_new_columns_of_both_survive(store: Store, data: Writing, loading: Loading, together):
    loading(data("first.csv", "id\n0\n"))
    together(data("a.csv", "id,a\n1,x\n"), data("b.csv", "id,b\n2,y\n"))
    version = store.state()[ORDERS].location
    names = [field.name for field in load_metadata(store, version).schema().fields]
    rows = [dict(zip(names, row, strict=True)) for row in read(store, "ods.orders")]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 0, "a": None, "b": None},
        {"id": 1, "a": "x", "b": None},
        {"id": 2, "a": None, "b": "y"},
    ]


def test_two_replacements_leave_the_later_one(store: Store, data: Writing, loading: Loading, together):
    loading(data("first.csv", "id\n0\n"))
    together(data("a.csv", "id\n1\n"), data("b.csv", "id\n2\n"), replace=True)
    assert read(store, "ods.orders") in ([(1,)], [(2,)])


def test_a_file_that_changes_meanwhile_is_noticed(store: Store, data: Writing, loading: Loading):
    data("a.csv", "id\n1\n")
    first_steps = ("checking", "inspecting on executors")
    with pytest.raises(module.Mistake, match="changed while it was being loaded"):
        loading("a.csv", progress=lambda what, *_: data("a.csv", "id\n1\n2\n") if what in first_steps else None)
    assert store.state() == {}
