"""What Spark writes straight into the catalog Runnel adopts, compares, merges, reverts and compacts, row for row."""

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from runnel.connect.load.load import load_files
from runnel.errors import Mistake, RunnelError
from runnel.lake.diff.lake_diff import TableDiff, diff_commits
from runnel.lake.diff.row_diff import diff_rows
from runnel.lake.merge.merge import MergeConflict, merge_branch
from runnel.lake.merge.revert import revert_commit
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.relocate.relocate import relocate
from runnel.names import TableName
from tests.interoperability.engines import Engines, Rows
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import branch

T = "ods.orders"
N = TableName.parse(T)
BY_POSITION = "alter table {t} set tblproperties (" + ", ".join(
    f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge")
)
BY_FILE, BY_PARTITION = BY_POSITION + ")", BY_POSITION + ", 'write.delete.granularity' = 'partition')"
UPSERT = (
    "merge into {t} using (select 2 as id, 'd9' as day, 66 as amount union all select 5, 'd9', 1) as u on {t}.id = u.id"
    " when matched then update set * when not matched then insert *"
)

# What Spark does, the rows then, how many came and went, and whether it can be replayed after main has moved.
CHANGES: dict[str, tuple[list[str], Rows, tuple[int, int], bool]] = {
    "rows inserted": (
        ["insert into {t} values (5, 'd2', 9)"],
        [(1, "d1", 5), (2, "d1", 6), (3, "d2", 7), (5, "d2", 9)], (1, 0), True,
    ),
    "rows deleted, files rewritten": (
        ["delete from {t} where id = 1"],
        [(2, "d1", 6), (3, "d2", 7)], (0, 1), True,
    ),
    "rows deleted by position": (
        [BY_FILE, "delete from {t} where id in (1, 3)"],
        [(2, "d1", 6)], (0, 2), True,
    ),
    "rows updated and merged by position": (
        [BY_PARTITION, "update {t} set amount = 70 where id in (1, 3)", UPSERT],
        [(1, "d1", 70), (2, "d9", 66), (3, "d2", 70), (5, "d9", 1)], (4, 3), True,
    ),
    "columns renamed, dropped, added": (
        ["alter table {t} rename column day to on_day", "alter table {t} drop column amount",
         "alter table {t} add column amount string", "insert into {t} values (5, 'd2', 'x')"],
        [(1, "d1", None), (2, "d1", None), (3, "d2", None), (5, "d2", "x")], (1, 0), True,
    ),
    "a partition field added": (
        ["alter table {t} add partition field bucket(4, id)", "insert into {t} values (5, 'd2', 9)"],
        [(1, "d1", 5), (2, "d1", 6), (3, "d2", 7), (5, "d2", 9)], (1, 0), True,
    ),
    "rows deleted under two specs": (
        ["alter table {t} drop partition field day", "insert into {t} values (5, 'd2', 9), (6, 'd2', 10)",
         BY_PARTITION, "delete from {t} where id in (1, 5)"],
        [(2, "d1", 6), (3, "d2", 7), (6, "d2", 10)], (1, 1), False,
    ),
}  # fmt: skip


def only(store: Store, a: str, b: str) -> TableDiff:
    (found,) = diff_commits(store, a, b).tables
    return found


def sound(store: Store) -> None:
    """Remove whatever can be removed, and check what is left."""
    gc(store, Retention(grace="0s"))
    assert fsck(store, deep=True).findings == ()


@pytest.mark.parametrize(("statements", "after", "counts", "replays"), CHANGES.values(), ids=CHANGES)
def test_a_change_on_a_branch(
    engines: Engines, store: Store, statements: list[str], after: Rows, counts: tuple[int, int], replays: bool
) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d1", 6), (3, "d2", 7)), by="day")
    before = engines.runnel(T)
    branch(store, "dev")
    engines.sql(*(statement.format(t=f"dev.{T}") for statement in statements))
    engines.adopted("dev")
    assert engines.agreed(T, "dev") == engines.runnel(T, "dev", "spark") == after
    found, by_key = only(store, "main", "dev"), diff_rows(store, "main", "dev", N, key=["id"])
    assert (found.rows_added, found.rows_removed) == counts
    changed = by_key.rows_changed
    assert (by_key.rows_added + changed, by_key.rows_removed + changed) == counts
    assert engines.runnel(T) == before, "main has not moved"

    add(store, T, rows((4, "d3", 8)))
    if replays:
        merge_branch(store, "dev")
        merged = engines.agreed(T)
        assert [row for row in merged if row[0] != 4] == after and len(merged) == len(after) + 1
        revert_commit(store, "main")
        assert len(engines.agreed(T)) == len(before) + 1
    else:
        with pytest.raises(MergeConflict, match="under different partitions"):
            merge_branch(store, "dev")
    compact(store, branch="dev")
    sound(store)
    assert engines.agreed(T, "dev") == after


