"""Diff at its first two depths: which tables, which columns, how many rows."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import ListType, LongType, StringType, TimestamptzType

from runnel.errors import Mistake
from runnel.lake.diff import row_delta
from runnel.lake.diff.lake_diff import TableDiff, diff_commits
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.merge.merge import merge_branch
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import (
    branch,
    columns,
    compact,
    delete_rows,
    drop,
    equality_delete,
    evolve,
    files,
    overwrite,
    partitions,
    properties,
)

T = "ods.orders"
START = ((1, "d1", 5), (2, "d1", 6), (3, "d2", 7))
Act = Callable[[Store], object]


def one(store: Store, a: str, b: str) -> TableDiff | None:
    found = diff_commits(store, a, b).tables
    assert len(found) <= 1
    return found[0] if found else None


def remove(*positions: int, day: str = "d1") -> Act:
    return lambda store: delete_rows(store, T, {files(store, T, day=day)[0].path: positions})


def append(*values: tuple[int, str, int]) -> Act:
    return lambda store: add(store, T, rows(*values))


def in_turn(*acts: Act) -> Act:
    return lambda store: [act(store) for act in acts]


def replace(day: str, *values: tuple[int, str, int]) -> Act:
    return lambda store: overwrite(store, T, rows(*values), day=day)


COUNTS: dict[str, tuple[Act, tuple[int, int] | None]] = {
    "nothing": (lambda store: None, None),
    "compacted": (lambda store: compact(store, T, day="d1"), None),
    "appended": (append((4, "d1", 8), (5, "d3", 9)), (2, 0)),
    "appended and compacted": (in_turn(append((4, "d1", 8)), lambda s: compact(s, T, day="d1")), (1, 0)),
    "a day removed": (replace("d1"), (0, 2)),
    "a day rewritten, one row other": (replace("d1", (1, "d1", 5), (2, "d1", 99)), (1, 1)),
    "a day rewritten, all rows equal": (replace("d1", (2, "d1", 6), (1, "d1", 5)), (0, 0)),
    "a row twice": (replace("d2", (3, "d2", 7), (3, "d2", 7)), (1, 0)),
    "a row deleted by position": (remove(0), (0, 1)),
    "deleted, then its file removed": (in_turn(remove(0), replace("d1")), (0, 2)),
    "deleted, and rows elsewhere": (in_turn(remove(1), append((4, "d2", 8))), (1, 1)),
    "rows that came and were deleted": (in_turn(append((4, "d4", 8), (5, "d4", 9)), remove(0, day="d4")), (1, 0)),
}


@pytest.mark.parametrize(("act", "expected"), COUNTS.values(), ids=COUNTS)
def test_counts_are_exact(store: Store, act: Act, expected: tuple[int, int] | None) -> None:
    before = create(store, T, rows(*START), by="day")
    act(store)
    found = one(store, before.id, "main")
    assert (found and (found.rows_added, found.rows_removed)) == expected
    back = one(store, "main", before.id)
    assert (back and (back.rows_removed, back.rows_added)) == expected


SHAPES: dict[str, tuple[Callable[[Any], None], list[str]]] = {
    "added": (columns(lambda u: u.add_column("note", StringType())), ["added column note string"]),
    "added, of several types": (
        columns(lambda u: u.add_column("seen", TimestamptzType()).add_column("tags", ListType(9, StringType()))),
        ["added column seen timestamp", "added column tags array<string>"],
    ),
    "dropped": (columns(lambda u: u.delete_column("amount")), ["dropped column amount int"]),
    "renamed": (columns(lambda u: u.rename_column("amount", "price")), ["renamed column amount to price"]),
    "widened": (columns(lambda u: u.update_column("amount", LongType())), ["type of amount: int -> long"]),
    "documented": (columns(lambda u: u.update_column("amount", doc="in cents")), ["comment of amount: in cents"]),
    "moved": (columns(lambda u: u.move_first("amount")), ["order of columns: amount, id, day, at"]),
    "nested, added": (columns(lambda u: u.add_column(("at", "zip"), LongType())), ["added column at.zip long"]),
    "nested, renamed": (
        columns(lambda u: u.rename_column(("at", "city"), "town")),
        ["renamed column at.city to at.town"],
    ),
    "partitioned": (
        partitions(lambda u: u.add_field("day", IdentityTransform()).add_field("day", TruncateTransform(2), "short")),
        ["partition by day, truncate(2, day)"],
    ),
    "property": (properties(owner="ada"), ["property owner: none -> ada"]),
}


@pytest.mark.parametrize(("change", "expected"), SHAPES.values(), ids=SHAPES)
def test_changes_of_the_shape_are_told(store: Store, change: Callable[[Any], None], expected: list[str]) -> None:
    import pyarrow as pa

    held = pa.table(
        {
            "id": [1],
            "day": ["d1"],
            "amount": pa.array([5], pa.int32()),
            "at": pa.array([{"city": "x"}], pa.struct([("city", pa.string())])),
        }
    )
    before = create(store, T, held)
    evolve(store, T, change)
    found = one(store, before.id, "main")
    assert found and list(found.schema) == expected and (found.rows_added, found.rows_removed) == (0, 0)


def test_rows_are_compared_on_the_columns_that_both_have(store: Store) -> None:
    before = create(store, T, rows(*START))
    evolve(store, T, columns(lambda u: u.rename_column("amount", "price")))
    evolve(store, T, columns(lambda u: u.delete_column("day")))
    import pyarrow as pa

    overwrite(store, T, pa.table({"id": [1, 2, 4], "price": [5, 6, 7]}))
    found = one(store, before.id, "main")
    assert found and (found.rows_added, found.rows_removed) == (1, 1)
    assert list(found.schema) == ["dropped column day string", "renamed column amount to price"]


def test_tables_come_and_go(both: Store) -> None:
    before = create(both, "ods.a", rows((1, "d1", 1)))
    create(both, "ods.b", rows((2, "d2", 2), (3, "d3", 3)))
    drop(both, "ods.a")
    expected = [("ods.a", "removed", 0, 1), ("ods.b", "added", 2, 0)]
    found = diff_commits(both, before.id, "main")
    assert [(str(t.table), t.change, t.rows_added, t.rows_removed) for t in found.tables] == expected
    create(both, "ods.a", rows((1, "d1", 1), (9, "d9", 9)))
    anew = diff_commits(both, before.id, "main", TableName.parse("ods.a")).tables[0]
    assert (anew.schema, anew.rows_added, anew.rows_removed) == (("dropped and created again",), 1, 0)
    assert diff_commits(both, "main", "main", TableName.parse("ods.a")).tables == ()
    with pytest.raises(Mistake, match=r"close: `ods\.a`"):
        diff_commits(both, "main", "main", TableName.parse("ods.aa"))


def test_branches_are_compared_where_they_are(both: Store) -> None:
    create(both, T, rows(*START))
    create(both, "ods.still", rows(*START))
    branch(both, "dev")
    add(both, T, rows((4, "main", 0)))
    add(both, T, rows((5, "dev", 0), (6, "dev", 0)), branch="dev")
    found = one(both, "main", "dev")
    assert found and (found.rows_added, found.rows_removed) == (2, 1)
    merge_branch(both, "dev")
    found = one(both, "dev", "main")
    assert found and (found.rows_added, found.rows_removed) == (1, 0)


def test_counts_that_can_not_be_known_are_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = create(store, T, rows(*START))
    overwrite(store, T, rows((9, "d9", 9)))
    monkeypatch.setattr(row_delta.count_changed_rows, "__defaults__", (10,))
    found = one(store, before.id, "main")
    assert found and found.rows_added is None and "of files differ" in str(found.reason)
    monkeypatch.undo()
    gone = equality_delete(files(store, T)[0])
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=[gone]), "by value")
    found = one(store, before.id, "main")
    assert found and found.rows_removed is None and "equality deletes" in str(found.reason)


def test_a_file_that_is_gone_is_named(store: Store) -> None:
    from pathlib import Path

    from runnel.errors import CorruptData

    before = create(store, T, rows(*START))
    lost = files(store, T)[0].path
    overwrite(store, T, rows((9, "d9", 9)))
    Path(lost).unlink()
    with pytest.raises(CorruptData, match=lost):
        diff_commits(store, before.id, "main")
