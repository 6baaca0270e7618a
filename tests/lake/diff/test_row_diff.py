"""Diff at its third depth: rows by key, or as multisets."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from runnel.errors import Mistake
from runnel.lake.diff.row_diff import RowDiff, diff_rows
from runnel.lake.scan import row_pieces
from runnel.lake.store import Store
from runnel.lake.work_runner import WorkContext, run_in_process
from runnel.model.work_place import EXECUTORS, PROCESS
from runnel.names import TableName
from tests.lake.factories import add, create, rows
from tests.lake.pickling_runner import PicklingRunner
from tests.lake.table_changes import delete_rows, evolve, files, overwrite, properties

T = "ods.orders"
NAN = float("nan")
Comparing = Callable[..., RowDiff]


@pytest.fixture(params=["process", "units"], autouse=True)
def work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WorkContext:
    """Compare rows in this process, or by buckets as on executors."""
    monkeypatch.setattr(row_pieces, "BUCKET_BYTES", 1000)
    return WorkContext(PicklingRunner() if request.param == "units" else run_in_process)


@pytest.fixture
def rows_of(store: Store, work: WorkContext) -> Comparing:
    """Return what compares the rows at a ref with those of main."""

    def compare(a: str, key: list[str] | None = None, limit: int = 100) -> RowDiff:
        return diff_rows(store, a, "main", TableName.parse(T), key=key, limit=limit, work=work)

    return compare


def told(found: RowDiff) -> tuple[list[Any], list[Any], list[Any]]:
    changed = [(row.key, {cell.column: (cell.before, cell.after) for cell in row.cells}) for row in found.changed]
    return list(found.added), list(found.removed), changed


def test_by_key(store: Store, rows_of: Comparing) -> None:
    before = create(store, T, rows((1, "d1", 5), (2, "d1", 6), (3, "d2", 7)))
    overwrite(store, T, rows((1, "d1", 5), (2, "d9", 99), (4, "d4", 8)))
    expected = ([(4, "d4", 8)], [(3, "d2", 7)], [((2,), {"day": ("d1", "d9"), "amount": (6, 99)})])
    assert told(rows_of(before.id, ["id"])) == expected
    evolve(store, T, properties(runnel__key="id"))
    assert told(rows_of(before.id)) == expected
    assert rows_of(before.id).columns == ("id", "day", "amount")


def test_without_a_key_rows_are_counted(store: Store, rows_of: Comparing) -> None:
    before = create(store, T, rows((1, "d1", 5), (1, "d1", 5), (2, "d2", 6)))
    overwrite(store, T, rows((1, "d1", 5), (2, "d2", 6), (2, "d2", 6), (2, "d2", 6)))
    assert told(rows_of(before.id)) == ([(2, "d2", 6)] * 2, [(1, "d1", 5)], [])
    found = rows_of(before.id, limit=1)
    assert (len(found.added), found.rows_added, found.is_complete) == (1, 2, False)


TYPES = pa.schema(
    [
        ("k", pa.float64()),
        ("s", pa.struct([("a", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])),
        ("l", pa.list_(pa.float64())),
        ("t", pa.timestamp("us", "UTC")),
    ]
)


def typed(k: float | None, m: list[tuple[str, int]] | None, numbers: list[float | None] | None) -> dict[str, Any]:
    return {"k": k, "s": None if m is None else {"a": 1, "m": m}, "l": numbers, "t": 0}


def test_nulls_nans_and_nested_values(store: Store, rows_of: Comparing) -> None:
    old = [typed(None, [("a", 1), ("b", 2)], [NAN]), typed(NAN, None, None), typed(1.0, [], [1.0, None])]
    new = [typed(None, [("b", 2), ("a", 1)], [NAN]), typed(NAN, [("a", 1)], None), typed(1.0, [], [1.0, NAN])]
    before = create(store, T, pa.Table.from_pylist(old, TYPES))
    overwrite(store, T, pa.Table.from_pylist(new, TYPES))
    found = rows_of(before.id, ["k"])
    assert (found.rows_added, found.rows_removed, found.rows_changed) == (0, 0, 2)
    by_key = {str(row.key[0]): {cell.column for cell in row.cells} for row in found.changed}
    assert by_key == {"nan": {"s"}, "1.0": {"l"}}
    bare = rows_of(before.id, [])
    assert (bare.rows_added, bare.rows_removed) == (2, 2)


def test_deletes_of_another_engine(store: Store, rows_of: Comparing) -> None:
    before = create(store, T, rows((1, "d1", 5), (2, "d1", 6)))
    delete_rows(store, T, {files(store, T)[0].path: [0]})
    add(store, T, rows((1, "d1", 50)))
    assert told(rows_of(before.id, ["id"])) == ([], [], [((1,), {"amount": (5, 50)})])


def test_a_table_that_is_new(store: Store, rows_of: Comparing, work: WorkContext) -> None:
    before = store.commit("main")
    create(store, T, rows((1, "d1", 5)))
    assert told(rows_of(before.id, ["id"])) == ([(1, "d1", 5)], [], [])
    gone = diff_rows(store, "main", before.id, TableName.parse(T), key=["id"], work=work)
    assert told(gone) == ([], [(1, "d1", 5)], [])
    same = diff_rows(store, "main", "main", TableName.parse(T), key=["id"], work=work)
    assert told(same) == ([], [], []) and same.is_complete


WRONG = {
    "no such column": (["iid"], "DIFF_KEY_UNKNOWN", "close: `id`"),
    "several rows": (["day"], "DIFF_KEY_NOT_UNIQUE", "day = 'd1'"),
}


@pytest.mark.parametrize(("key", "code", "text"), WRONG.values(), ids=WRONG)
def test_keys_that_do_not_fit(store: Store, rows_of: Comparing, key: list[str], code: str, text: str) -> None:
    before = create(store, T, rows((1, "d1", 5), (2, "d1", 6)))
    overwrite(store, T, rows((3, "d1", 5)))
    with pytest.raises(Mistake) as caught:
        rows_of(before.id, key)
    assert caught.value.code == code and text in caught.value.what


@pytest.mark.parametrize("key", [None, ["id"], ["id", "day"]])
def test_both_places_find_the_same_rows_in_the_same_order(store: Store, key: list[str] | None) -> None:
    """Generated versions, of which a change keeps, drops, changes and repeats rows; the limit cuts each list."""
    chance = random.Random(7)
    old = [(number, f"d{number % 7}", chance.randrange(5)) for number in range(300)]
    before = create(store, T, rows(*old))
    new = [(row[0], row[1], row[2] + chance.randrange(2)) for row in old if chance.random() < 0.8]
    more = [(number, "new", 1) for number in range(300, 340)]
    overwrite(store, T, rows(*new, *more, *(more[:5] if key is None else ())))
    runner = PicklingRunner()
    diffs = [
        diff_rows(store, before.id, "main", TableName.parse(T), key=key, limit=limit, work=WorkContext(choose_runner))
        for limit in (20, 1000)
        for choose_runner in (run_in_process, runner)
    ]
    assert told(diffs[0]) == told(diffs[1])
    assert told(diffs[2]) == told(diffs[3])
    counts = {(found.rows_added, found.rows_removed, found.rows_changed) for found in diffs}
    assert len(counts) == 1
    assert diffs[3].is_complete
    assert [found.place.name for found in diffs if found.place] == [PROCESS, EXECUTORS, PROCESS, EXECUTORS]
    assert runner.shuffled_buckets > 8
