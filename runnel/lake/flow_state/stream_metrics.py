"""Read the metrics of stream batches and continuous ingests as a time series, and what sources last had to offer."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.names import TableName

_LOOK_PREFIX = "look:"


@dataclass(frozen=True)
class BatchMetrics:
    """One batch: when it was recorded, its commit if it changed anything, and its metrics."""

    at: str
    commit: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class SourceLook:
    """What a source had at `at` that its table lacked, as far as that is known without reading it.

    `since` is when some of it was first seen; None if nothing is known to wait.
    """

    at: str
    since: str | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def record_look(db: Database, branch: str, table: TableName, look: SourceLook) -> None:
    """Record what a source had when a worker last looked, instead of what was recorded before."""
    query, columns = _name_look(branch, table), schema.batches.c
    values = {"at": look.at, "detail": json.dumps(asdict(look))}

    def work(connection: Connection) -> None:
        if not connection.execute(schema.batches.update().where(columns.query == query).values(values)).rowcount:
            names = {"query": query, "epoch": 0, "branch": branch, "table_name": str(table)}
            connection.execute(schema.batches.insert().values(**names, **values))

    db.write(work)


def read_look(connection: Connection, branch: str, table: TableName) -> SourceLook | None:
    """Return what a source had when a worker last looked; None if nobody has."""
    columns = schema.batches.c
    query = sa.select(columns.detail).where(columns.query == _name_look(branch, table))
    text = connection.execute(query).scalar()
    return SourceLook(**json.loads(text)) if text is not None else None


def _name_look(branch: str, table: TableName) -> str:
    """Return the name under which the look at a source is stored among the batches."""
    return f"{_LOOK_PREFIX}{uuid.uuid5(uuid.NAMESPACE_URL, f'{branch} {table}').hex[:30]}"


def read_batch_metrics(
    connection: Connection, branch: str, table: TableName, *, since: str | None = None, last: int | None = None
) -> list[BatchMetrics]:
    """Return the batches of a table, oldest first: those after a time, or the last few."""
    columns = schema.batches.c
    query = sa.select(columns.at, columns.commit_id, columns.detail).where(
        columns.branch == branch, columns.table_name == str(table), columns.query.not_like(f"{_LOOK_PREFIX}%")
    )
    if since is not None:
        query = query.where(columns.at > since)
    rows = connection.execute(query.order_by(columns.at.desc()).limit(last)).all()
    return [BatchMetrics(row.at, row.commit_id, json.loads(row.detail)) for row in reversed(rows)]


def list_recent_versions(
    connection: Connection, branch: str, table: TableName, limit: int = 500
) -> list[tuple[str, str]]:
    """Return the last versions of a table on a branch, newest first: location, and when it was published."""
    columns, commits = schema.changes.c, schema.commits.c
    line = sa.select(schema.branches.c.line).where(schema.branches.c.name == branch).scalar_subquery()
    query = (
        sa.select(columns.after, commits.at)
        .join(schema.commits, commits.id == columns.commit_id)
        .where(columns.line == line, columns.table_name == str(table), columns.after.is_not(None))
        .order_by(columns.seq.desc())
        .limit(limit)
    )
    return [(str(row.after), str(row.at)) for row in connection.execute(query)]


def find_first_change_after(connection: Connection, branch: str, table: TableName, location: str) -> str | None:
    """Return when a table first changed after a version of it, among its last changes; None if never."""
    changed_at = None
    for version_location, published_at in list_recent_versions(connection, branch, table):
        if version_location == location:
            break
        changed_at = published_at
    return changed_at
