"""Fixtures that every room's tests share: lakes on both databases, made fresh for each test."""

import atexit
import faulthandler
import gc
import os
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from _pytest.faulthandler import fault_handler_stderr_fd_key

from runnel import failpoint
from runnel.lake.store import Store
from tests.cluster.session import uses_cluster
from tests.spark.fixtures import spark  # noqa: F401

if TYPE_CHECKING:
    from tests.servers.kafka import Server
    from tests.servers.s3 import Store as Objects
    from tests.servers.spark_cluster import Cluster

os.environ.setdefault("RUNNEL_AUTHOR", "ada")
# The timeout of each test says which one it was, but it cannot end what hangs outside of Python, nor the end of the
# run. This one can: it shows where all threads are, and ends the process.
_HANGS_SECONDS = 420
_END_SECONDS = 120


def _exit_without_teardown() -> None:
    """End a worker of pytest-xdist before Python takes its modules apart.

    Some tests leave daemon threads behind, as processes that are killed do. What their frames hold is never freed, and
    DuckDB's binding (nanobind) prints a hundred lines about leaked objects then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(_exit_without_teardown)  # registered first, so called last


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process where a test, or what is put away after it, hangs for good."""
    faulthandler.dump_traceback_later(_HANGS_SECONDS, exit=True, file=item.config.stash[fault_handler_stderr_fd_key])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the process where the end of the run hangs."""
    gc.unfreeze()
    where = session.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(_END_SECONDS, exit=True, file=where)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep every test that needs Spark in one process, and so with Kafka and S3: one of each for the whole run."""
    for item in items:
        needed = [
            name for name in ("spark_cluster", "spark", "kafka", "s3") if name in getattr(item, "fixturenames", ())
        ]
        if "spark" in needed:
            item.add_marker(pytest.mark.spark)
        if needed:
            item.add_marker(pytest.mark.xdist_group(needed[0]))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported by now: 0.1 s each time that it looks through all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unused_failpoints() -> None:
    """Forget which failpoints were passed, so that one acts in each test that arms it, whichever tests ran before."""
    failpoint._passed.clear()


@pytest.fixture(scope="session", autouse=True)
def units_on_cluster(request: pytest.FixtureRequest) -> None:
    """Let the executors of the cluster work on units, if the tests of this run use one."""
    if uses_cluster():
        from runnel.spark.executors.unit_runner import ExecutorRunner
        from tests.lake import pickling_runner

        pickling_runner.cluster = ExecutorRunner(request.getfixturevalue("spark"), "units of tests")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start PostgreSQL without root and yield the address of its server, over TCP as a team would use it."""
    from tests.servers.postgres import Server

    with Server() as server:
        yield server.url


@pytest.fixture(scope="session")
def kafka() -> "Iterator[Server]":
    """Start Kafka without root, one node on loopback."""
    from tests.servers.kafka import Server

    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> "Iterator[Objects]":
    """Start an object store without root, with one bucket on loopback."""
    from tests.servers.s3 import Store as Objects

    with Objects() as store:
        yield store


@pytest.fixture(scope="session")
def spark_cluster() -> "Iterator[Cluster]":
    """Start a standalone Spark cluster without root: a master and two workers of one core on loopback."""
    from tests.servers.spark_cluster import Cluster, find_whole_jdk

    if find_whole_jdk() is None:
        pytest.skip("executors need a whole JDK 17 or 21, such as Debian's openjdk-17-jre-headless")
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty catalog database; a test that takes it runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lake/catalog.db"
    server = sa.make_url(request.getfixturevalue("postgres"))
    name = f"lake_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'create database "{name}"'))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def both(catalog: str, tmp_path: Path) -> Iterator[Store]:
    """Open an empty lake; the test runs on SQLite and on PostgreSQL."""
    store = Store.open(catalog, f"{tmp_path}/lake/warehouse")
    yield store
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open an empty lake on SQLite."""
    store = Store.open(f"sqlite:///{tmp_path}/lake/catalog.db", f"{tmp_path}/lake/warehouse")
    yield store
    store.close()


@pytest.fixture
def new_store(tmp_path: Path) -> Callable[[], Store]:
    """Return a function that opens another handle on the lake of `store`."""
    return lambda: Store.open(f"sqlite:///{tmp_path}/lake/catalog.db", f"{tmp_path}/lake/warehouse")
