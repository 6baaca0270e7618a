"""Read commits, their changes, and the state of the lake at a commit.

A commit belongs to a line: one life of a branch. Commits of a line are ordered by sequence, so the version of a table
at a commit is the newest change on its line up to it, else on the line that it was forked from. This is one index
look-up per table and line, however long the history is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.model.table_version import TableVersion
from runnel.names import TableName


@dataclass(frozen=True)
class CommitChange:
    """What a commit did to one table. `before` is None if it created the table, `after` if it dropped it."""

    table: TableName
    before: str | None
    after: str | None
    content: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """One version of the whole lake. `merged` is the head of the source branch if the commit is a merge."""

    id: str
    seq: int
    line: str
    branch: str
    parent: str | None
    merged: str | None
    kind: str
    author: str
    message: str
    run: str | None
    at: str
    expired_at: str | None = None


LakeState = dict[TableName, TableVersion]


def commit_from_row(row: Row[Any]) -> Commit:
    """Return a row of the commits table as a value."""
    return Commit(**{column.name: getattr(row, column.name) for column in schema.commits.columns})


def find_commit(connection: Connection, commit_id: str) -> Commit | None:
    """Return the commit with exactly this id."""
    row = connection.execute(sa.select(schema.commits).where(schema.commits.c.id == commit_id)).first()
    return commit_from_row(row) if row else None


def read_changes(connection: Connection, commit_id: str, table: TableName | None = None) -> tuple[CommitChange, ...]:
    """Return the changes of a commit, ordered by table; with `table` only that table's change."""
    columns = schema.changes.c
    query = sa.select(columns.table_name, columns.before, columns.after, columns.content, columns.detail)
    query = query.where(columns.commit_id == commit_id)
    rows = connection.execute(
        (query if table is None else query.where(columns.table_name == str(table))).order_by(columns.table_name)
    )
    return tuple(
        CommitChange(
            TableName.parse_unchecked(row.table_name), row.before, row.after, row.content, json.loads(row.detail)
        )
        for row in rows
    )


def read_changed_tables(connection: Connection, commit_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the tables that each of the commits changed."""
    columns = schema.changes.c
    tables_by_commit: dict[str, list[str]] = {}
    query = sa.select(columns.commit_id, columns.table_name).where(columns.commit_id.in_(list(commit_ids)))
    for row in connection.execute(query.order_by(columns.table_name)):
        tables_by_commit.setdefault(row.commit_id, []).append(row.table_name)
    return tables_by_commit


def walk_lines(connection: Connection, line: str, seq: int) -> Iterator[tuple[str, int]]:
    """Yield (line, highest sequence) for each line from a commit back to the first commit."""
    position: tuple[str, int] | None = (line, seq)
    while position is not None:
        yield position
        row = connection.execute(
            sa.select(schema.lines.c.from_line, schema.lines.c.from_seq).where(schema.lines.c.id == position[0])
        ).one()
        position = (row.from_line, row.from_seq) if row.from_line else None


def read_history(
    connection: Connection, commit: Commit, *, table: TableName | None = None, limit: int | None = None
) -> list[Commit]:
    """Return a commit and its ancestors on the first-parent path, newest first."""
    commits: list[Commit] = []
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        query = sa.select(schema.commits).where(schema.commits.c.line == line, schema.commits.c.seq <= seq)
        if table is not None:
            change_columns = schema.changes.c
            query = query.join(
                schema.changes, sa.and_(change_columns.line == line, change_columns.seq == schema.commits.c.seq)
            )
            query = query.where(change_columns.table_name == str(table))
        query = query.order_by(schema.commits.c.seq.desc())
        if limit is not None:
            query = query.limit(limit - len(commits))
        commits.extend(commit_from_row(row) for row in connection.execute(query))
        if limit is not None and len(commits) >= limit:
            break
    return commits


def find_version(connection: Connection, commit: Commit, table: TableName) -> TableVersion | None:
    """Return the version of a table at a commit, or None if it did not exist."""
    columns = schema.changes.c
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        row = connection.execute(
            sa.select(columns.after, columns.content)
            .where(columns.line == line, columns.table_name == str(table), columns.seq <= seq)
            .order_by(columns.seq.desc())
            .limit(1)
        ).first()
        if row is not None:
            return TableVersion(row.after, row.content) if row.after else None
    return None


def read_state(connection: Connection, commit: Commit) -> LakeState:
    """Return every table of the lake at a commit."""
    columns = schema.changes.c
    state: dict[str, TableVersion | None] = {}
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        newest = (
            sa.select(columns.table_name, sa.func.max(columns.seq).label("seq"))
            .where(columns.line == line, columns.seq <= seq)
            .group_by(columns.table_name)
            .subquery()
        )
        rows = connection.execute(
            sa.select(columns.table_name, columns.after, columns.content)
            .where(columns.line == line)
            .join(newest, sa.and_(newest.c.table_name == columns.table_name, newest.c.seq == columns.seq))
        )
        for row in rows:
            state.setdefault(row.table_name, TableVersion(row.after, row.content) if row.after else None)
    return {TableName.parse_unchecked(name): version for name, version in sorted(state.items()) if version}


def read_sequence(connection: Connection) -> int:
    """Return the lake's newest sequence number."""
    return int(connection.execute(sa.select(schema.lake.c.seq)).scalar_one())


def has_erasure_since(connection: Connection, planned_sequence: int) -> bool:
    """Return whether rows were erased anywhere since the lake was at a sequence number."""
    if read_sequence(connection) == planned_sequence:
        return False
    columns = schema.commits.c
    query = sa.select(columns.id).where(columns.kind == "erase", columns.seq > planned_sequence)
    return connection.execute(query).first() is not None
