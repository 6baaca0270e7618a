"""Rows that executors stage in the database: however often a unit runs, each row is applied once."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from runnel import failpoint
from runnel.connect.sinks.sql.staging import create_table_names
from runnel.errors import CorruptData
from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlace
from tests.connect.sinks.conftest import Command, of_mariadb, of_postgres
from tests.connect.sinks.sink_project import Shop
from tests.connect.sinks.sql.test_sql_sink import AFTER, CHANGED, FIRST, MODES, change, declare, execute, rows
from tests.connect.sinks.unit_deliveries import AttemptRunner, How, delivering_in_units
from tests.lake.pickling_runner import PicklingRunner
from tests.servers.mariadb import Server as MariaDb

pytestmark = pytest.mark.postgres
TABLES = "select tablename from pg_tables where schemaname = 'public'"
ATTEMPTS: list[How] = ["twice, the first counts", "twice, the last counts", "again after an error"]


@pytest.fixture
def url(postgres: str) -> str:
    """Return the address of an empty database."""
    return of_postgres(postgres)


def declare_named(shop: Shop, url: str, mode: str) -> None:
    shop.sinks(f'rn.sink("ods.orders", rn.jdbc("{url}", table="orders", {MODES[mode]}), name="orders")')


def list_tables(url: str) -> set[str]:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        names = set(connection.execute(sa.text(TABLES)).scalars())
    engine.dispose()
    return names


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ATTEMPTS)
def test_each_row_is_applied_once(shop: Shop, url: str, mode: str, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(shop, url, MODES[mode])
    with delivering_in_units(AttemptRunner(how)):
        for expected in (FIRST, AFTER[mode]):
            if how == "again after an error":  # which is raised after the rows of a unit were written
                monkeypatch.setattr(failpoint, "_passed", {})
                monkeypatch.setenv("RUNNEL_FAIL", "sink.staging:error@1")
            sent = shop.sent()
            assert (sent.state, sent.place) == ("delivered", WorkPlace(EXECUTORS, "a test")), sent
            assert rows(url) == expected
            assert list_tables(url) == {"orders", "runnel_deliveries"}
            change(shop)


def test_a_kill_between_staging_and_commit_leaves_a_table_that_the_next_delivery_drops(shop: Shop, url: str) -> None:
    declare(shop, url, MODES["append"])
    with delivering_in_units():
        shop.run()
        change(shop)
        shop.killed("sink.sending:kill")
        assert rows(url) == FIRST and len(list_tables(url)) == 3
        assert shop.sent().rows == 2
    assert rows(url) == AFTER["append"] and list_tables(url) == {"orders", "runnel_deliveries"}


class _BlindRunner(PicklingRunner):
    """An executor that does not see the files of the lake."""

    def run(self, *_: Any) -> list[Any]:
        raise CorruptData("LAKE_FILE_UNREADABLE", "a file of the lake can't be read: No files found")

    run_shuffled = run


def test_an_executor_that_sees_no_files_does_not_start_everything_again(shop: Shop, url: str) -> None:
    declare(shop, url, MODES["append"])
    shop.run()
    change(shop)
    with delivering_in_units(_BlindRunner()):
        sent = shop.sent()
    assert (sent.state, sent.warning) == ("failed", None) and "No files found" in str(sent.error)
    assert rows(url) == FIRST
    (sent,) = shop.deliver()
    assert (sent.state, sent.rows) == ("delivered", 2) and rows(url) == AFTER["append"]


def test_a_key_that_belongs_to_several_rows_is_told_and_nothing_is_left(shop: Shop, url: str) -> None:
    shop.day("b", (3, "2026-01-03", "5.00"))
    declare(shop, url, 'mode="upsert", key=["amount"]')
    with delivering_in_units():
        sent = shop.sent()
    assert "the key of the sink of `ods.orders` belongs to several rows: amount = 5.00" in str(sent.error)
    assert rows(url) == [] and list_tables(url) == {"orders", "runnel_deliveries"}


@pytest.fixture
def poor_url(url: str) -> Iterator[str]:
    """Yield the address for a user who may write to existing tables, but create none."""
    user = f"poor_{url.rpartition('_')[2]}"
    execute(url, f"create role {user} login", "revoke create on schema public from public")
    yield url.replace("runnel@", f"{user}@")
    execute(url, f"drop owned by {user}", f"drop role {user}")


def test_without_the_right_to_create_tables_this_process_delivers(shop: Shop, url: str, poor_url: str) -> None:
    declare_named(shop, url, "upsert")
    shop.run()
    user = sa.make_url(poor_url).username
    execute(url, f"grant all on all tables in schema public to {user}")
    declare_named(shop, poor_url, "upsert")
    change(shop)
    with delivering_in_units():
        sent = shop.sent()
    address = f"postgresql://{poor_url.partition('@')[2]}"
    reason = f"the user may not create tables at {address}, to which executors would write first"
    assert sent.place == WorkPlace(PROCESS, reason) and rows(url) == CHANGED


def test_without_the_right_to_create_tables_in_mariadb(shop: Shop, mariadb: MariaDb) -> None:
    url = of_mariadb(mariadb)
    database = url.rpartition("/")[2]
    declare_named(shop, url, "upsert")
    shop.run()
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"create user poor_{database}@'127.0.0.1'")
        rights = "select, insert, update, delete, create temporary tables"
        cursor.execute(f"grant {rights} on {database}.* to poor_{database}@'127.0.0.1'")
    declare_named(shop, url.replace("root@", f"poor_{database}@"), "upsert")
    change(shop)
    with delivering_in_units():
        sent = shop.sent()
    assert sent.state == "delivered" and sent.place is not None and sent.place.name == PROCESS, sent
    assert sent.place.reason.startswith("the user may not create tables at mysql://127.0.0.1")


def test_no_password_is_shown_of_the_work(shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    options = f'{MODES["upsert"]}, user="runnel", password=rn.secret("SHOP_PASSWORD")'
    declare(shop, url.replace("runnel@", ""), options)
    runner = AttemptRunner("once")
    with delivering_in_units(runner):
        assert shop.sent().state == "delivered"
    assert "StagingTarget" in runner.texts[0] and "s3cret" not in str(runner.texts)


def test_commands_say_where_rows_were_written(shop: Shop, url: str, command: Command) -> None:
    declare_named(shop, url, "append")
    shop.run()
    change(shop)
    with delivering_in_units():
        code, out, err = command("run")
    assert code == 0 and "delivered 2 rows to orders" in out
    assert "note: orders was written on executors: a test" in err


def test_names_of_staging_tables_fit_every_database() -> None:
    names = create_table_names("s" * 300, "k" * 300, has_removed_rows=True)
    assert len(names.added) < 63 and len(names.removed or "") < 63
