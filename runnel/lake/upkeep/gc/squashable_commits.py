"""Find the expired commits of streams that nothing needs any more, so that they can be removed from the history.

A commit stays if the retained history would change without it: if it has the newest version or the ingest state of a
table at a commit whose state is needed, if a change that stays starts from it, or if something refers to it. The first
commit of a line stays, and those right before and after a retained commit: so parents don't change, and a time in
between still resolves to an expired commit, not to an older state. Reads the catalog database only.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_position import STATE_PATH
from runnel.lake.flow_state.results import parse_result
from runnel.lake.flow_state.streams import list_streams
from runnel.lake.history.branches import read_head_state
from runnel.lake.history.commits import find_commit
from runnel.lake.history.content_origin import find_origin

_STREAM = "stream"


@dataclass(frozen=True)
class SquashableCommit:
    """A commit that can be removed, and the tables whose ingest state it wrote."""

    id: str
    line: str
    seq: int
    state_tables: tuple[str, ...]


@dataclass(frozen=True)
class _References:
    """What other rows refer to: commits whose whole state is needed, commits, and versions of tables."""

    state_commits: frozenset[str]
    commits: frozenset[str]
    versions: frozenset[str]


@dataclass(frozen=True)
class _LineHistory:
    """A line: its expired commits, and the sequence numbers at which its state is needed."""

    id: str
    expired_ids: Mapping[int, str]
    state_seqs: Sequence[int]
    named_seqs: frozenset[int]

    def is_needed(self, seq: int, until: int | None) -> bool:
        """Return whether a needed state has what was written at `seq` and overwritten at `until`."""
        index = bisect_left(self.state_seqs, seq)
        return index < len(self.state_seqs) and (until is None or self.state_seqs[index] < until)


def find_squashable(
    connection: Connection, limit: str, expiring_commits: frozenset[str] = frozenset()
) -> list[SquashableCommit]:
    """Return the commits of streams that expired before `limit` and can be removed, in order.

    `expiring_commits` count as expired.
    """
    columns = schema.commits.c
    stream_commits = sa.select(columns.id, columns.line, columns.seq).where(columns.kind == _STREAM)
    rows = [*connection.execute(stream_commits.where(columns.expired_at <= limit))]
    if expiring_commits:
        rows += [
            row
            for row in connection.execute(stream_commits.where(columns.expired_at.is_(None)))
            if row.id in expiring_commits
        ]
    if not rows:
        return []
    expired_by_line: dict[str, dict[int, str]] = {}
    for row in rows:
        expired_by_line.setdefault(row.line, {})[row.seq] = row.id
    references = _read_references(connection)
    return [
        commit
        for line in sorted(expired_by_line)
        for commit in _find_on_line(connection, line, expired_by_line[line], references, expiring_commits)
    ]


def _find_on_line(
    connection: Connection,
    line_id: str,
    expired_ids: Mapping[int, str],
    references: _References,
    expiring_commits: frozenset[str],
) -> Iterator[SquashableCommit]:
    columns = schema.commits.c
    query = sa.select(columns.id, columns.seq, columns.expired_at).where(columns.line == line_id).order_by(columns.seq)
    rows = connection.execute(query).all()
    retained_seqs = {row.seq for row in rows if row.expired_at is None and row.id not in expiring_commits}
    referenced_seqs = {row.seq for row in rows if row.id in references.state_commits}
    named_seqs = frozenset(row.seq for row in rows if row.id in references.commits) | referenced_seqs
    line = _LineHistory(line_id, expired_ids, sorted(retained_seqs | referenced_seqs), named_seqs)
    needed_seqs = {rows[0].seq} | named_seqs
    needed_seqs |= {
        neighbor.seq for pair in pairwise(rows) for neighbor in pair if retained_seqs & {pair[0].seq, pair[1].seq}
    }
    needed_seqs |= set(_iter_needed_changes(connection, line, references.versions))
    tables_by_seq: dict[int, list[str]] = {}
    for table, seq, is_needed in _iter_ingest_states(connection, line):
        tables_by_seq.setdefault(seq, []).append(table)
        needed_seqs |= {seq} if is_needed else set()
    for seq in sorted(expired_ids.keys() - needed_seqs):
        yield SquashableCommit(expired_ids[seq], line_id, seq, tuple(tables_by_seq.get(seq, ())))


def _iter_needed_changes(connection: Connection, line: _LineHistory, versions: frozenset[str]) -> Iterator[int]:
    """Yield the sequence numbers of changes that a needed state, a version reference or a later change relies on."""
    columns = schema.changes.c
    query = sa.select(columns.table_name, columns.seq, columns.after).where(columns.line == line.id)
    rows = connection.execute(query.order_by(columns.table_name, columns.seq))
    for _, chain in groupby(rows, attrgetter("table_name")):
        for change, next_seq in _pair_with_next(chain):
            if change.seq not in line.expired_ids:
                continue
            is_base_of_next = next_seq is not None and (next_seq not in line.expired_ids or next_seq in line.named_seqs)
            if is_base_of_next or change.after in versions or line.is_needed(change.seq, next_seq):
                yield change.seq


def _iter_ingest_states(connection: Connection, line: _LineHistory) -> Iterator[tuple[str, int, bool]]:
    """Yield each ingest state of an expired commit: its table, its sequence number, and whether it is needed."""
    columns = schema.ingested.c
    query = sa.select(columns.table_name, columns.seq).where(columns.line == line.id, columns.path == STATE_PATH)
    rows = connection.execute(query.order_by(columns.table_name, columns.seq))
    for table, chain in groupby(rows, attrgetter("table_name")):
        for row, next_seq in _pair_with_next(chain):
            if row.seq in line.expired_ids:
                yield table, row.seq, line.is_needed(row.seq, next_seq)


def _pair_with_next(chain: Iterator[Any]) -> Iterator[tuple[Any, int | None]]:
    """Yield each row with the sequence number of the next row."""
    row = next(chain, None)
    while row is not None:
        next_row = next(chain, None)
        yield row, next_row.seq if next_row is not None else None
        row = next_row


def _read_references(connection: Connection) -> _References:
    state_columns = (
        schema.lines.c.from_commit,
        schema.branches.c.head,
        schema.tags.c.commit_id,
        schema.pins.c.commit_id,
        schema.slots.c.commit_id,
        schema.commits.c.merged,
    )
    commit_columns = (schema.deliveries.c.delivered, schema.deliveries.c.begun, schema.runs.c.commit_id)
    return _References(
        frozenset(commit_id for column in state_columns for commit_id in _read_column(connection, column)),
        frozenset(commit_id for column in commit_columns for commit_id in _read_column(connection, column))
        | frozenset(_iter_reverted_commits(connection)),
        frozenset(_iter_input_versions(connection)),
    )


def _read_column(connection: Connection, column: "sa.ColumnElement[Any]") -> Iterator[str]:
    yield from connection.execute(sa.select(column).where(column.is_not(None))).scalars()


def _iter_reverted_commits(connection: Connection) -> Iterator[str]:
    """Yield the commits that were reverted: the origin of a table is traced through them."""
    changes, commits = schema.changes.c, schema.commits.c
    query = sa.select(changes.detail).join(schema.commits, commits.id == changes.commit_id)
    for text in connection.execute(query.where(commits.kind == "revert")).scalars():
        if commit_id := json.loads(text).get("reverts"):
            yield commit_id


def _iter_input_versions(connection: Connection) -> Iterator[str]:
    """Yield the input versions of results, streams and current tables of branches: their origin must be traceable."""
    for row in connection.execute(sa.select(schema.results)):
        yield from (head.location for head in parse_result(row).inputs.values())
    for stream in list_streams(connection).values():
        yield from (append_log.reached for append_log in stream.append_logs.values())
    for branch in connection.execute(sa.select(schema.branches.c.name, schema.branches.c.head)).all():
        commit = find_commit(connection, branch.head)
        for table in read_head_state(connection, branch.name) if commit else ():
            table_origin = find_origin(connection, commit, table) if commit else None
            inputs = table_origin.origin_step.change.detail.get("inputs", {}) if table_origin else {}
            yield from (input_version["location"] for input_version in inputs.values())
