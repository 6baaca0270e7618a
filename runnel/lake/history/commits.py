"""Commits, the changes that they hold, and the state of the lake at each of them.

A commit belongs to a line, one life of a branch. Within a line the order is the sequence, so the version of a table
at a commit is the newest change on its line up to it, else on the line that it was forked off. One look-up in an
index per table and line: the length of the history does not matter.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.names import TableName


@dataclass(frozen=True)
class Version:
    """What a table is at a commit: its metadata file, and the version whose rows these are."""

    location: str
    content: str


@dataclass(frozen=True)
class Change:
    """What a commit did to one table. `before` or `after` is None where it was created or dropped."""

    table: TableName
    before: str | None
    after: str | None
    content: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """One version of the whole lake. `merged` is the head of the branch that a merge took in."""

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


State = dict[TableName, Version]


def commit_of(row: Row[Any]) -> Commit:
    """Return a row of the commits table as a value."""
    return Commit(**{column.name: getattr(row, column.name) for column in schema.commits.columns})


def find(connection: Connection, commit_id: str) -> Commit | None:
    """Return the commit with exactly this id."""
    row = connection.execute(sa.select(schema.commits).where(schema.commits.c.id == commit_id)).first()
    return commit_of(row) if row else None


def changes_of(connection: Connection, commit_id: str, table: TableName | None = None) -> tuple[Change, ...]:
    """Return what a commit changed, ordered by table; or only what it did to one."""
    columns = schema.changes.c
    query = sa.select(columns.table_name, columns.before, columns.after, columns.content, columns.detail)
    query = query.where(columns.commit_id == commit_id)
    rows = connection.execute(
        (query if table is None else query.where(columns.table_name == str(table))).order_by(columns.table_name)
    )
    return tuple(
        Change(TableName.stored(row.table_name), row.before, row.after, row.content, json.loads(row.detail))
        for row in rows
    )


def tables_changed(connection: Connection, commit_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the tables that each of the commits changed."""
    columns = schema.changes.c
    found: dict[str, list[str]] = {}
    query = sa.select(columns.commit_id, columns.table_name).where(columns.commit_id.in_(list(commit_ids)))
    for row in connection.execute(query.order_by(columns.table_name)):
        found.setdefault(row.commit_id, []).append(row.table_name)
    return found


def path(connection: Connection, line: str, seq: int) -> Iterator[tuple[str, int]]:
    """Yield (line, highest sequence) from a commit back to the beginning, one pair a line."""
    at: tuple[str, int] | None = (line, seq)
    while at is not None:
        yield at
        row = connection.execute(
            sa.select(schema.lines.c.from_line, schema.lines.c.from_seq).where(schema.lines.c.id == at[0])
        ).one()
        at = (row.from_line, row.from_seq) if row.from_line else None


def history(
    connection: Connection, commit: Commit, *, table: TableName | None = None, limit: int | None = None
) -> list[Commit]:
    """Return a commit and its ancestors on the first-parent path, newest first."""
    found: list[Commit] = []
    for line, seq in path(connection, commit.line, commit.seq):
        query = sa.select(schema.commits).where(schema.commits.c.line == line, schema.commits.c.seq <= seq)
        if table is not None:
            changed = schema.changes.c
            query = query.join(schema.changes, sa.and_(changed.line == line, changed.seq == schema.commits.c.seq))
            query = query.where(changed.table_name == str(table))
        query = query.order_by(schema.commits.c.seq.desc())
        if limit is not None:
            query = query.limit(limit - len(found))
        found.extend(commit_of(row) for row in connection.execute(query))
        if limit is not None and len(found) >= limit:
            break
    return found


def version_at(connection: Connection, commit: Commit, table: TableName) -> Version | None:
    """Return the version of a table at a commit, or None where it did not exist."""
    columns = schema.changes.c
    for line, seq in path(connection, commit.line, commit.seq):
        row = connection.execute(
            sa.select(columns.after, columns.content)
            .where(columns.line == line, columns.table_name == str(table), columns.seq <= seq)
            .order_by(columns.seq.desc())
            .limit(1)
        ).first()
        if row is not None:
            return Version(row.after, row.content) if row.after else None
    return None


def state_at(connection: Connection, commit: Commit) -> State:
    """Return every table of the lake at a commit."""
    columns = schema.changes.c
    state: dict[str, Version | None] = {}
    for line, seq in path(connection, commit.line, commit.seq):
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
            state.setdefault(row.table_name, Version(row.after, row.content) if row.after else None)
    return {TableName.stored(name): version for name, version in sorted(state.items()) if version}


def sequence(connection: Connection) -> int:
    """Return the lake's newest sequence number."""
    return int(connection.execute(sa.select(schema.lake.c.seq)).scalar_one())


def erased_since(connection: Connection, planned: int) -> bool:
    """Tell whether rows were erased anywhere since the lake was at a sequence number."""
    if sequence(connection) == planned:
        return False
    commits = schema.commits.c
    query = sa.select(commits.id).where(commits.kind == "erase", commits.seq > planned)
    return connection.execute(query).first() is not None
