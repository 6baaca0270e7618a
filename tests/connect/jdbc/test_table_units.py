"""Tables of PostgreSQL that are read in work units: the ranges, the comparison with the table, where and why."""

import re
from pathlib import Path

import pytest

from runnel.connect.ingest.shared_scratch import SharedScratch
from runnel.connect.jdbc.database import DatabaseColumn
from runnel.connect.jdbc.row_reader import RowQuery
from runnel.connect.jdbc.table_units import RangeReader, RangeUnit, WholeFetch
from runnel.connect.jdbc.url import parse_address
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.secret import Secret
from runnel.lake.warehouse_files import WarehouseFiles
from tests.connect.jdbc.source_databases import IN_BOTH_PLACES, ORDERS, Shop, feed_of

KEYED = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", key="id"))'
NAMED = 'rn.source("ods.orders", rn.jdbc("{url}", query="select * from orders", key="name"))'
MANY = "INSERT INTO orders SELECT id, chr(64 + id), timestamp '2026-01-01' FROM generate_series(1, 20) AS id"


@pytest.mark.postgres
@IN_BOTH_PLACES
def test_with_a_key_only_rows_that_differ_are_written(pg: Shop) -> None:
    pg.execute(ORDERS)
    pg.execute(MANY)
    pg.flow(KEYED)
    pg.run()
    if pg.units is not None:
        conditions = [unit for unit in pg.units.all_units if isinstance(unit, RangeUnit)]
        assert len(conditions) == 3 and "id" in conditions[0].condition
    pg.execute("UPDATE orders SET name = 'z' WHERE id = 1")
    pg.execute("DELETE FROM orders WHERE id = 2")
    assert [step.rows for step in pg.project.run().steps] == [1]
    assert pg.names == "CDEFGHIJKLMNOPQRSTz" and pg.run() == {}


@pytest.mark.postgres
@IN_BOTH_PLACES
def test_a_key_that_occurs_in_two_ranges_is_refused(pg: Shop) -> None:
    pg.execute(ORDERS)
    pg.execute(MANY)
    pg.execute("UPDATE orders SET name = 'a' WHERE id IN (1, 20)")
    pg.flow(NAMED)
    assert "the key of the query does not identify its rows: 2 have name = 'a'" in pg.error()


@pytest.mark.postgres
@IN_BOTH_PLACES
def test_a_value_that_is_read_slowly_is_found_in_any_range(pg: Shop) -> None:
    pg.execute("CREATE TABLE orders AS SELECT id, id::numeric(12,2) AS amount FROM generate_series(1, 9) AS id")
    pg.execute("UPDATE orders SET amount = 'NaN' WHERE id = 5")
    pg.flow(KEYED[:-1] + ', on_bad="quarantine")')
    pg.run()
    assert [row[0] for row in pg.rows()] == [1, 2, 3, 4, 6, 7, 8, 9]
    ((raw, reason, *_),) = pg.rows("quarantine.ods_orders")
    assert '"id": 5' in raw and "'nan' does not fit decimal(12,2)" in reason


def test_units_carry_passwords_without_showing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "postgresql://ada:x4711@db/shop")
    origin = Jdbc(Secret("SHOP_URL"), table="orders", password=Secret("SHOP_URL"))
    column = DatabaseColumn("id", "int4", "int32", "id", "id", "id")
    scratch = SharedScratch(WarehouseFiles(str(tmp_path)), str(tmp_path))
    query = RowQuery([column], "orders AS t", ["1 = 1"], "orders")
    reader = RangeReader(parse_address(origin, tmp_path, "flows/a.py:1"), "flows/a.py:1", "1-1", query, scratch)
    assert "x4711" not in repr(reader) and reader.address.password == "postgresql://ada:x4711@db/shop"
    project = type("FakeShop", (), {"project": type("P", (), {"root": tmp_path}), "url": "unused"})
    feed = feed_of(project, url=Secret("SHOP_URL"))  # type: ignore[arg-type]
    work = WholeFetch(feed._carry_secrets(), None, None, scratch)
    monkeypatch.delenv("SHOP_URL")
    assert "x4711" not in repr(work)
    assert str(work.feed._build_database().address) == "postgresql://db:5432/shop"


@pytest.mark.postgres
def test_the_plan_says_where_and_about_how_much(pg: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.execute("CREATE TABLE orders AS SELECT id, repeat('x', 1000) AS name FROM generate_series(1, 10000) AS id")
    pg.execute("ANALYZE orders")
    pg.flow(KEYED)
    monkeypatch.setenv("RUNNEL__SPARK__MASTER", "spark://127.0.0.1:1")
    (note,) = pg.project.plan().notes
    limit = re.escape("are not more than spark.executors_from, 256.0 MiB")
    assert re.fullmatch(f"ods.orders is read in this process: about 9.6 MiB {limit}", note)
    monkeypatch.setenv("RUNNEL__SPARK__EXECUTORS_FROM", "5 MiB")
    assert "ods.orders is read on executors: about 9.6 MiB are more" in pg.project.plan().notes[0]


def test_sqlite_is_read_by_one_process(small: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    small.insert((1, "a", "2026-01-01"))
    small.flow(KEYED)
    monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", "executors")
    note = "ods.orders is read in this process: a source of this kind is read by one process"
    assert small.project.plan().notes == (note,)
    (step,) = small.project.run().steps
    assert step.place is not None and f"ods.orders is read {step.place.describe()}" == note
