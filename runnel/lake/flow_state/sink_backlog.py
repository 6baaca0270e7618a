"""List the deliveries that a sink still needs, in the order of commits. Reads the catalog only."""

from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.flow_state.sink_positions import SinkPosition
from runnel.lake.history.commits import Commit, commit_from_row, find_commit, find_version, read_history, walk_lines
from runnel.model.table_version import TableVersion
from runnel.names import TableName


@dataclass(frozen=True)
class DeliveryStep:
    """One delivery: the table's version at a commit, and the version that the sink has; full if it has none."""

    commit: Commit
    before: TableVersion | None
    after: TableVersion | None
    is_full: bool = False


def plan_delivery_steps(
    connection: Connection, sink_position: SinkPosition, head: Commit, table: TableName, *, each_commit: bool
) -> tuple[DeliveryStep, ...]:
    """Return the deliveries from a sink's position to the newest version: one per commit, or a single one for all."""
    latest_version = find_version(connection, head, table)
    if not sink_position.is_behind(latest_version):
        return ()
    before = TableVersion(sink_position.location, sink_position.content or "") if sink_position.location else None
    if not each_commit:
        return (
            DeliveryStep(
                _find_last_commit(connection, head, table),
                before,
                latest_version,
                is_full=sink_position.delivered is None,
            ),
        )
    planned_steps: list[DeliveryStep] = []
    seq = sink_position.seq or 0
    if sink_position.delivered is None:
        full_step = _plan_full_step(connection, sink_position, head, table)
        planned_steps, before, seq = [full_step], full_step.after, full_step.commit.seq
    for commit, version in _list_versions_since(connection, head, table, seq):
        if (version.content if version else None) != (before.content if before else None):
            planned_steps.append(DeliveryStep(commit, before, version))
            before = version
    if (before.content if before else None) != (
        latest_version.content if latest_version else None
    ):  # the branch was created again, from an earlier commit
        planned_steps.append(DeliveryStep(_find_last_commit(connection, head, table), before, latest_version))
    return tuple(planned_steps)


def count_commits_behind(connection: Connection, sink_position: SinkPosition, head: Commit, table: TableName) -> int:
    """Return how many commits changed the table since a sink's last delivery; at least 1 if the sink is behind."""
    if not sink_position.is_behind(find_version(connection, head, table)):
        return 0
    return max(1, len(_list_versions_since(connection, head, table, sink_position.seq or 0)))


def move_position(
    connection: Connection, sink_position: SinkPosition, commit_id: str | None, table: TableName
) -> SinkPosition:
    """Return the position of a sink whose target itself reports the last commit it has; None: it has nothing."""
    commit = find_commit(connection, commit_id) if commit_id else None
    if commit is None:
        return replace(sink_position, delivered=None, seq=None, location=None, content=None)
    version = find_version(connection, commit, table)
    location, content = (version.location, version.content) if version else (None, None)
    return replace(sink_position, delivered=commit.id, seq=commit.seq, location=location, content=content)


def _plan_full_step(
    connection: Connection, sink_position: SinkPosition, head: Commit, table: TableName
) -> DeliveryStep:
    """Return the step that delivers the whole table: the version already begun, else the newest one."""
    commit = find_commit(connection, sink_position.begun) if sink_position.begun else None
    if commit is None or commit.expired_at:
        commit = _find_last_commit(connection, head, table)
    return DeliveryStep(commit, None, find_version(connection, commit, table), is_full=True)


def _find_last_commit(connection: Connection, head: Commit, table: TableName) -> Commit:
    """Return the commit that last changed a table."""
    return next(iter(read_history(connection, head, table=table, limit=1)), head)


def _list_versions_since(
    connection: Connection, head: Commit, table: TableName, after: int
) -> list[tuple[Commit, TableVersion | None]]:
    """Return the commits that changed a table after a sequence number, oldest first, with the resulting versions.

    Commits whose contents have expired are skipped: the next one includes their changes.
    """
    change_columns = schema.changes.c
    commit_versions: list[tuple[Commit, TableVersion | None]] = []
    for line, seq in walk_lines(connection, head.line, head.seq):
        if seq <= after:
            break
        query = (
            sa.select(schema.commits, change_columns.after, change_columns.content)
            .join(schema.changes, sa.and_(change_columns.line == line, change_columns.seq == schema.commits.c.seq))
            .where(schema.commits.c.line == line, schema.commits.c.seq <= seq, schema.commits.c.seq > after)
            .where(change_columns.table_name == str(table), schema.commits.c.expired_at.is_(None))
        )
        commit_versions += [
            (commit_from_row(row), TableVersion(row.after, row.content) if row.after else None)
            for row in connection.execute(query)
        ]
    return sorted(commit_versions, key=lambda commit_version: commit_version[0].seq)
