"""List the changes of one table between two commits, and mark those that are compactions."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.ancestry import LineGraph, LinePosition, read_commit_at, read_line_graph
from runnel.lake.history.commits import Commit, find_version, walk_lines
from runnel.lake.merge.three_way import MergeStep
from runnel.model.table_version import TableVersion
from runnel.names import TableName


def list_steps_between(
    connection: Connection, base: Commit, start: TableVersion | None, head: Commit, table: TableName
) -> tuple[MergeStep, ...]:
    """Return the changes of a table from `base`, where it was at `start`, to `head`.

    If `base` came in by a merge, everything that the merge brought is one step.
    """
    head_path = list(walk_lines(connection, head.line, head.seq))
    line, low_sequence = _find_join(read_line_graph(connection), head_path, base)
    previous_version = find_version(connection, read_commit_at(connection, (line, low_sequence)), table)
    steps = [] if previous_version == start else [_build_step(start, previous_version)]
    for version in _read_versions(connection, head_path, (line, low_sequence), table):
        steps.append(_build_step(previous_version, version))
        previous_version = version
    return tuple(steps)


def _build_step(before: TableVersion | None, after: TableVersion | None) -> MergeStep:
    is_rewrite = before is not None and after is not None and before.content == after.content
    return MergeStep(before.location if before else None, after.location if after else None, is_rewrite)


def _find_join(lineage: LineGraph, head_path: list[LinePosition], base: Commit) -> LinePosition:
    """Return the oldest position on the path that descends from `base`: `base` itself, or the merge that brought it."""
    for line, seq in head_path:
        if line == base.line and seq >= base.seq:
            return line, base.seq
    for line, seq in reversed(head_path):
        for merge in lineage.merges.get(line, ()):
            if merge.seq <= seq and lineage.ancestor_sequences(merge.merged).get(base.line, -1) >= base.seq:
                return line, merge.seq
    raise AssertionError(f"{base.id} is not an ancestor of this commit")


def _read_versions(
    connection: Connection, head_path: list[LinePosition], low: LinePosition, table: TableName
) -> list[TableVersion | None]:
    columns = schema.changes.c
    newer_path = head_path[: [line for line, _ in head_path].index(low[0]) + 1]
    versions: list[TableVersion | None] = []
    for line, seq in reversed(newer_path):
        query = (
            sa.select(columns.after, columns.content)
            .where(columns.line == line, columns.table_name == str(table), columns.seq <= seq)
            .where(columns.seq > (low[1] if line == low[0] else 0))
            .order_by(columns.seq)
        )
        versions += [TableVersion(row.after, row.content) if row.after else None for row in connection.execute(query)]
    return versions
