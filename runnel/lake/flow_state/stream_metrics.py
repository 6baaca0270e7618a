"""What the batches of streams and the intakes of sources did, as a series over time. Reads only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.names import TableName


@dataclass(frozen=True)
class Measure:
    """One batch: when it was written down, its commit if it changed anything, and what is known of it."""

    at: str
    commit: str | None
    detail: Mapping[str, Any]


def measures(
    connection: Connection, branch: str, table: TableName, *, since: str | None = None, last: int | None = None
) -> list[Measure]:
    """Return the batches of a table, oldest first: those after a moment, or the last few."""
    columns = schema.batches.c
    query = sa.select(columns.at, columns.commit_id, columns.detail).where(
        columns.branch == branch, columns.table_name == str(table)
    )
    if since is not None:
        query = query.where(columns.at > since)
    rows = connection.execute(query.order_by(columns.at.desc()).limit(last)).all()
    return [Measure(row.at, row.commit_id, json.loads(row.detail)) for row in reversed(rows)]


def first_after(connection: Connection, branch: str, table: TableName, location: str, most: int = 500) -> str | None:
    """Return when the first change came to a table after a version of it; of the last `most` changes where it is older.

    None where there was none.
    """
    columns, commits = schema.changes.c, schema.commits.c
    head = sa.select(schema.branches.c.line).where(schema.branches.c.name == branch).scalar_subquery()
    query = (
        sa.select(columns.after, commits.at)
        .join(schema.commits, commits.id == columns.commit_id)
        .where(columns.line == head, columns.table_name == str(table))
        .order_by(columns.seq.desc())
        .limit(most)
    )
    found = None
    for row in connection.execute(query):
        if row.after == location:
            break
        found = str(row.at)
    return found
