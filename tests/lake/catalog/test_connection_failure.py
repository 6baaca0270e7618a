"""A catalog that can't be used: which part of its address is wrong."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake, RunnelError, Unreachable
from runnel.lake.store import Store

pytestmark = pytest.mark.postgres


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine on which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


def fail_to_open(url: sa.URL, tmp_path: Path) -> RunnelError:
    with pytest.raises(RunnelError) as raised:
        Store.open(url.render_as_string(hide_password=False), f"{tmp_path}/warehouse")
    return raised.value


def test_a_wrong_database(postgres: str, tmp_path: Path) -> None:
    url = sa.make_url(postgres)
    error = fail_to_open(url.set(database="nope"), tmp_path)
    assert isinstance(error, Mistake) and str(error) == (
        f"DATABASE_MISSING: there is no database `nope` at 127.0.0.1:{url.port}, which lake.catalog names\n"
        "  fix: create it (`createdb nope`), or correct lake.catalog"
    )


def test_a_wrong_role(postgres: str, tmp_path: Path) -> None:
    url = sa.make_url(postgres)
    error = fail_to_open(url.set(username="nobody_here"), tmp_path)
    assert isinstance(error, Mistake) and str(error) == (
        f"DATABASE_LOGIN: PostgreSQL at 127.0.0.1:{url.port} refuses the role `nobody_here` of lake.catalog: "
        'role "nobody_here" does not exist\n'
        "  fix: correct the user or the password in lake.catalog, or create it"
    )


def test_a_wrong_port(closed_port: int, tmp_path: Path) -> None:
    error = fail_to_open(sa.make_url(f"postgresql://ada@127.0.0.1:{closed_port}/lake"), tmp_path)
    assert isinstance(error, Unreachable) and error.code == "DATABASE_UNREACHABLE"
    answer = f"the host `127.0.0.1` answers, but nothing listens on port {closed_port}"
    assert error.what.endswith(f"does not answer: {answer}")
    assert error.fix == "correct the port, or start the database"


def test_a_wrong_host(tmp_path: Path) -> None:
    error = fail_to_open(sa.make_url("postgresql://ada@nohost.invalid/lake"), tmp_path)
    assert isinstance(error, Unreachable) and error.what.endswith("does not answer: there is no host `nohost.invalid`")
    assert error.fix == "correct the host, or the name server of this machine"
