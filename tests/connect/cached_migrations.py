"""New lakes without waiting: the migrations run once, and every later lake on SQLite gets the tables that they made.

What the migrations do is tested in tests/lake. A lake that has tables already is migrated as ever.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import migrate

_migrate = migrate._migrate


@pytest.fixture(scope="package", autouse=True)
def quick_lakes() -> Iterator[None]:
    """Make new lakes quickly, in the tests of this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_migrate", _made)
        yield


def _made(connection: Connection, *revision: str) -> None:
    if revision or connection.dialect.name != "sqlite" or sa.inspect(connection).get_table_names():
        _migrate(connection, *revision)
        return
    statements, versions = _tables()
    for statement in statements:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("insert into runnel_schema values (?)", versions)


@cache
def _tables() -> tuple[list[str], tuple[Any, ...]]:
    """Return what makes the tables of a lake, and the version of its schema, from a migration of an empty database."""
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        _migrate(connection)
        made = connection.exec_driver_sql("select sql from sqlite_master where sql is not null order by rowid")
        (version,) = connection.exec_driver_sql("select version_num from runnel_schema").one()
        return [sql for (sql,) in made], (version,)