def test_everything_goes_on_over_two_specs_and_position_deletes(engines: Engines, store: Store) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d1", 6), (3, "d2", 7)), by="day")
    engines.sql(
        f"alter table {T} add partition field bucket(4, id)",
        f"insert into {T} values (4, 'd1', 8), (5, 'd3', 9)",
        BY_FILE.format(t=T),
        f"delete from {T} where id in (1, 4)",
    )
    branch(store, "dev")
    add(store, T, rows((6, "d1", 60)), branch="dev")
    engines.sql(f"insert into {T} values (7, 'd1', 70)")
    merge_branch(store, "dev")
    expected = [(2, "d1", 6), (3, "d2", 7), (5, "d3", 9), (6, "d1", 60), (7, "d1", 70)]
    assert engines.agreed(T) == engines.runnel(T, engine="spark") == expected

    engines.sql(f"update {T} set amount = amount + 1 where id in (2, 6)", f"alter table {T} drop partition field day")
    assert [row[2] for row in engines.agreed(T)] == [7, 7, 9, 61, 70]
    compact(store)
    assert only(store, "main~1", "main~2").rows_added == 2 and not diff_commits(store, "main~1", "main").tables
    engines.sql(f"alter table {T} drop column day", f"insert into {T} values (8, 80)", f"delete from {T} where id = 2")
    expected = [(3, 7), (5, 9), (6, 61), (7, 70), (8, 80)]
    assert engines.agreed(T) == expected
    assert engines.runnel(T, where="id > 5") == engines.runnel(T, engine="spark", where="id > 5") == expected[2:]
    erase(store, N, "id = 6")
    assert engines.agreed(T) == [row for row in expected if row[0] != 6]
    assert 6 not in {row[0] for row in engines.agreed(T, "dev")}
    compact(store)
    sound(store)
    assert engines.agreed(T) == [row for row in expected if row[0] != 6]


def test_types_become_wider(engines: Engines, store: Store) -> None:
    engines.sql(
        "create namespace lab",
        "create table lab.t (i int, f float, d decimal(5, 2))",
        "insert into lab.t values (1, 0.5, 1.25)",
    )
    branch(store, "dev")
    engines.sql(
        "alter table dev.lab.t alter column i type bigint",
        "alter table dev.lab.t alter column f type double",
        "alter table dev.lab.t alter column d type decimal(9, 2)",
        "insert into dev.lab.t values (5000000000, 1e300, 1234567.25)",
        "insert into lab.t values (2, 1.5, 2.25)",
    )
    assert only(store, "main~1", "dev").rows_added == 1
    merge_branch(store, "dev")
    wide = (5_000_000_000, 1e300, Decimal("1234567.25"))
    narrow = [(1, 0.5, Decimal("1.25")), (2, 1.5, Decimal("2.25"))]
    assert engines.agreed("lab.t") == engines.runnel("lab.t", engine="spark") == [*narrow, wide]
    compact(store)
    assert engines.agreed("lab.t") == [*narrow, wide]


def test_fields_of_a_struct_evolve(engines: Engines, store: Store) -> None:
    engines.sql(
        "create namespace lab",
        "create table lab.t (id int, s struct<a: int, b: string>)",
        "insert into lab.t values (1, struct(1, 'x'))",
    )
    assert engines.agreed("lab.t") == [(1, {"a": 1, "b": "x"})]
    branch(store, "dev")
    engines.sql(
        "alter table dev.lab.t rename column s.a to c",
        "alter table dev.lab.t drop column s.b",
        "alter table dev.lab.t add column s.a string",
        "insert into dev.lab.t values (2, struct(2, 'y'))",
    )
    after = [(1, {"c": 1, "a": None}), (2, {"c": 2, "a": "y"})]
    assert engines.agreed("lab.t", "dev", engine="auto") == after
    with pytest.raises(Mistake, match="inside a struct"):
        engines.runnel("lab.t", "dev", "duckdb")
    found = only(store, "main", "dev")
    assert (found.rows_added, found.rows_removed) == (1, 0) and "renamed column s.a to s.c" in found.schema
    assert [done.commit for done in compact(store, branch="dev")] == [None]
    merge_branch(store, "dev")
    assert engines.agreed("lab.t", engine="auto") == after


