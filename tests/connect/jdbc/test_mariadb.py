"""A real MariaDB: types, a table that follows it, one moment, and what is told about mistakes."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from runnel.errors import Mistake, RunnelError
from tests.connect.feed_places import use_units
from tests.connect.jdbc.source_databases import Shop, feed_of, fetched
from tests.run.project import Project
from tests.servers.mariadb import Server, started

MARKED = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", watermark="changed", key="id", overlap="1 hour"))'
WHOLE = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders"))'
ONE, TWO, THREE = (1, "a", "2026-01-01 10:00:00"), (2, "b", "2026-01-01 11:00:00"), (3, "c", "2026-01-02 10:00:00")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as server:
        yield server


@pytest.fixture
def maria(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[Shop]:
    units = use_units(request) if getattr(request, "param", "process") == "units" else None
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS shop")
        cursor.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        cursor.execute("USE shop")
        yield Shop(Project(tmp_path), f"{server.url}/shop", cursor.execute, units)


TYPES = {
    "tiny": ("tinyint", "7", "int32", 7),
    "int": ("int unsigned", "4294967295", "int64", 4294967295),
    "bigint": ("bigint unsigned", "18446744073709551615", "decimal128(20, 0)", Decimal(2**64 - 1)),
    "amount": ("decimal(12,2)", "-12.30", "decimal128(12, 2)", Decimal("-12.30")),
    "double": ("double", "1.5", "double", 1.5),
    "text": ("text", "'naïve 漢字 😀'", "string", "naïve 漢字 😀"),
    "blob": ("blob", "x'0001'", "binary", b"\x00\x01"),
    "day": ("date", "'2026-01-02'", "date32[day]", date(2026, 1, 2)),
    "at": ("datetime(6)", "'2026-01-02 10:00:01.5'", "timestamp[us]", datetime(2026, 1, 2, 10, 0, 1, 500000)),
    "ts": (
        "timestamp NULL",
        "'2026-01-02 10:00:01'",
        "timestamp[us, tz=UTC]",
        datetime(2026, 1, 2, 10, 0, 1, tzinfo=UTC),
    ),
    "time": ("time", "'10:00:01'", "string", "10:00:01"),
    "mood": ("enum('sad', 'ok')", "'sad'", "string", "sad"),
    "doc": ("json", """'{"a": 1}'""", "string", '{"a": 1}'),
}


def test_every_type(maria: Shop) -> None:
    maria.execute("SET time_zone = '+00:00'")
    maria.execute("CREATE TABLE orders (" + ", ".join(f"`{name}` {kind}" for name, (kind, *_) in TYPES.items()) + ")")
    maria.execute("INSERT INTO orders VALUES (" + ", ".join(value for _, value, *_ in TYPES.values()) + ")")
    rows, _ = fetched(maria)
    found = {name: (str(rows.schema.field(name).type), rows.column(name)[0].as_py()) for name in TYPES}
    assert found == {name: (kind, value) for name, (_, _, kind, value) in TYPES.items()}


def test_a_day_that_is_none(maria: Shop) -> None:
    maria.execute("SET sql_mode = ''")
    maria.execute("CREATE TABLE orders (id int, day date)")
    maria.execute("INSERT INTO orders VALUES (1, '2026-01-01'), (2, '0000-00-00')")
    with pytest.raises(RunnelError, match="'0000-00-00' does not fit"):
        fetched(maria)
    rows, found = fetched(maria, "quarantine")
    assert rows.column("id").to_pylist() == [1] and len(found.bad_rows) == 1


def test_what_is_read_is_of_one_moment(maria: Shop, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come between the checksum and the reading belong to the next run."""
    maria.execute("CREATE TABLE orders (id int PRIMARY KEY) ENGINE = InnoDB")
    maria.execute("INSERT INTO orders VALUES (1)")
    from runnel.connect.jdbc.drivers import mysql

    batches = mysql.MySqlDatabase.batches

    def late(*words: object) -> object:
        with server.connect() as writer, writer.cursor() as cursor:
            cursor.execute("INSERT INTO shop.orders VALUES (2)")
        return batches(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(mysql.MySqlDatabase, "batches", late)
    rows, found = fetched(maria)
    assert rows.column("id").to_pylist() == [1]
    assert not feed_of(maria).find_changes(found.state).is_empty


@pytest.mark.parametrize("maria", ["process", "units"], indirect=True)
@pytest.mark.parametrize("text", [WHOLE[:-2] + ', key="id"))', MARKED], ids=["key", "watermark"])
def test_a_table_follows_it_in_both_places(maria: Shop, text: str) -> None:
    maria.execute("CREATE TABLE orders (id int PRIMARY KEY, name text, changed datetime)")
    maria.insert(ONE, TWO, THREE)
    maria.flow(text)
    maria.run()
    maria.execute("UPDATE orders SET name = 'z', changed = '2026-01-03' WHERE id = 1")
    maria.execute("DELETE FROM orders WHERE id = 2")
    maria.run()
    assert maria.names == "cz" and maria.run() == {}
    # Two reads, and the rows that the second one replaces.
    assert maria.units is None or len(maria.units.chosen) == 3


def test_its_size_is_estimated(maria: Shop) -> None:
    maria.execute("CREATE TABLE orders (id int PRIMARY KEY, name text)")
    maria.execute("INSERT INTO orders SELECT seq, repeat('x', 1000) FROM seq_1_to_1000")
    maria.execute("ANALYZE TABLE orders")
    for options in ({"table": "orders"}, {"query": "select id, name from orders"}):
        estimate = feed_of(maria, **options).find_changes(None).estimate_bytes
        assert estimate is not None and 16_000 < estimate() < 4_000_000


MISTAKES = {
    "no table": ({"table": "ordres"}, "", "close: `orders`"),
    "wrong query": ({"query": "select frm orders"}, "", "can't run the query"),
    "no database": ({}, "x", "there is no database `shopx`"),
}


@pytest.mark.parametrize(("given", "ending", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told(maria: Shop, given: dict[str, str], ending: str, told: str) -> None:
    maria.execute("CREATE TABLE orders (id int)")
    maria.url += ending
    with pytest.raises(Mistake) as raised:
        feed_of(maria, **given).find_changes(None)
    assert told in str(raised.value) and "flows/flow.py:3" in str(raised.value)


def test_a_wrong_password(maria: Shop) -> None:
    maria.execute("CREATE OR REPLACE USER locked@'127.0.0.1' IDENTIFIED BY 'right'")
    maria.url = maria.url.replace("root@", "locked:hunter2@")
    with pytest.raises(RunnelError) as raised:
        feed_of(maria).find_changes(None)
    assert raised.value.code == "SOURCE_LOGIN" and "hunter2" not in str(raised.value)
