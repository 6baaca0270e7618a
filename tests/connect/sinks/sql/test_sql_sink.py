"""Tables of databases: after every run they hold what their mode promises, whatever happened in between."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.connect.sinks.sink_project import KILLED, Shop

FIRST = [(1, "2026-01-01", 5.0), (2, "2026-01-02", 6.5)]
CHANGED = [(1, "2026-01-01", 7.0), (3, "2026-01-03", 8.0)]
SINK = 'rn.sink("ods.orders", rn.jdbc("{url}", table="{table}", {options}))'
UPSERT, APPEND, OVERWRITE = 'mode="upsert", key=["id"]', 'mode="append"', 'mode="overwrite"'
SQLITE = pytest.mark.parametrize("target", ["sqlite"], indirect=True)
MODES = {"upsert": UPSERT, "append": APPEND, "overwrite": OVERWRITE}


def declare(shop: Shop, url: str, options: str, table: str = "orders") -> None:
    path = url.removeprefix("sqlite:///")
    shop.sinks(SINK.format(url=url if path == url else f"sqlite:////{path.lstrip('/')}", options=options, table=table))


def execute(url: str, *statements: str) -> None:
    engine = _engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def rows(url: str, table: str = "orders", columns: str = "id, day, amount") -> list[tuple[Any, ...]]:
    engine = _engine(url)
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"select {columns} from {table}")).all()
    engine.dispose()
    return sorted(tuple(_plain(value) for value in row) for row in found)


def _engine(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def _plain(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value if isinstance(value, int | float) else str(value)


def change(shop: Shop) -> None:
    shop.day("a", (1, "2026-01-01", "7.00"), (3, "2026-01-03", "8.00"))


AFTER = {"upsert": CHANGED, "overwrite": CHANGED, "append": sorted(FIRST + CHANGED)}


KILLS = {
    "append, accepted": ("postgresql", "append", KILLED),
    "append, sending": ("postgresql", "append", "sink.sending:kill"),
    "upsert, accepted": ("postgresql", "upsert", KILLED),
    "sqlite": ("sqlite", "append", KILLED),
}


@SQLITE
def test_after_a_kill_what_came_since_is_one_change_from_what_is_there(shop: Shop, target: str) -> None:
    declare(shop, target, APPEND)
    shop.run()
    shop.day("b", (3, "2026-01-03", "8.00"))
    shop.killed()
    shop.day("c", (4, "2026-01-03", "9.00"))
    assert shop.sent().rows == 1
    assert [row[0] for row in rows(target)] == [1, 2, 3, 4]


@SQLITE
def test_several_commits_are_one_delivery_of_the_newest(shop: Shop, target: str) -> None:
    shop.sinks()
    shop.run()
    change(shop)
    shop.run()
    declare(shop, target, UPSERT)
    assert (shop.sent().commits, rows(target)) == (1, CHANGED)


def test_rows_of_others_stay_and_their_columns_too(shop: Shop, target: str) -> None:
    execute(
        target,
        "create table orders (id bigint primary key, day varchar(10), amount numeric(20,4), note varchar(20))",
        "insert into orders values (1, 'old', 1, 'mine'), (99, 'other', 2, 'mine')",
    )
    declare(shop, target, UPSERT)
    shop.run()
    found = rows(target, columns="id, day, note")
    assert found == [(1, "2026-01-01", "mine"), (2, "2026-01-02", "None"), (99, "other", "mine")]
    shop.day("a", (2, "2026-01-02", "6.50"))
    shop.run()
    assert [row[0] for row in rows(target)] == [2, 99]


def test_a_new_column_comes_along(shop: Shop, target: str) -> None:
    declare(shop, target, UPSERT)
    shop.run()
    shop.write("data/orders/b.csv", "id,day,amount,note\n3,2026-01-03,8,hello\n")
    shop.run()
    assert rows(target, columns="id, note") == [(1, "None"), (2, "None"), (3, "hello")]


def test_a_table_that_was_dropped_there_is_delivered_in_full(shop: Shop, target: str) -> None:
    declare(shop, target, APPEND)
    shop.run()
    execute(target, "drop table orders")
    shop.day("b", (3, "2026-01-03", "8.00"))
    assert (shop.sent().rows, len(rows(target))) == (3, 3)
    execute(target, "drop table orders")
    assert shop.run().sinks == ()
    assert [sent.rows for sent in shop.deliver()] == [3]


@SQLITE
def test_a_table_that_was_dropped_in_the_lake_takes_its_rows_along(shop: Shop, target: str) -> None:
    declare(shop, target, UPSERT)
    ran = shop.run()
    with shop.open() as lake:
        lake.revert(ran.commit or "")
    shop.deliver()
    assert rows(target) == []


@SQLITE
def test_reset_delivers_everything_again(shop: Shop, target: str) -> None:

    declare(shop, target, APPEND)
    shop.run()
    with shop.open() as lake:
        lake.reset_sink("ods.orders")
    assert shop.states()[0]["behind"] == 1
    assert (shop.sent().rows, len(rows(target))) == (2, 4)


def test_an_unreachable_database_fails_no_run_and_catches_up(
    shop: Shop, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    options = f'{UPSERT}, user="ada", password=rn.secret("SHOP_PASSWORD")'
    shop.sinks(SINK.format(url="postgresql://127.0.0.1:1/shop", table="orders", options=options))
    ran = shop.run()
    (sent,) = ran.sinks
    assert ran.state == "succeeded" and sent.state == "failed" and sent.error is not None
    assert sent.error.code == "SINK_UNREACHABLE" and "flows/flow.py:4" in str(sent.error)
    (state,) = shop.states()
    assert (state["state"], state["behind"], state["attempts"]) == ("failing", 1, 1)
    assert "s3cret" not in str(state) + str(sent) + Path(ran.log or "").read_text()
    change(shop)
    shop.run()
    assert [(one["behind"], one["attempts"]) for one in shop.states()] == [(2, 2)]
    execute(postgres, "drop table if exists orders, runnel_deliveries")
    shop.sinks(SINK.format(url=postgres, table="orders", options=UPSERT)[:-1] + f', name="{state["sink"]}")')
    assert shop.sent().state == "delivered"
    assert rows(postgres) == CHANGED and shop.states()[0]["state"] == "current"
    execute(postgres, "drop table orders, runnel_deliveries")


MISTAKES = {
    "key unknown": ('mode="upsert", key=["idd"]', "has no column `idd`; close: `id`"),
    "key not unique": ('mode="upsert", key=["amount"]', "belongs to several rows: amount = 5.00"),
}


@SQLITE
@pytest.mark.parametrize(("options", "told"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_wrong_is_told(shop: Shop, target: str, options: str, told: str) -> None:
    shop.day("b", (3, "2026-01-03", "5.00"))
    declare(shop, target, options)
    sent = shop.sent()
    assert sent.state == "failed" and told in str(sent.error) and "flows/flow.py:4" in str(sent.error)


@SQLITE
def test_a_table_without_the_key_is_told(shop: Shop, target: str) -> None:
    execute(
        target, "create table orders (id bigint, day date, amount numeric)", "insert into orders values (1, null, 1)"
    )
    declare(shop, target, UPSERT)
    assert "no unique index on (id)" in str(shop.sent().error)
    execute(target, "create unique index one on orders (id)")
    assert shop.sent().state == "delivered" and rows(target) == FIRST


def test_every_type_arrives(shop: Shop, target: str) -> None:
    kinds = "id long, a int, b double, c float, d boolean, e string, f timestamp, g decimal(30,10), h array<long>"
    shop.write(
        "data/all/a.jsonl",
        '{"id": 1, "a": 2, "b": 1.5, "c": 2.5, "d": true, "e": "é\'", "f": '
        '"2026-01-02T03:04:05.123456Z", "g": "-0.0000000012", "h": [1, null]}\n{"id": 2}\n',
    )
    shop.write(
        "flows/flow.py",
        f'import runnel as rn\nrn.source("ods.all", rn.files("data/all/*.jsonl", schema="{kinds}"))\n'
        + SINK.format(url=_declared(target), table="everything", options=UPSERT).replace("ods.orders", "ods.all"),
    )
    assert shop.sent().rows == 2
    one, two = rows(target, "everything", "id, a, b, c, d, e, f, g, h")
    assert one[:6] == (1, 2, 1.5, 2.5, True, "é'") and one[6].startswith("2026-01-02 03:04:05.123456")
    assert float(one[7]) == -1.2e-9 and one[8].replace(" ", "") in ("[1,null]", "[1,None]")
    assert set(two[1:]) == {"None"}


def _declared(url: str) -> str:
    path = url.removeprefix("sqlite:///")
    return url if path == url else f"sqlite:////{path.lstrip('/')}"
