"""Bring the catalog database to the schema of this version of Runnel, or refuse a newer one.

Alembic is imported only when there is something to migrate.
"""

import uuid
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.schema_revisions import REVISIONS
from runnel.names import new_commit_id

MAIN = "main"
_LOCK = 5_817_202_611  # any number, the same in every Runnel: one migration at a time on PostgreSQL


def upgrade(db: Database, warehouse: str, author: str, refuse: Callable[[], None] | None = None) -> None:
    """Create or migrate the schema, and make the branch main of a new lake; `refuse` may raise before it is made."""
    revision = _found(db)
    if revision == REVISIONS[-1]:
        return
    if revision is None and refuse is not None:
        refuse()
    if db.is_sqlite and db.url.database:
        Path(db.url.database).parent.mkdir(parents=True, exist_ok=True)

    def work(connection: Connection) -> None:
        if not db.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if _revision(connection) != REVISIONS[-1]:
            _migrate(connection)
        if connection.execute(sa.select(schema.lake.c.id)).first() is None:
            _create(connection, db.now(connection), warehouse, author)

    db.write(work)


def _found(db: Database) -> str | None:
    if db.is_sqlite and not Path(db.url.database or "").exists():
        return None
    revision = db.read(_revision)
    if revision is not None and revision not in REVISIONS:
        raise Mistake(
            "DATABASE_NEWER",
            f"this lake was written by a newer Runnel: its schema is {revision}, this one knows {REVISIONS[-1]}",
            fix="upgrade Runnel: pip install --upgrade runnel",
        )
    return revision


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("runnel_schema"):
        return None
    return connection.execute(sa.text("select version_num from runnel_schema")).scalar()


def _migrate(connection: Connection, revision: str = REVISIONS[-1]) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _create(connection: Connection, now: str, warehouse: str, author: str) -> None:
    """Make the lake's own row, the branch main, and the commit that everything descends from."""
    line, root = uuid.uuid4().hex, new_commit_id()
    rows = {"id": 1, "uuid": str(uuid.uuid4()), "warehouse": warehouse, "seq": 1, "created_at": now}
    connection.execute(schema.lake.insert().values(rows))
    connection.execute(schema.lines.insert().values(id=line, branch=MAIN))
    connection.execute(
        schema.commits.insert().values(
            id=root, seq=1, line=line, branch=MAIN, kind="create", author=author, message="the lake is created", at=now
        )
    )
    branch = {"name": MAIN, "line": line, "head": root, "created_at": now, "author": author}
    connection.execute(schema.branches.insert().values(branch))
