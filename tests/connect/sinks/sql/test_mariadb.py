"""Tables of MariaDB, which speaks as MySQL does."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.connect.sinks.conftest import of_mariadb
from tests.connect.sinks.sink_project import Shop
from tests.servers.mariadb import Server

SINK = 'rn.sink("ods.orders", rn.jdbc("{url}", table="orders", {options}))'
UPSERT = 'mode="upsert", key=["id"]'
Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def url(mariadb: Server) -> str:
    """Return the address of an empty database."""
    return of_mariadb(mariadb)


@pytest.fixture
def ask(mariadb: Server, url: str) -> Ask:
    """Return a function that asks the database."""

    def run(sql: str = "select id, cast(day as char), amount from orders order by id") -> list[tuple[Any, ...]]:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"use {url.rpartition('/')[2]}")
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    return run


def test_upsert_follows_changes_and_deletes(shop: Shop, url: str, ask: Ask) -> None:
    shop.sinks(SINK.format(url=url, options=UPSERT))
    assert shop.sent().rows == 2
    shop.day("a", (1, "2026-01-01", "7.00"), (3, "2026-01-03", "8.00"))
    shop.run()
    assert [(row[0], row[1], float(row[2])) for row in ask()] == [(1, "2026-01-01", 7.0), (3, "2026-01-03", 8.0)]
    shop.write("data/orders/b.csv", "id,day,amount,note\n4,2026-01-03,8,é\n")
    shop.run()
    assert ask("select id, note from orders order by id") == [(1, None), (3, None), (4, "é")]


def test_a_table_without_the_key_is_told(shop: Shop, url: str, ask: Ask) -> None:
    ask("create table orders (id bigint, day date, amount decimal(12,2))")
    ask("insert into orders values (1, null, 1)")
    shop.sinks(SINK.format(url=url, options=UPSERT))
    assert "no unique index on (id)" in str(shop.sent().error)
    ask("create unique index one on orders (id)")
    assert shop.sent().state == "delivered" and [row[0] for row in ask()] == [1, 2]
