"""Find the commit that made what a table holds, through merges, reverts and compactions that only passed it on.

Reads the catalog database only. Follows the history of the one table, never that of the lake.
"""

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.commits import Change, Commit, commit_of, find, path
from runnel.names import TableName

_LONGEST = 10_000  # steps back: more than any history that people look at


@dataclass(frozen=True)
class Step:
    """What a commit did to a table."""

    commit: Commit
    change: Change


@dataclass(frozen=True)
class Origin:
    """Who made what a table holds, and the commits that passed it on since, the newest first."""

    made: Step
    passed: tuple[Step, ...] = ()

    @property
    def is_task(self) -> bool:
        """Tell whether a task made it."""
        return "key" in self.made.change.detail


def origin(connection: Connection, commit: Commit, table: TableName) -> Origin | None:
    """Return who made what a table holds at a commit, or None where it is not there."""
    step = newest(connection, commit, table)
    passed: list[Step] = []
    while step is not None and len(passed) < _LONGEST:
        before = _handed_on(connection, step)
        if before is None or before.change.content != step.change.content:
            return Origin(step, tuple(passed)) if step.change.after else None
        passed.append(step)
        step = before
    return None


def newest(connection: Connection, commit: Commit, table: TableName, after: str | None = None) -> Step | None:
    """Return the newest change of a table up to a commit, or the newest that made the version `after`."""
    columns = schema.changes.c
    for line, seq in path(connection, commit.line, commit.seq):
        query = _steps().where(columns.line == line, columns.table_name == str(table), columns.seq <= seq)
        if after is not None:
            query = query.where(columns.after == after)
        row = connection.execute(query.order_by(columns.seq.desc()).limit(1)).first()
        if row is not None:
            return _step(row)
    return None


def published(connection: Connection, commit: Commit, table: TableName, location: str) -> Step | None:
    """Return who published a version that a commit used: on the way to it, else on any branch."""
    found = newest(connection, commit, table, location)
    if found is not None:
        return found
    columns = schema.changes.c
    query = _steps().where(columns.table_name == str(table), columns.after == location).order_by(columns.seq).limit(1)
    row = connection.execute(query).first()
    return _step(row) if row is not None else None


def _handed_on(connection: Connection, step: Step) -> Step | None:
    """Return where a commit took a table's content from; None where it made it."""
    commit, change = step.commit, step.change
    if "key" in change.detail:
        return None
    if change.detail.get("merged") and change.detail.get("action") == "take":
        return _at(connection, change.detail["merged"], change.table)
    if change.detail.get("reverts"):
        undone = find(connection, change.detail["reverts"])
        return _at(connection, undone.parent if undone else None, change.table)
    return _at(connection, commit.parent, change.table)


def _at(connection: Connection, commit_id: str | None, table: TableName) -> Step | None:
    commit = find(connection, commit_id) if commit_id else None
    return newest(connection, commit, table) if commit else None


def _steps() -> "sa.Select[Any]":
    columns = schema.changes.c
    told = (columns.table_name, columns.before, columns.after, columns.content, columns.detail)
    return sa.select(*schema.commits.columns, *told).join(schema.changes, columns.commit_id == schema.commits.c.id)


def _step(row: "sa.Row[Any]") -> Step:
    change = Change(TableName.stored(row.table_name), row.before, row.after, row.content, json.loads(row.detail))
    return Step(commit_of(row), change)
