"""Queries read one commit, through every change of a table, and nothing but the lake."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from runnel.errors import CorruptData, Mistake, RunnelError
from runnel.lake.history.commits import CommitChange
from runnel.lake.history.tags import create_tag
from runnel.lake.iceberg import snapshots, table_metadata
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName
from runnel.query.engine import DuckdbLimits, run_query
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import (
    branch,
    columns,
    delete_rows,
    equality_delete,
    evolve,
    files,
    overwrite,
    partitions,
    written,
)

T = "ods.orders"


def ask(store: Store, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    return run_query(store, sql, engine="duckdb", **options).rows()


def test_a_query_reads_any_version(store: Store) -> None:
    first = create(store, T, rows((1, "d1", 5)))
    create_tag(store, "v1", first.id)
    branch(store, "dev")
    add(store, T, rows((2, "d2", 7)), branch="dev")
    add(store, T, rows((3, "d3", 9)))
    seen = {ref: ask(store, f"select id from {T} order by id", at=ref) for ref in ("main", "dev", "v1", "main~1")}
    assert seen == {"main": [(1,), (3,)], "dev": [(1,), (2,)], "v1": [(1,)], "main~1": [(1,)]}
    assert ask(store, f"select count(*) from {T}", at=f"main@{first.at}") == [(1,)]
    assert run_query(store, f"select * from {T}", at="v1").at == first.id


EVOLVED: dict[str, tuple[Callable[[Any], object], str, list[tuple[Any, ...]]]] = {
    "renamed": (lambda u: u.rename_column("day", "on_day"), "select on_day, id from {}", [("d1", 1)]),
    "dropped": (lambda u: u.delete_column("day"), "select * from {}", [(1, 5)]),
    "added": (lambda u: u.add_column("note", StringType()), "select note, amount from {}", [(None, 5)]),
    "name used again": (
        lambda u: (u.rename_column("id", "was"), u.rename_column("amount", "id")),
        "select id, was from {}",
        [(5, 1)],
    ),
}


@pytest.mark.parametrize(("change", "sql", "expected"), EVOLVED.values(), ids=EVOLVED)
def test_old_files_are_read_in_the_new_schema(
    store: Store, change: Callable[[Any], object], sql: str, expected: list[Any]
) -> None:
    create(store, T, rows((1, "d1", 5)))
    evolve(store, T, columns(change))
    assert ask(store, sql.format(T)) == expected


def test_files_of_both_schemas_stand_side_by_side(store: Store) -> None:
    create(store, T, rows((1, "d1", 5)))
    evolve(store, T, columns(lambda u: u.add_column("note", StringType())))
    added = pa.table({"id": [2], "day": ["d2"], "amount": [7], "note": ["late"]})
    publish_edit(
        store,
        "main",
        TableName.parse(T),
        lambda v: VersionEdit(added=written(store, table_metadata.load_metadata(store, v.location), added)),
        "add",
    )
    assert ask(store, f"select id, note from {T} order by id") == [(1, None), (2, "late")]


def test_several_partition_specs(store: Store) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d2", 6)), by="day")
    evolve(store, T, partitions(lambda u: u.add_field("id", BucketTransform(4), "id_bucket")))
    add(store, T, rows((3, "d1", 7), (4, "d3", 8)))
    evolve(store, T, partitions(lambda u: (u.remove_field("day"), u.remove_field("id_bucket"))))
    add(store, T, rows(*((n, "d1", n) for n in range(5, 15))))
    assert ask(store, f"select id from {T} where day = 'd1' and id < 8 order by id") == [(1,), (3,), (5,), (6,), (7,)]


def test_position_deletes_are_applied(store: Store) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d1", 6), (3, "d1", 7)))
    delete_rows(store, T, {files(store, T)[0].path: [1]})
    add(store, T, rows((4, "d1", 8)))
    assert ask(store, f"select id from {T} order by id") == [(1,), (3,), (4,)]


def test_a_query_without_tables(store: Store) -> None:
    assert ask(store, "select 1 + 1 as two, 'x' as x") == [(2, "x")]


def test_readers_see_all_or_nothing_of_a_commit(store: Store) -> None:
    names = [TableName.parse("ods.a"), TableName.parse("ods.b")]
    for name in names:
        create(store, str(name), rows((0, "d0", 1)))

    def publish_both(number: int) -> None:
        state = store.versions(store.commit(), names)
        changes = []
        for name in names:
            files = written(store, table_metadata.load_metadata(store, state[name].location), rows((number, "d", 1)))
            staged = snapshots.stage_version(store, state[name].location, VersionEdit(added=files))
            changes.append(CommitChange(name, state[name].location, staged))
        publish(store.db, CommitDraft("main", f"both {number}", "ada", tuple(changes)))

    writer = threading.Thread(target=lambda: [publish_both(number) for number in range(1, 16)])
    writer.start()
    seen = set()
    while writer.is_alive():
        ((a, b),) = ask(store, "select (select count(*) from ods.a) as a, (select count(*) from ods.b) as b")
        assert a == b
        seen.add(a)
    writer.join()
    assert len(seen) > 1 and ask(store, "select count(*) from ods.a") == [(16,)]


def test_many_threads_ask_at_once(store: Store) -> None:
    create(store, T, rows(*((n, f"d{n % 3}", n) for n in range(100))))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: ask(store, f"select sum(amount) from {T} where id = {n % 10}"), range(40)))
    assert found == [[(n % 10,)] for n in range(40)]


WRONG: dict[str, tuple[str, str, str]] = {
    "unknown table": ("select * from ods.ordres", "TABLE_UNKNOWN", r"close: `ods\.orders`"),
    "unknown column": ("select amout from ods.orders", "SQL_COLUMN", r"'amout' .* close: `amount` of `ods\.orders`"),
    "unknown column in WHERE": ("select 1 from ods.orders where dya = 'x'", "SQL_COLUMN", "'dya'"),
    "unknown column of an alias": ("select o.amout from ods.orders o", "SQL_COLUMN", "'amout'"),
    "unknown ref": ("select 1 from ods.orders", "REF_UNKNOWN", "close: `main`"),
    "unknown engine": ("select 1", "SQL_ENGINE", "close: `spark`"),
}


@pytest.mark.parametrize(("sql", "code", "message"), WRONG.values(), ids=WRONG)
def test_mistakes_name_what_was_meant(store: Store, sql: str, code: str, message: str) -> None:
    create(store, T, rows((1, "d1", 5)))
    options = {"REF_UNKNOWN": {"at": "mian"}, "SQL_ENGINE": {"engine": "sparc"}}.get(code, {})
    with pytest.raises(Mistake, match=message) as caught:
        run_query(store, sql, **options)
    assert caught.value.code == code


NEEDS_SPARK: dict[str, tuple[str, str]] = {
    "no exact equivalent": (f"select percentile_approx(amount, 0.5) from {T}", "percentile_approx"),
    "an error on the way": (f"select cast(day as int) from {T}", "DuckDB failed: "),
    "overflow": (f"select amount + 9223372036854775807 from {T}", "DuckDB failed: Out of Range Error"),
    "a column out of reach": (f"select o.id from {T} p", "`o.id` is not known"),
}


@pytest.mark.parametrize(("sql", "reason"), NEEDS_SPARK.values(), ids=NEEDS_SPARK)
@pytest.mark.parametrize("engine", ["duckdb", "auto"])
def test_what_duckdb_leaves_to_spark(store: Store, sql: str, reason: str, engine: str) -> None:
    create(store, T, rows((1, "d1", 5)))
    with pytest.raises(Mistake, match="SQL_NEEDS_SPARK") as caught:
        run_query(store, sql, engine=engine)  # and no Spark to turn to
    assert reason in caught.value.what and caught.value.fix


def test_too_large_for_duckdb(store: Store) -> None:
    create(store, T, rows((1, "d1", 5)))
    with pytest.raises(Mistake, match=r"only Spark .* reads 0\.0 GB"):
        run_query(store, f"select * from {T}", limits=DuckdbLimits(duckdb_bytes=10))


def test_equality_deletes_need_spark(store: Store) -> None:
    create(store, T, rows((1, "d1", 5)))
    gone = equality_delete(files(store, T)[0])
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=[gone]), "delete by value")
    with pytest.raises(Mistake, match="equality deletes"):
        run_query(store, f"select * from {T}", engine="duckdb")


def test_an_error_after_the_first_rows_is_told(store: Store) -> None:
    days = ["1"] * 500_000 + ["x"]
    create(store, T, pa.table({"id": range(len(days)), "day": days}))
    with pytest.raises(RunnelError) as caught, run_query(store, f"select cast(day as int) from {T}") as result:
        list(result.batches())
    assert caught.value.code in ("SQL_FAILED", "SQL_NEEDS_SPARK")


def test_a_file_that_is_gone_is_named(store: Store) -> None:
    create(store, T, rows((1, "d1", 5)))
    path = Path(files(store, T)[0].path)
    path.unlink()
    with pytest.raises(CorruptData, match=path.name):
        run_query(store, f"select * from {T}")


HOSTILE = {
    "a file": "select * from read_parquet('/etc/passwd')",
    "a file as a name": "select * from `/etc/passwd`",
    "a path and a format": "select * from csv.`/etc/passwd`",
    "a setting": "set threads = 1",
    "two statements": "select 1; drop table ods.orders",
    "a copy": "copy (select 1) to '/tmp/x'",
    "an insert": "insert into ods.orders values (1)",
    "a function of the machine": "select reflect('java.lang.System', 'getenv')",
    "DuckDB's own catalog": "select * from duckdb_settings()",
    "another branch": "select * from dev.ods.orders",
    "a view of ours": "select * from memory.main",
}


@pytest.mark.parametrize("sql", HOSTILE.values(), ids=HOSTILE)
def test_hostile_queries_are_refused(store: Store, sql: str) -> None:
    create(store, T, rows((1, "d1", 5)))
    with pytest.raises(Mistake):
        run_query(store, sql, engine="duckdb")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('{warehouse}/../catalog.db')",
        "select * from glob('/*')",
        "copy (select 1) to '/tmp/runnel-x.csv'",
        "install httpfs",
        "set enable_external_access = true",
        "set memory_limit = '1GB'",
        "attach '/tmp/runnel-x.db'",
    ],
)
def test_below_the_parser_duckdb_is_locked_in(store: Store, sql: str) -> None:
    import duckdb

    from runnel.query.engines.duckdb_instance import open_instance

    secret = [1]  # a variable is no table
    with open_instance(store.warehouse) as found:
        cursor = found.cursor()
        with pytest.raises(duckdb.Error):
            cursor.execute(sql.format(warehouse=store.warehouse)).fetchall()
        with pytest.raises(duckdb.Error):
            cursor.sql("select * from secret")
    assert secret


@pytest.mark.parametrize("name", ["a [b] c*?", "it's", "with space", "größe"])
def test_a_lake_may_lie_in_any_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    store = Store.open(f"sqlite:///{tmp_path / name}/catalog.db", f"{tmp_path / name}/warehouse")
    create(store, T, rows((1, "d1", 5)))
    assert ask(store, f"select id from {T}") == [(1,)]
    store.close()


def test_files_in_the_current_schema_are_read_by_name(store: Store) -> None:
    """By field id DuckDB does not know how many rows there are, and orders joins badly."""
    from runnel.query.file_pruning import plan_scan

    def select() -> str:
        return plan_scan(
            store, store.versions(store.commit(), [TableName.parse(T)])[TableName.parse(T)].location
        ).select

    create(store, T, rows((1, "d1", 5)))
    assert "schema = MAP" not in select()
    evolve(store, T, columns(lambda u: u.rename_column("day", "on_day")))
    assert "schema = MAP" in select()
    overwrite(store, T, pa.table({"id": [2], "on_day": ["d2"], "amount": [7]}))
    assert "schema = MAP" not in select()
    assert ask(store, f"select id, on_day from {T}") == [(2, "d2")]


def test_a_forked_child_leaves_its_parents_duckdb_alone(store: Store) -> None:
    import os
    import subprocess

    create(store, T, rows(*((n, "d", n) for n in range(1000))))
    with run_query(store, f"select a.id from {T} a cross join {T} b") as result:
        done = subprocess.run(["true"], preexec_fn=lambda: os.umask(0o77), check=False)
        assert done.returncode == 0
        assert sum(batch.num_rows for batch in result.batches()) == 1_000_000


def test_a_uuid_is_text_as_in_spark(store: Store) -> None:
    import uuid

    from pyiceberg.types import UUIDType

    create(store, T, rows((1, "d1", 5)))
    evolve(store, T, columns(lambda u: (u.add_column("key", UUIDType()), u.add_column("n", LongType()))))
    assert ask(store, f"select key, n, id from {T} where key is null or key = '{uuid.uuid4()}'") == [(None, None, 1)]


def test_an_identity_partition_is_pruned(store: Store) -> None:
    from runnel.query.engine import ResolvedQuery, _parse_cached, prepare_query

    create(store, T, rows(*((n, f"d{n:02}", n) for n in range(20))), by="day")
    evolve(store, T, partitions(lambda u: u.add_field("id", IdentityTransform(), "id")))
    sql = f"select amount from {T} where day in ('d03', 'd04') and id > 3"
    commit = store.commit()
    prepared = prepare_query(
        ResolvedQuery(store, _parse_cached(sql), commit, store.versions(commit, [TableName.parse(T)]))
    )
    assert len(prepared.scans[0].paths) == 1
    assert ask(store, sql) == [(4,)]
