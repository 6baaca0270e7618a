"""Databases that a project reads: SQLite and PostgreSQL, the real ones, made empty for each test."""

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.feed.protocol import FetchedRows
from runnel.connect.jdbc.feed import JdbcFeed
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName
from tests.connect.feed_places import fetch_in_units, use_units
from tests.lake.pickling_runner import PicklingRunner
from tests.run.project import Project, did

ORDERS = "CREATE TABLE orders (id integer PRIMARY KEY, name text, changed timestamp)"


class Shop:
    """A project, and the database that it reads; `units` is the runner of its work units."""

    def __init__(
        self, project: Project, url: str, execute: Callable[..., Any], units: PicklingRunner | None = None
    ) -> None:
        self.units = units
        self.project = project
        self.url = url
        self.execute = execute

    def flow(self, text: str) -> None:
        if self.units is not None:
            text = text.replace('rn.jdbc("{url}", ', 'rn.jdbc("{url}", partitions=3, ')
        self.project.flow(text.replace("{url}", self.url), orders=None)

    def insert(self, *rows: tuple[Any, ...]) -> None:
        for row in rows:
            values = ", ".join("NULL" if value is None else repr(value) for value in row)
            self.execute(f"INSERT INTO orders VALUES ({values})")

    def run(self) -> dict[str, str]:
        ran = self.project.run()
        assert not ran.errors, str(ran.errors[0])
        return did(ran)

    def error(self) -> str:
        ran = self.project.run()
        assert ran.errors and not did(ran)
        return str(ran.errors[0])

    @property
    def names(self) -> str:
        return "".join(sorted(row[1] for row in self.project.rows("ods.orders")))

    def rows(self, table: str = "ods.orders") -> list[tuple[Any, ...]]:
        return self.project.rows(table)


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Make an empty database of PostgreSQL."""
    name = f"jdbc_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    yield postgres.rpartition("/")[0] + f"/{name}"


IN_BOTH_PLACES = pytest.mark.parametrize("pg", ["process", "units"], indirect=True)
"""Marks a test that reads PostgreSQL in this process, and in units as executors do."""


@pytest.fixture
def pg(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> Iterator[Shop]:
    units = use_units(request) if getattr(request, "param", "process") == "units" else None
    with psycopg.connect(database, autocommit=True) as connection:
        yield Shop(Project(tmp_path), database, connection.execute, units)


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "data").mkdir()
    with closing(sqlite3.connect(tmp_path / "data" / "shop.db", isolation_level=None)) as connection:
        yield Shop(Project(tmp_path), "sqlite:///data/shop.db", connection.execute)


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.postgres) for name in ("postgresql", "postgresql units"))]
)
def shop(request: pytest.FixtureRequest) -> Shop:
    """Return a shop with an empty table; a test that takes it runs on SQLite, and on PostgreSQL in both places."""
    found: Shop = request.getfixturevalue("lite" if request.param == "sqlite" else "pg")
    if request.param == "postgresql units":
        found.units = use_units(request)
    found.execute(ORDERS)
    return found


@pytest.fixture
def small(lite: Shop) -> Shop:
    """Return a shop with an empty table on SQLite, for what does not depend on the database."""
    lite.execute(ORDERS)
    return lite


def feed_of(shop: Shop, on_bad: Any = "stop", **options: Any) -> JdbcFeed:
    """Return the feed of the table `orders`, or of what is said instead."""
    given = {"url": shop.url, **({} if "query" in options else {"table": "orders"}), **options}
    source = Source(TableName("ods", "orders"), Jdbc(**given), SourceLocation("flows/flow.py", 3), on_bad=on_bad)
    return JdbcFeed(source, source.origin, shop.project.root)  # type: ignore[arg-type]


def fetched(shop: Shop, on_bad: Any = "stop", **options: Any) -> tuple[pa.Table, FetchedRows]:
    """Fetch everything, and return its rows too."""
    feed = feed_of(shop, on_bad, **options)
    folder = shop.project.root / f"fetched-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    changes = feed.find_changes(None)
    if shop.units is not None:
        found = fetch_in_units(feed, None, changes, shop.units, folder)
    else:
        found = feed.fetch(None, changes, folder, lambda *_: None)
    return pa.concat_tables([pq.read_table(part.path) for part in found.parts]), found
