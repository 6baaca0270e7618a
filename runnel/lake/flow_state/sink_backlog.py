"""What a sink has not taken yet, as steps in the order of commits. Reads the catalog only."""

from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.flow_state.sink_positions import Delivered
from runnel.lake.history.commits import Commit, Version, commit_of, find, history, path, version_at
from runnel.names import TableName


@dataclass(frozen=True)
class Step:
    """One delivery: what a table is at a commit, and what the sink has of it; where it has nothing it is whole."""

    commit: Commit
    before: Version | None
    after: Version | None
    is_whole: bool = False


def steps(connection: Connection, done: Delivered, head: Commit, table: TableName, *, each: bool) -> tuple[Step, ...]:
    """Return what leads from a sink's state to the newest version: `each` commit by itself, or all of them at once."""
    newest = version_at(connection, head, table)
    if not done.is_behind(newest):
        return ()
    before = Version(done.location, done.content or "") if done.location else None
    if not each:
        return (Step(_maker(connection, head, table), before, newest, is_whole=done.delivered is None),)
    found: list[Step] = []
    seq = done.seq or 0
    if done.delivered is None:
        first = _first(connection, done, head, table)
        found, before, seq = [first], first.after, first.commit.seq
    for commit, version in _since(connection, head, table, seq):
        if (version.content if version else None) != (before.content if before else None):
            found.append(Step(commit, before, version))
            before = version
    if (before.content if before else None) != (
        newest.content if newest else None
    ):  # the branch was made anew, from an earlier commit
        found.append(Step(_maker(connection, head, table), before, newest))
    return tuple(found)


def behind(connection: Connection, done: Delivered, head: Commit, table: TableName) -> int:
    """Return how many commits changed the table since a sink's last delivery; at least 1 where it is behind."""
    if not done.is_behind(version_at(connection, head, table)):
        return 0
    return max(1, len(_since(connection, head, table, done.seq or 0)))


def moved(connection: Connection, done: Delivered, commit_id: str | None, table: TableName) -> Delivered:
    """Return the state of a sink whose target itself says what it has; None is nothing."""
    commit = find(connection, commit_id) if commit_id else None
    if commit is None:
        return replace(done, delivered=None, seq=None, location=None, content=None)
    version = version_at(connection, commit, table)
    location, content = (version.location, version.content) if version else (None, None)
    return replace(done, delivered=commit.id, seq=commit.seq, location=location, content=content)


def _first(connection: Connection, done: Delivered, head: Commit, table: TableName) -> Step:
    """Return the step that delivers the whole table: that which was begun before, else the newest version."""
    commit = find(connection, done.begun) if done.begun else None
    if commit is None or commit.expired_at:
        commit = _maker(connection, head, table)
    return Step(commit, None, version_at(connection, commit, table), is_whole=True)


def _maker(connection: Connection, head: Commit, table: TableName) -> Commit:
    """Return the commit that made the newest version of a table."""
    return next(iter(history(connection, head, table=table, limit=1)), head)


def _since(connection: Connection, head: Commit, table: TableName, after: int) -> list[tuple[Commit, Version | None]]:
    """Return the commits that changed a table after a sequence, oldest first, with what they made of it.

    Commits whose contents are gone are passed over: the next one holds what they did.
    """
    changed = schema.changes.c
    found: list[tuple[Commit, Version | None]] = []
    for line, seq in path(connection, head.line, head.seq):
        if seq <= after:
            break
        query = (
            sa.select(schema.commits, changed.after, changed.content)
            .join(schema.changes, sa.and_(changed.line == line, changed.seq == schema.commits.c.seq))
            .where(schema.commits.c.line == line, schema.commits.c.seq <= seq, schema.commits.c.seq > after)
            .where(changed.table_name == str(table), schema.commits.c.expired_at.is_(None))
        )
        found += [
            (commit_of(row), Version(row.after, row.content) if row.after else None)
            for row in connection.execute(query)
        ]
    return sorted(found, key=lambda one: one[0].seq)
