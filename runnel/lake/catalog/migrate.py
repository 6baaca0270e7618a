"""Migrate the catalog database to the schema of this version of Runnel, or refuse a newer one.

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
from runnel.private_files import create_private_file, is_private

MAIN_BRANCH = "main"
_LOCK_ID = 5_817_202_611  # advisory lock: one migration at a time on PostgreSQL


def migrate_catalog(
    db: Database, warehouse: str, author: str, check_new_lake: Callable[[], None] | None = None
) -> None:
    """Create or migrate the schema, and create a new lake's branch main; `check_new_lake` may raise before that."""
    revision = _read_supported_revision(db)
    if revision == REVISIONS[-1]:
        return
    if revision is None and check_new_lake is not None:
        check_new_lake()
    if db.is_sqlite and db.url.database:
        _create_database_file(Path(db.url.database))

    def work(connection: Connection) -> None:
        if not db.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_ID)))
        if _read_revision(connection) != REVISIONS[-1]:
            _migrate(connection)
        if connection.execute(sa.select(schema.lake.c.id)).first() is None:
            _create_lake(connection, db.now(connection), warehouse, author)

    db.write(work)


def _create_database_file(path: Path) -> None:
    """Create the folder of a SQLite database, and in a private folder a private file; SQLite's own files copy it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_private(path.parent):
        create_private_file(path)


def _read_supported_revision(db: Database) -> str | None:
    if db.is_sqlite and not Path(db.url.database or "").exists():
        return None
    revision = db.read(_read_revision)
    if revision is not None and revision not in REVISIONS:
        raise Mistake(
            "DATABASE_NEWER",
            f"a newer version of Runnel wrote this lake: its schema is {revision}, "
            f"and this version supports {REVISIONS[-1]}",
            fix="upgrade Runnel: pip install --upgrade runnel",
        )
    return revision


def _read_revision(connection: Connection) -> str | None:
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


def _create_lake(connection: Connection, now: str, warehouse: str, author: str) -> None:
    """Insert the lake's row, the branch main, and the root commit."""
    line, root_commit_id = uuid.uuid4().hex, new_commit_id()
    lake_row = {"id": 1, "uuid": str(uuid.uuid4()), "warehouse": warehouse, "seq": 1, "created_at": now}
    connection.execute(schema.lake.insert().values(lake_row))
    connection.execute(schema.lines.insert().values(id=line, branch=MAIN_BRANCH))
    connection.execute(
        schema.commits.insert().values(
            id=root_commit_id,
            seq=1,
            line=line,
            branch=MAIN_BRANCH,
            kind="create",
            author=author,
            message="the lake is created",
            at=now,
        )
    )
    branch_row = {"name": MAIN_BRANCH, "line": line, "head": root_commit_id, "created_at": now, "author": author}
    connection.execute(schema.branches.insert().values(branch_row))
