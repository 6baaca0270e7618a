"""Fixtures of sinks."""

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.cli.main import main
from tests.connect.cached_migrations import quick_lakes  # noqa: F401
from tests.connect.sinks.change_sink_kinds import Function, Topics, Webhooks
from tests.connect.sinks.sink_kinds import Databases, Folder, Kind, Objects, OneFile, Sqlite
from tests.connect.sinks.sink_project import Shop
from tests.connect.sinks.unit_deliveries import delivering_in_units
from tests.servers.http_server import Server
from tests.servers.mariadb import Server as MariaDb
from tests.servers.mariadb import started

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a project with orders of two days."""
    made = Shop(tmp_path)
    made.day("a", (1, "2026-01-01", "5.00"), (2, "2026-01-02", "6.50"))
    return made


TARGETS = {"sqlite": (), "postgresql": [pytest.mark.postgres], "postgresql units": [pytest.mark.postgres]}


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, marks in TARGETS.items()])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the address of an empty database to deliver to, in this process or in units."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/out.db"
        return
    with delivering_in_units() if request.param.endswith(" units") else nullcontext():
        yield of_postgres(request.getfixturevalue("postgres"))


@pytest.fixture(params=["process", "units"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield where a test delivers."""
    with delivering_in_units() if request.param == "units" else nullcontext():
        yield request.param


@pytest.fixture
def hook() -> Iterator[Server]:
    """Start a server that takes posts at `/hook`."""
    with Server() as server:
        yield server


@pytest.fixture
def command(shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs `runnel WORDS` in the project, and returns its code, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["runnel", "-C", str(shop.root), *words])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as done:
            code = int(done.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """Start MariaDB, or skip the test where there is none."""
    with started() as server:
        yield server


KINDS: dict[str, Callable[[pytest.FixtureRequest, Path], Kind]] = {
    "sqlite": lambda _, root: Sqlite(
        "sqlite:///out.db", sa.create_engine(f"sqlite:///{root}/out.db", poolclass=sa.NullPool)
    ),
    "postgresql": lambda request, _: databases(of_postgres(request.getfixturevalue("postgres"))),
    "mariadb": lambda request, _: databases(of_mariadb(request.getfixturevalue("mariadb"))),
    "postgresql units": lambda request, _: databases(of_postgres(request.getfixturevalue("postgres"))),
    "mariadb units": lambda request, _: databases(of_mariadb(request.getfixturevalue("mariadb"))),
    "file": lambda _, root: OneFile(root),
    "folder": lambda _, root: Folder(root),
    "objects": lambda request, root: Objects(request.getfixturevalue("s3"), root),
    "kafka": lambda request, root: Topics(request.getfixturevalue("kafka"), uuid.uuid4().hex[:8]),
    "webhook": lambda request, _: Webhooks(request.getfixturevalue("hook")),
    "function": lambda _, root: Function(root),
    "folder units": lambda _, root: Folder(root),
    "objects units": lambda request, root: Objects(request.getfixturevalue("s3"), root),
    "kafka units": lambda request, root: Topics(request.getfixturevalue("kafka"), uuid.uuid4().hex[:8]),
}
MARKS = {
    "postgresql": [pytest.mark.postgres],
    "postgresql units": [pytest.mark.postgres],
    "kafka": [pytest.mark.xdist_group("kafka")],
    "kafka units": [pytest.mark.xdist_group("kafka")],
    "objects": [pytest.mark.xdist_group("s3")],
    "objects units": [pytest.mark.xdist_group("s3")],
}


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in KINDS])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Yield a kind of sink whose outside is empty; a test that takes it runs for each."""
    in_units = delivering_in_units() if request.param.endswith(" units") else nullcontext()
    with in_units, closing(KINDS[request.param](request, tmp_path)) as found:
        yield found


def of_postgres(server: str) -> str:
    """Make an empty database of PostgreSQL, and return its address."""
    url, name = sa.make_url(server), f"out_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'create database "{name}"'))
    engine.dispose()
    return url.set(database=name).render_as_string(hide_password=False)


def of_mariadb(server: MariaDb) -> str:
    """Make an empty database of MariaDB, and return its address."""
    name = f"out_{uuid.uuid4().hex[:12]}"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"create database {name} character set utf8mb4")
    return f"{server.url}/{name}"


def databases(url: str) -> Databases:
    """Return the tables of a database."""
    drivers = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
    made = sa.make_url(url)
    plain = {"connect_args": {"ssl_disabled": True}} if made.drivername == "mariadb" else {}
    engine = sa.create_engine(made.set(drivername=drivers[made.drivername]), poolclass=sa.NullPool, **plain)
    return Databases(url, engine)
