"""Spark takes over where DuckDB is not faithful, in a slot that holds exactly one commit."""

import tempfile
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel import temp_dirs
from runnel.errors import Mistake, RunnelError
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import snapshots, table_metadata
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName
from runnel.query.engine import DuckdbLimits, run_query
from runnel.query.result import QueryResult
from tests.lake.factories import add, create, rows, slots_in_use
from tests.lake.table_changes import columns, evolve, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
T = "ods.orders"


class Asker:
    """Asks a lake with Spark at hand, and counts how often Spark was called for."""

    def __init__(self, store: Store, session: "SparkSession") -> None:
        self.store = store
        self.session = session
        self.calls = 0

    def __call__(self, sql: str, **options: Any) -> QueryResult:
        return run_query(self.store, sql, spark=self.start, **options)

    def start(self) -> "SparkSession":
        self.calls += 1
        return self.session


@pytest.fixture
def ask(
    store: Store,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Asker]:
    """Whatever is asked, no slot stays taken and no file stays behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temp_dirs, "_own", None)
    create(store, T, rows((1, "d1", 5), (2, "d2", 7), (3, "d3", 9)))
    yield Asker(store, spark)
    assert not slots_in_use(store)
    assert list(tmp_path.glob("runnel-*/process-*")) and not list(tmp_path.glob("runnel-*/process-*/answer-*"))


def test_both_engines_give_the_same_answer(ask: Asker) -> None:
    sql = f"select id, day, amount / 2 as half, cast(amount as decimal(9,2)) as d from {T} order by id desc"
    ours, theirs = ask(sql), ask(sql, engine="spark")
    assert (ours.engine, theirs.engine) == ("duckdb", "spark") and ask.calls == 1
    assert ours.table() == theirs.table() and ours.columns == theirs.columns
    assert ours.at == theirs.at and theirs.reason == "Spark was requested"


REASONS = {
    "no exact equivalent": (f"select percentile_approx(amount, 0.5) as p from {T}", {}, "percentile_approx", [(7,)]),
    "an error on the way": (
        f"select cast(concat('1999-1-', id) as date) as n from {T} where id = 2",
        {},
        "DuckDB failed",
        [(date(1999, 1, 2),)],
    ),
    "too large": (f"select count(*) as n from {T}", {"limits": DuckdbLimits(duckdb_bytes=10)}, "GB", [(3,)]),
}


@pytest.mark.parametrize(("sql", "options", "reason", "expected"), REASONS.values(), ids=REASONS)
def test_spark_takes_over_unnoticed(
    ask: Asker, sql: str, options: dict[str, Any], reason: str, expected: list[Any]
) -> None:
    result = ask(sql, **options)
    assert result.rows() == expected
    if reason:
        assert result.engine == "spark" and reason in (result.reason or "") and ask.calls == 1


def test_an_error_in_a_later_batch_makes_a_whole_answer_start_again(ask: Asker, store: Store) -> None:
    days = ["1"] * 300_000 + [" 2 "]
    create(store, "ods.texts", pa.table({"day": days}))
    result = ask("select cast(day as int) as n from ods.texts")
    assert sum(row[0] for row in result.rows()) == 300_002


TOLD = {
    "a column": (f"select p.amount from {T} o", Mistake, "SQL_COLUMN", "cannot be resolved"),
    "a group": (f"select id, sum(amount) from {T}", Mistake, "SQL_FAILED", "MISSING_GROUP_BY"),
    "a division": (f"select 1 / (id - 1) from {T}", RunnelError, "SQL_FAILED", "Division by zero"),
    "a cast": (f"select cast(day as int) from {T}", RunnelError, "SQL_FAILED", "CAST_INVALID_INPUT"),
}


@pytest.mark.parametrize(("sql", "kind", "code", "message"), TOLD.values(), ids=TOLD)
def test_errors_are_told_in_one_line(
    ask: Asker, capfd: pytest.CaptureFixture[str], sql: str, kind: type[RunnelError], code: str, message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        ask(sql, engine="spark")
    assert caught.value.code == code
    assert "\n" not in caught.value.what and "ansi" not in caught.value.what and "at org." not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_slot_is_used_again_and_shows_the_new_commit(ask: Asker, store: Store) -> None:
    before = store.commit().id
    assert ask(f"select count(*) from {T}", engine="spark").rows() == [(3,)]
    add(store, T, rows((4, "d4", 1)))
    assert ask(f"select count(*) from {T}", engine="spark").rows() == [(4,)]
    assert ask(f"select count(*) from {T}", engine="spark", at=before).rows() == [(3,)]


def test_types_that_files_lack(ask: Asker) -> None:
    found = ask(
        "select null as a, array() as b, interval 1 month as c, map('k', 1Y) as d, 1 as e, 2 as e", engine="spark"
    )
    assert found.rows() == [(None, [], "INTERVAL '1' MONTH", [("k", 1)], 1, 2)]
    assert found.schema.field(0).type == pa.null() and found.columns == ["a", "b", "c", "d", "e", "e"]


def test_a_million_rows_come_in_batches_and_in_order(ask: Asker, store: Store) -> None:
    create(store, "ods.n", pa.table({"a": range(1000)}))
    count, last = 0, -1
    with ask("select x.a * 1000 + y.a as n from ods.n x, ods.n y order by n", engine="spark") as result:
        for batch in result.batches():
            numbers = batch.column(0).to_pylist()
            assert len(numbers) <= 65_536 and numbers[0] == last + 1
            count, last = count + len(numbers), numbers[-1]
    assert count == 1_000_000


def test_readers_see_all_or_nothing_of_a_commit(ask: Asker, store: Store) -> None:
    names = [TableName.parse("ods.a"), TableName.parse("ods.b")]
    for name in names:
        create(store, str(name), rows((0, "d0", 1)))
    stop = threading.Event()

    def publish_both() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            state = store.versions(store.commit(), names)
            changes = []
            for name in names:
                files = written(
                    store, table_metadata.load_metadata(store, state[name].location), rows((number, "d", 1))
                )
                staged = snapshots.stage_version(store, state[name].location, VersionEdit(added=files))
                changes.append(CommitChange(name, state[name].location, staged))
            publish(store.db, CommitDraft("main", f"both {number}", "ada", tuple(changes)))

    writer = threading.Thread(target=publish_both)
    writer.start()
    try:
        for _ in range(4):
            ((a, b),) = ask(
                "select (select count(*) from ods.a) as a, (select count(*) from ods.b) as b", engine="spark"
            ).rows()
            assert a == b
    finally:
        stop.set()
        writer.join()


def test_deletes_and_columns_of_another_engine(ask: Asker, store: Store, spark: "SparkSession") -> None:
    from runnel.spark.catalog_conf import CatalogSettings
    from runnel.spark.session import create_slot_session

    address = store.db.url.render_as_string(hide_password=False)
    outside = create_slot_session(spark, CatalogSettings("main", address, store.warehouse))
    for mode in ("delete", "update", "merge"):
        outside.sql(f"alter table {T} set tblproperties ('write.{mode}.mode' = 'merge-on-read')")
    outside.sql(f"delete from {T} where id = 2")
    outside.sql(f"alter table {T} rename column day to on_day")
    outside.sql(f"alter table {T} add column note string")
    outside.sql(f"alter table {T} add partition field on_day")
    outside.sql(f"insert into {T} values (4, 'd4', 11, 'late'), (5, 'd1', 13, null)")
    evolve(store, T, columns(lambda update: update.delete_column("amount")))
    sql = f"select * from {T} order by id"
    assert ask(sql).table() == ask(sql, engine="spark").table()
    assert ask(sql, engine="duckdb").rows() == [(1, "d1", None), (3, "d3", None), (4, "d4", "late"), (5, "d1", None)]
    assert ask(f"select id from {T} where on_day = 'd1' order by id").rows() == [(1,), (5,)]
