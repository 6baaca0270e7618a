"""The life of tables of databases: read whole, by a key, and by a watermark with a key."""

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from runnel.connect.feed import failpoints
from tests.connect.lifecycle.source_lifecycle import STEPS, Kind, Life, Row
from tests.run.project import Project
from tests.servers import mariadb

WAYS = {"whole": "", "keyed": ', key="id"', "marked": ', watermark="changed", key="id"'}
NO_DAY = {"sqlite": "soon", "postgresql": "infinity", "mariadb": "0000-00-00"}
"""What stands for a day in these databases, and is none."""
Ask = Callable[[str], Any]


class InDatabase(Kind):
    """A table of a database: rows come, change and go."""

    def __init__(self, system: str, way: str, url: str, ask: Ask) -> None:
        super().__init__(f"{system}_{way}")
        self.system, self.way, self.url, self.ask = system, way, url, ask
        self.orders = f"orders_{way}"
        self.clock = 0
        ask(f"CREATE TABLE {self.orders} (id integer PRIMARY KEY, name varchar(100), day date, changed integer)")

    def declare(self) -> str:
        jdbc = f'rn.jdbc("{self.url}", table="{self.orders}"{WAYS[self.way]})'
        return f'rn.source("{self.table}", {jdbc}, on_bad="quarantine")'

    def put(self, number: int, name: str, day: str = "2026-01-01") -> None:
        self.clock += 1
        self.ask(f"INSERT INTO {self.orders} VALUES ({number}, '{name}', '{day}', {self.clock})")

    def change(self, number: int, name: str) -> None:
        """Change a row, and delete the next."""
        self.clock += 1
        self.ask(f"UPDATE {self.orders} SET name = '{name}', changed = {self.clock} WHERE id = {number}")
        self.ask(f"DELETE FROM {self.orders} WHERE id = {number + 1}")

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name)
        self.put(-number, name, NO_DAY[self.system])
        return 1

    def rows(self) -> list[Row]:
        return list(self.ask(f"SELECT id, name FROM {self.orders} WHERE id > 0"))


def _sqlite(root: Path, until: ExitStack) -> tuple[str, Ask]:
    connection = until.enter_context(closing(sqlite3.connect(root / "shop.db", isolation_level=None)))
    return "sqlite:///shop.db", lambda text: connection.execute(text).fetchall()


def _postgresql(server: str, until: ExitStack) -> tuple[str, Ask]:
    name = f"life_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as first:
        first.execute(f'CREATE DATABASE "{name}"')
    url = server.rpartition("/")[0] + f"/{name}"
    connection = until.enter_context(psycopg.connect(url, autocommit=True))

    def ask(text: str) -> Any:
        found = connection.execute(text)
        return found.fetchall() if found.description else []

    return url, ask


def _mariadb(until: ExitStack) -> tuple[str, Ask]:
    server = until.enter_context(mariadb.Server())
    connection = until.enter_context(server.connect())
    cursor = until.enter_context(connection.cursor())
    for text in ("CREATE DATABASE shop CHARACTER SET utf8mb4", "USE shop", "SET sql_mode = ''"):
        cursor.execute(text)

    def ask(text: str) -> Any:
        cursor.execute(text)
        return cursor.fetchall()

    return f"{server.url}/shop", ask


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[Life]:
    root = tmp_path_factory.mktemp("life")
    with ExitStack() as until:
        systems = {"sqlite": _sqlite(root, until), "postgresql": _postgresql(postgres, until)}
        with suppress(mariadb.Absent):  # its tests say so
            systems["mariadb"] = _mariadb(until)
        circles = []
        for first, way in enumerate(WAYS):  # each begins with another system, so that a kill meets all of them
            names = [*systems][first:] + [*systems][:first]
            circles.append([InDatabase(system, way, *systems[system]) for system in names])
        yield Life(Project(root), circles, dict.fromkeys(failpoints.ALL, len(circles))).live()


@pytest.mark.crash
@pytest.mark.postgres
@pytest.mark.xdist_group("life of databases")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("system", NO_DAY)
def test_life(life: Life, system: str, way: str, step: str) -> None:
    if system == "mariadb" and all(kind.name != f"mariadb_{way}" for kind in life.kinds):
        pytest.skip("there is no MariaDB on this machine, and none can be fetched")
    life.check(f"{system}_{way}", step)
