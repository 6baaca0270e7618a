"""Fixtures of sinks."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.http_server import Server
from tests.sinks.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a project with orders of two days."""
    made = Shop(tmp_path)
    made.day("a", (1, "2026-01-01", "5.00"), (2, "2026-01-02", "6.50"))
    return made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database to deliver to."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/out.db"
    server = sa.make_url(request.getfixturevalue("postgres"))
    name = f"out_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'create database "{name}"'))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def hook() -> Iterator[Server]:
    """Start a server that takes posts at `/hook`."""
    with Server() as server:
        yield server
