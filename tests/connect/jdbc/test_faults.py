"""What goes wrong while a database is read: kills, servers that are away, passwords, writers at the same time."""

import json
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest

from runnel.connect.feed import failpoints as feed_points
from runnel.errors import Cancelled, RunnelError, Unreachable
from runnel.lake import failpoints as lake_points
from tests.connect.jdbc.source_databases import IN_BOTH_PLACES, Shop, feed_of, fetched
from tests.run.project import Project

MARKED = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", watermark="changed", key="id"))'
POINTS = (*feed_points.ALL, lake_points.PUBLISH_AFTER_COMMIT)
SECRET = "hunter2-s3cret"


def _run(root: str) -> None:
    assert not Project(Path(root)).run().errors


@pytest.mark.postgres
@IN_BOTH_PLACES
def test_all_connections_see_one_moment(pg: Shop, database: str) -> None:
    """A writer moves money between accounts while 4 connections read: the sum is always the same."""
    pg.execute("CREATE TABLE orders AS SELECT id, 100 AS amount FROM generate_series(1, 20000) AS id")
    pg.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    stop = threading.Event()

    def move() -> None:
        with psycopg.connect(database, autocommit=True) as writer:
            number = 0
            while not stop.is_set():
                number += 1
                one, other = number % 20000 + 1, (number * 7919) % 20000 + 1
                with writer.transaction():
                    writer.execute("UPDATE orders SET amount = amount - 1 WHERE id = %s", (one,))
                    writer.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (other,))

    thread = threading.Thread(target=move)
    thread.start()
    try:
        for options in ({"table": "orders"}, {"query": "select * from orders", "key": ("id",)}):
            rows, found = fetched(pg, partitions=4, **options)
            assert len(found.parts) == 4
            assert sum(rows.column("amount").to_pylist()) == 2_000_000
            assert sorted(rows.column("id").to_pylist()) == list(range(1, 20001))
    finally:
        stop.set()
        thread.join()


PARTITIONED = {
    "date": ("date '2026-01-01' + id", ("v",)),
    "time": ("timestamptz '2026-01-01' + id * interval '1 hour'", ("v",)),
    "float": ("(id * 0.5)::float8", ("v",)),
    "nulls": ("nullif(id % 10, 3)", ("v",)),
    "one value": ("1", ("v",)),
    "text": ("id::text", ("v",)),
}


@pytest.mark.postgres
@IN_BOTH_PLACES
@pytest.mark.parametrize(("sql", "key"), PARTITIONED.values(), ids=PARTITIONED)
def test_partitions_hold_each_row_once(pg: Shop, sql: str, key: tuple[str, ...]) -> None:
    pg.execute(f"CREATE TABLE orders AS SELECT id, {sql} AS v FROM generate_series(1, 100) AS id")
    rows, _ = fetched(pg, "drop", query="select * from orders", watermark="v", partitions=3)
    ids = rows.column("id").to_pylist()
    expected = [number for number in range(1, 101) if sql != "nullif(id % 10, 3)" or number % 10 != 3]
    assert sorted(ids) == expected


@pytest.mark.postgres
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_cancelled_run_lets_go_of_the_server(pg: Shop, partitions: int) -> None:
    pg.execute("CREATE TABLE orders AS SELECT id, repeat('x', 200) AS v FROM generate_series(1, 200000) AS id")
    feed, folder = feed_of(pg, partitions=partitions), pg.project.root / "parts"
    folder.mkdir()

    def cancel(what: str, done: int, total: int | None) -> None:
        if done:
            raise Cancelled

    with pytest.raises(Cancelled):
        feed.fetch(None, feed.find_changes(None), folder, cancel)
    others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'runnel' AND datname = current_database()"
    over = time.monotonic() + 10
    while pg.execute(others).fetchone()[0]:
        assert time.monotonic() < over


def test_nothing_answers(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    for scheme in ("postgresql", "mysql"):
        shop = Shop(Project(tmp_path), f"{scheme}://ada:{SECRET}@127.0.0.1:{port}/shop", lambda *_: None)
        with pytest.raises(Unreachable) as raised:
            feed_of(shop).find_changes(None)
        told = str(raised.value)
        assert f"127.0.0.1:{port}/shop does not answer" in told and "flows/flow.py:3" in told and SECRET not in told
        assert f"the host `127.0.0.1` answers, but nothing listens on port {port}\n" in told
        assert "fix: correct the port, or start the database; then run again" in told


@pytest.fixture
def locked(pg: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Return a shop whose user `locked` needs a password."""
    (path,) = pg.execute("SHOW hba_file").fetchone()
    (rules,) = pg.execute("SELECT pg_read_file(%s)", (path,)).fetchone()
    if "locked" not in rules:
        pg.execute(f"CREATE ROLE locked LOGIN PASSWORD '{SECRET}'")
        lines = ["host all locked 127.0.0.1/32 scram-sha-256", *rules.splitlines()]
        text = ",".join("'" + line.replace("'", "''") + "'" for line in lines)
        pg.execute(f"COPY (SELECT unnest(ARRAY[{text}])) TO '{path}' WITH (FORMAT text)")
        pg.execute("SELECT pg_reload_conf()")
    pg.execute("CREATE TABLE orders AS SELECT 1 AS id, 'a' AS name")
    pg.execute("GRANT SELECT ON orders TO locked")
    monkeypatch.setenv("PG_PASSWORD", SECRET)
    pg.flow('rn.source("ods.orders", rn.jdbc("{url}", table="orders", password=rn.secret("PG_PASSWORD")))')
    pg.url = pg.url.replace("runnel@", "locked@")
    pg.flow('rn.source("ods.orders", rn.jdbc("{url}", table="orders", password=rn.secret("PG_PASSWORD")))')
    return pg


@pytest.mark.postgres
def test_a_password_is_never_shown(locked: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.dumps(locked.project.plan(), default=repr)
    assert locked.run() == {"ods.orders": "ingest"}
    kept = b"".join(path.read_bytes() for path in locked.project.root.rglob("*") if path.is_file())
    shown = capsys.readouterr()
    assert SECRET not in plan + shown.out + shown.err and SECRET.encode() not in kept


@pytest.mark.postgres
def test_a_wrong_password_is_told_and_not_shown(locked: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_PASSWORD", "wrong-" + SECRET)
    with pytest.raises(RunnelError) as raised:
        locked.project.plan()
    told = str(raised.value)
    assert "SOURCE_LOGIN" in told and "refuses the login for the user `locked`" in told and SECRET not in told
    monkeypatch.delenv("PG_PASSWORD")
    with pytest.raises(RunnelError, match="PG_PASSWORD, which is not set"):
        locked.project.plan()


@pytest.mark.postgres
def test_a_whole_url_may_be_secret(locked: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "jdbc:" + locked.url.replace("locked@", f"locked:{SECRET}@"))
    locked.flow('rn.source("ods.orders", rn.jdbc(rn.secret("SHOP_URL"), table="orders"))')
    assert locked.run() == {"ods.orders": "ingest"}
    monkeypatch.setenv("SHOP_URL", locked.url.replace("locked@", f"locked:{SECRET}@").replace("/jdbc_", "/no_jdbc_"))
    with pytest.raises(RunnelError) as raised:
        locked.project.plan()
    assert "SOURCE_NO_DATABASE: there is no database `no_jdbc_" in str(raised.value) and SECRET not in str(raised.value)
