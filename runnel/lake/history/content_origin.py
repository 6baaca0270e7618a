"""Find the commit that created a table's current content, skipping merges, reverts and compactions that carried it on.

Reads the catalog database only. Follows the history of one table, never that of the whole lake.
"""

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.commits import Commit, CommitChange, commit_from_row, find_commit, walk_lines
from runnel.names import TableName

_MAX_STEPS = 10_000  # steps back: more than any history that people inspect


@dataclass(frozen=True)
class HistoryStep:
    """One commit and its change to a table."""

    commit: Commit
    change: CommitChange


@dataclass(frozen=True)
class ContentOrigin:
    """The step that created a table's content, and the later steps that only carried it on, newest first."""

    origin_step: HistoryStep
    carrying_steps: tuple[HistoryStep, ...] = ()

    @property
    def is_task(self) -> bool:
        """Return whether a task created the content."""
        return "key" in self.origin_step.change.detail


def find_origin(connection: Connection, commit: Commit, table: TableName) -> ContentOrigin | None:
    """Return the origin of a table's content at a commit, or None if the commit does not have the table."""
    step = find_latest_step(connection, commit, table)
    carrying_steps: list[HistoryStep] = []
    while step is not None and len(carrying_steps) < _MAX_STEPS:
        previous_step = _find_previous_step(connection, step)
        if previous_step is None or previous_step.change.content != step.change.content:
            return ContentOrigin(step, tuple(carrying_steps)) if step.change.after else None
        carrying_steps.append(step)
        step = previous_step
    return None


def find_latest_step(
    connection: Connection, commit: Commit, table: TableName, after: str | None = None
) -> HistoryStep | None:
    """Return the newest change of a table up to a commit; with `after`, the newest that produced that version."""
    columns = schema.changes.c
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        query = _build_steps_query().where(columns.line == line, columns.table_name == str(table), columns.seq <= seq)
        if after is not None:
            query = query.where(columns.after == after)
        row = connection.execute(query.order_by(columns.seq.desc()).limit(1)).first()
        if row is not None:
            return _parse_step(row)
    return None


def list_versions(connection: Connection, commit: Commit, table: TableName) -> list[str | None]:
    """Return the versions of a table up to a commit, newest first; None if it was dropped."""
    columns, versions = schema.changes.c, []
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        query = sa.select(columns.after).where(
            columns.line == line, columns.table_name == str(table), columns.seq <= seq
        )
        versions += list(connection.execute(query.order_by(columns.seq.desc())).scalars())
    return versions


def find_publishing_step(connection: Connection, commit: Commit, table: TableName, location: str) -> HistoryStep | None:
    """Return the step that published a version used by a commit: among its ancestors, else on any branch."""
    step = find_latest_step(connection, commit, table, location)
    if step is not None:
        return step
    columns = schema.changes.c
    query = (
        _build_steps_query()
        .where(columns.table_name == str(table), columns.after == location)
        .order_by(columns.seq)
        .limit(1)
    )
    row = connection.execute(query).first()
    return _parse_step(row) if row is not None else None


def _find_previous_step(connection: Connection, step: HistoryStep) -> HistoryStep | None:
    """Return the step from which a commit took a table's content, or None if the commit created it."""
    commit, change = step.commit, step.change
    if "key" in change.detail:
        return None
    if change.detail.get("merged") and change.detail.get("action") == "take":
        return _find_step_at(connection, change.detail["merged"], change.table)
    if change.detail.get("reverts"):
        undone = find_commit(connection, change.detail["reverts"])
        return _find_step_at(connection, undone.parent if undone else None, change.table)
    return _find_step_at(connection, commit.parent, change.table)


def _find_step_at(connection: Connection, commit_id: str | None, table: TableName) -> HistoryStep | None:
    commit = find_commit(connection, commit_id) if commit_id else None
    return find_latest_step(connection, commit, table) if commit else None


def _build_steps_query() -> "sa.Select[Any]":
    columns = schema.changes.c
    change_columns = (columns.table_name, columns.before, columns.after, columns.content, columns.detail)
    return sa.select(*schema.commits.columns, *change_columns).join(
        schema.changes, columns.commit_id == schema.commits.c.id
    )


def _parse_step(row: "sa.Row[Any]") -> HistoryStep:
    change = CommitChange(
        TableName.parse_unchecked(row.table_name), row.before, row.after, row.content, json.loads(row.detail)
    )
    return HistoryStep(commit_from_row(row), change)
