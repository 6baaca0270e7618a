"""Files tell the slices of a change without being read: by their partition, or by bounds that are one value."""

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest

from runnel.lake.diff.changed_slices import count_slices, estimate_slices, find_changed_slices, is_aligned
from runnel.lake.diff.compaction_delta import compute_change
from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.model.slice_key import ChangedSlice
from runnel.names import TableName
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import delete_rows, files, overwrite

T, ORDERS = "ods.orders", TableName("ods", "orders")
DAYS = pa.schema([("id", pa.int64()), ("day", pa.date32())])


def here(store: Store) -> str:
    return store.state()[ORDERS].location


def days(*values: tuple[int, dt.date | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(DAYS.names, value, strict=True)) for value in values], DAYS)


def position_delete(store: Store) -> None:
    (file,) = files(store, T, day="b")
    delete_rows(store, T, {file.path: [0]})


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda store: add(store, T, rows((4, "a", 4), (5, "c", 5))), {"a": (1, 0), "c": (1, 0)}),
        (lambda store: overwrite(store, T, rows((9, "a", 9)), day="a"), {"a": (1, 1)}),
        (position_delete, {"b": (0, 0)}),
        (lambda store: None, {}),
    ],
)
def test_partitions_name_the_slices(store: Store, edit: Callable[[Store], object], expected: dict[str, tuple]) -> None:
    create(store, T, rows((1, "a", 1), (2, "b", 2), (3, "b", 3)), by="day")
    before = here(store)
    edit(store)
    found = find_changed_slices(store, ORDERS, before, here(store), ["`DAY`"])
    assert found is not None
    assert set(found) == {ChangedSlice((key,), *counts) for key, counts in expected.items()}


def test_bounds_of_one_value_name_the_slice_and_others_do_not(store: Store) -> None:
    one, two = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
    create(store, T, days((1, one)))
    first = here(store)
    add(store, T, days((2, two), (3, two)))
    add(store, T, days((4, None)))
    assert find_changed_slices(store, ORDERS, first, here(store), ["day"]) == (
        ChangedSlice((two,), 2),
        ChangedSlice((None,), 1),
    )
    add(store, T, days((5, None), (6, one)))
    assert find_changed_slices(store, ORDERS, first, here(store), ["day"]) is None
    assert find_changed_slices(store, ORDERS, first, first, ["nope"]) is None
    assert (count_slices(store, here(store), ["day"]), count_slices(store, first, ["day"])) == (3, 1)


def test_texts_whose_bounds_may_be_cut_are_not_believed(store: Store) -> None:
    create(store, T, rows((1, "a", 1)))
    before = here(store)
    add(store, T, rows((2, "x" * 15, 1)))
    assert find_changed_slices(store, ORDERS, before, here(store), ["day"]) == (ChangedSlice(("x" * 15,), 1),)
    add(store, T, rows((2, "x" * 16, 1)))
    assert find_changed_slices(store, ORDERS, before, here(store), ["day"]) is None


def test_several_columns_are_one_key(store: Store) -> None:
    create(store, T, rows((1, "a", 1)), by="day")
    before = here(store)
    add(store, T, rows((7, "b", 2)))
    assert find_changed_slices(store, ORDERS, before, here(store), ["day", "id"]) == (ChangedSlice(("b", 7), 1),)


def test_files_of_one_slice_each_are_aligned(store: Store) -> None:
    create(store, T, rows((1, "a", 1), (2, "b", 2)), by="day")
    assert is_aligned(store, here(store), ["DAY"])
    assert not is_aligned(store, here(store), ["day", "id"]) and not is_aligned(store, here(store), ["nope"])
    create(store, "ods.plain", rows((1, "a", 1)))
    assert not is_aligned(store, store.state()[TableName("ods", "plain")].location, ["day"])


def test_the_number_of_slices_is_estimated_by_bounds(store: Store) -> None:
    create(store, T, days((1, dt.date(2026, 1, 1)), (2, dt.date(2026, 1, 31))))
    assert estimate_slices(store, here(store), ["day"]) == 31
    assert estimate_slices(store, here(store), ["day", "id"]) is None
    assert count_slices(store, here(store), ["day"]) == 2
    create(store, "ods.early", days((1, dt.date(1970, 1, 1)), (2, dt.date(1970, 1, 5))))
    add(store, "ods.early", days((3, dt.date(1970, 1, 3)), (4, dt.date(1970, 1, 9))))
    assert estimate_slices(store, store.state()[TableName("ods", "early")].location, ["day"]) == 9


def test_what_was_only_compacted_is_no_change(store: Store) -> None:
    create(store, T, rows((1, "a", 1), (2, "b", 2)), by="day")
    for number in range(3, 8):
        add(store, T, rows((number, "a", 1)))
    before = here(store)
    assert compact(store, ORDERS)[0].commit
    assert (
        compute_file_delta(store, before, here(store)).removed
        and compute_change(store, ORDERS, before, here(store)).is_empty
    )
    assert compute_change(store, ORDERS, here(store), before).is_empty  # back, as after a revert
    for number in range(10, 16):
        add(store, T, rows((number, "b", 1)))
    assert find_changed_slices(store, ORDERS, before, here(store), ["day"]) == (ChangedSlice(("b",), 6),)
    assert compact(store, ORDERS)[0].commit
    found = find_changed_slices(store, ORDERS, before, here(store), ["day"])
    assert found is not None and {one.key for one in found} == {("b",)}
    assert sum(one.rows_added - one.rows_removed for one in found) == 6
