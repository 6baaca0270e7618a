"""Read the metrics of stream batches and continuous ingests as a time series."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.names import TableName


@dataclass(frozen=True)
class BatchMetrics:
    """One batch: when it was recorded, its commit if it changed anything, and its metrics."""

    at: str
    commit: str | None
    detail: Mapping[str, Any]


def read_batch_metrics(
    connection: Connection, branch: str, table: TableName, *, since: str | None = None, last: int | None = None
) -> list[BatchMetrics]:
    """Return the batches of a table, oldest first: those after a time, or the last few."""
    columns = schema.batches.c
    query = sa.select(columns.at, columns.commit_id, columns.detail).where(
        columns.branch == branch, columns.table_name == str(table)
    )
    if since is not None:
        query = query.where(columns.at > since)
    rows = connection.execute(query.order_by(columns.at.desc()).limit(last)).all()
    return [BatchMetrics(row.at, row.commit_id, json.loads(row.detail)) for row in reversed(rows)]


def find_first_change_after(
    connection: Connection, branch: str, table: TableName, location: str, limit: int = 500
) -> str | None:
    """Return when a table first changed after a version of it, looking at its last `limit` changes; None if never."""
    columns, commits = schema.changes.c, schema.commits.c
    line = sa.select(schema.branches.c.line).where(schema.branches.c.name == branch).scalar_subquery()
    query = (
        sa.select(columns.after, commits.at)
        .join(schema.commits, commits.id == columns.commit_id)
        .where(columns.line == line, columns.table_name == str(table))
        .order_by(columns.seq.desc())
        .limit(limit)
    )
    changed_at = None
    for row in connection.execute(query):
        if row.after == location:
            break
        changed_at = str(row.at)
    return changed_at
