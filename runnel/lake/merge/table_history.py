"""The history of one table between two commits, change by change, with compactions told apart."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.ancestry import Lineage, Place, commit_at
from runnel.lake.history.commits import Commit, Version, path, version_at
from runnel.lake.merge.three_way import Step
from runnel.names import TableName


def steps_between(
    connection: Connection, lines: Lineage, base: Commit, start: Version | None, head: Commit, table: TableName
) -> tuple[Step, ...]:
    """Return what happened to a table on the way from `base`, where it was at `start`, to `head`.

    Where a merge brought `base` in, all that it brought along is one step.
    """
    way = list(path(connection, head.line, head.seq))
    line, low = _joined(lines, way, base)
    then = version_at(connection, commit_at(connection, (line, low)), table)
    found = [] if then == start else [_step(start, then)]
    for version in _versions(connection, way, (line, low), table):
        found.append(_step(then, version))
        then = version
    return tuple(found)


def _step(before: Version | None, after: Version | None) -> Step:
    rewrites = before is not None and after is not None and before.content == after.content
    return Step(before.location if before else None, after.location if after else None, rewrites)


def _joined(lines: Lineage, way: list[Place], base: Commit) -> Place:
    """Return the oldest place on the way that has `base` behind it: itself, or the merge that brought it in."""
    for line, seq in way:
        if line == base.line and seq >= base.seq:
            return line, base.seq
    for line, seq in reversed(way):
        for merge in lines.merges.get(line, ()):
            if merge.seq <= seq and lines.reach(merge.merged).get(base.line, -1) >= base.seq:
                return line, merge.seq
    raise AssertionError(f"{base.id} is not behind this commit")


def _versions(connection: Connection, way: list[Place], low: Place, table: TableName) -> list[Version | None]:
    columns = schema.changes.c
    newer = way[: [line for line, _ in way].index(low[0]) + 1]
    found: list[Version | None] = []
    for line, seq in reversed(newer):
        query = (
            sa.select(columns.after, columns.content)
            .where(columns.line == line, columns.table_name == str(table), columns.seq <= seq)
            .where(columns.seq > (low[1] if line == low[0] else 0))
            .order_by(columns.seq)
        )
        found += [Version(row.after, row.content) if row.after else None for row in connection.execute(query)]
    return found