def test_values_of_every_kind(engines: Engines, store: Store) -> None:
    engines.sql(
        "create namespace lab",
        "create table lab.t (id bigint, day string, at timestamp, n timestamp_ntz, b binary, m map<string, int>,"
        " l array<int>, d date, ok boolean) partitioned by (day, days(at), truncate(2, id))",
        BY_FILE.format(t="lab.t"),
        "insert into lab.t values"
        " (1, 'a b/c%=d', timestamp'2026-01-02 03:04:05.123456', timestamp_ntz'2026-01-02 03:04:05', X'00ff',"
        " map('k', null), array(1, null), date'0001-01-01', true),"
        " (2, 'é+?#', timestamp'1969-12-31 23:59:59', null, null, null, null, null, null),"
        " (3, null, null, null, X'', map(), array(), null, false), (4, '', null, null, null, null, null, null, null)",
        "delete from lab.t where id = 4",
    )
    compact(store, TableName.parse("lab.t"))
    first, *others = engines.agreed("lab.t")
    assert first == (
        1,
        "a b/c%=d",
        datetime(2026, 1, 2, 3, 4, 5, 123456, UTC),
        datetime(2026, 1, 2, 3, 4, 5),
        b"\x00\xff",
        [("k", None)],
        [1, None],
        date(1, 1, 1),
        True,
    )
    assert [row[:2] for row in others] == [(2, "é+?#"), (3, None)]
    assert engines.runnel("lab.t", engine="spark") == [first, *others]
    sound(store)


def test_tables_come_and_go(engines: Engines, store: Store) -> None:
    create(store, T, rows((1, "d1", 5)))
    engines.sql(
        "create namespace lab",
        "create table lab.copy as select id, amount from ods.orders",
        "create table lab.`Wrong Name` (id int)",
        f"alter table {T} rename to ods.sales",
    )
    engines.adopted()
    assert [str(name) for name in store.state()] == ["lab.Wrong Name", "lab.copy", "ods.sales"]
    assert engines.agreed("lab.copy") == [(1, 5)] and engines.agreed("ods.sales") == [(1, "d1", 5)]
    with pytest.raises(Mistake, match="not a table name"):
        engines.runnel("lab.`Wrong Name`")
    compact(store)
    branch(store, "dev")
    engines.sql("drop table dev.lab.copy", "drop table dev.lab.`Wrong Name`")
    assert [(str(found.table), found.change) for found in diff_commits(store, "main", "dev").tables] == [
        ("lab.Wrong Name", "removed"),
        ("lab.copy", "removed"),
    ]
    merge_branch(store, "dev")
    assert [str(name) for name in store.state()] == ["ods.sales"]
    revert_commit(store, "main")
    sound(store)
    assert engines.agreed("lab.copy") == [(1, 5)]


def test_tables_without_rows(engines: Engines, store: Store, tmp_path: Path) -> None:
    engines.sql(
        "create namespace lab",
        "create table lab.none as select 1 as id where false",
        "create table lab.emptied as select 1 as id",
        "truncate table lab.emptied",
        "insert into lab.emptied select 1 where false",
    )
    for name in ("lab.none", "lab.emptied"):
        assert engines.agreed(name) == []
    compact(store)
    sound(store)
    store.close()
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    moved = Store.open(f"sqlite:///{tmp_path}/moved/catalog.db", f"{tmp_path}/moved/warehouse", moved=True)
    relocate(moved)
    sound(moved)
    (tmp_path / "rows.csv").write_text("id\n7\n")
    load_files(moved, TableName.parse("lab.none"), [str(tmp_path / "rows.csv")])
    assert engines.over(moved).agreed("lab.none") == [(7,)]
    moved.close()


def test_a_newer_format_is_read_and_never_written(engines: Engines, store: Store, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n7\n")
    engines.sql("create namespace lab", "create table lab.t (id int) tblproperties ('format-version' = '3')")
    branch(store, "dev")
    engines.sql(
        "insert into lab.t values (1)",
        "insert into dev.lab.t values (2), (3)",
        "alter table dev.lab.t set tblproperties ('write.delete.mode' = 'merge-on-read')",
        "delete from dev.lab.t where id = 3",
    )
    name = TableName.parse("lab.t")
    assert engines.agreed("lab.t") == [(1,)] and engines.agreed("lab.t", "dev", engine="auto") == [(2,)]
    for work in (
        lambda: load_files(store, name, [str(tmp_path / "rows.csv")]),
        lambda: erase(store, name, "id = 1"),
        lambda: merge_branch(store, "dev"),
    ):
        with pytest.raises(RunnelError, match="format version 3"):
            work()
    assert [done.commit for done in compact(store)] == [None]
    revert_commit(store, "main")
    assert engines.agreed("lab.t") == []
    sound(store)
