"""Which expired commits of streams nothing needs any more, so that their rows can go from the history.

A row stays where what is kept would say something else without it: where a commit whose state is asked for finds a
table's newest version or its ingest state there, where a change that stays starts from it, where it is named. The
first of a line stays, and those right before and after a kept commit: so its parent is what it was, and a moment in
between still names something that is gone, not an older state. Reads the catalog database only.
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
from runnel.lake.flow_state.ingest_position import STATE
from runnel.lake.flow_state.results import result_of
from runnel.lake.flow_state.streams import streams
from runnel.lake.history.branches import head_state
from runnel.lake.history.commits import find
from runnel.lake.history.content_origin import origin

_STREAM = "stream"


@dataclass(frozen=True)
class Surplus:
    """A commit that can go, and the tables whose ingest state it wrote."""

    id: str
    line: str
    seq: int
    states: tuple[str, ...]


@dataclass(frozen=True)
class _Named:
    """What is named elsewhere: commits whose whole state is asked for, commits, and versions of tables."""

    states: frozenset[str]
    commits: frozenset[str]
    versions: frozenset[str]


@dataclass(frozen=True)
class _Line:
    """A line: which commits of it may go, and the sequences at which its state is asked for."""

    id: str
    old: Mapping[int, str]
    anchors: Sequence[int]
    named: frozenset[int]

    def is_asked_for(self, seq: int, until: int | None) -> bool:
        """Tell whether what was written at a sequence, until it was written anew, is what some state has."""
        at = bisect_left(self.anchors, seq)
        return at < len(self.anchors) and (until is None or self.anchors[at] < until)


def surplus(connection: Connection, limit: str, gone: frozenset[str] = frozenset()) -> list[Surplus]:
    """Return the commits of streams that expired before a moment and can go, in order.

    `gone` are commits that are about to expire, which counts as before.
    """
    columns = schema.commits.c
    of_streams = sa.select(columns.id, columns.line, columns.seq).where(columns.kind == _STREAM)
    rows = [*connection.execute(of_streams.where(columns.expired_at <= limit))]
    if gone:
        rows += [row for row in connection.execute(of_streams.where(columns.expired_at.is_(None))) if row.id in gone]
    if not rows:
        return []
    old: dict[str, dict[int, str]] = {}
    for row in rows:
        old.setdefault(row.line, {})[row.seq] = row.id
    named = _named(connection)
    return [one for line in sorted(old) for one in _on_line(connection, line, old[line], named, gone)]


def _on_line(
    connection: Connection, name: str, old: Mapping[int, str], named: _Named, gone: frozenset[str]
) -> Iterator[Surplus]:
    columns = schema.commits.c
    query = sa.select(columns.id, columns.seq, columns.expired_at).where(columns.line == name).order_by(columns.seq)
    rows = connection.execute(query).all()
    kept = {row.seq for row in rows if row.expired_at is None and row.id not in gone}
    asked = {row.seq for row in rows if row.id in named.states}
    told = frozenset(row.seq for row in rows if row.id in named.commits) | asked
    line = _Line(name, old, sorted(kept | asked), told)
    stay = {rows[0].seq} | told
    stay |= {one.seq for pair in pairwise(rows) for one in pair if kept & {pair[0].seq, pair[1].seq}}
    stay |= set(_changes(connection, line, named.versions))
    states: dict[int, list[str]] = {}
    for table, seq, is_needed in _states(connection, line):
        states.setdefault(seq, []).append(table)
        stay |= {seq} if is_needed else set()
    for seq in sorted(old.keys() - stay):
        yield Surplus(old[seq], name, seq, tuple(states.get(seq, ())))


def _changes(connection: Connection, line: _Line, versions: frozenset[str]) -> Iterator[int]:
    """Yield the sequences at which a table became what some state has, or what a change that stays starts from."""
    columns = schema.changes.c
    query = sa.select(columns.table_name, columns.seq, columns.after).where(columns.line == line.id)
    rows = connection.execute(query.order_by(columns.table_name, columns.seq))
    for _, chain in groupby(rows, attrgetter("table_name")):
        for step, until in _with_next(chain):
            if step.seq not in line.old:
                continue
            is_before = until is not None and (until not in line.old or until in line.named)
            if is_before or step.after in versions or line.is_asked_for(step.seq, until):
                yield step.seq


def _states(connection: Connection, line: _Line) -> Iterator[tuple[str, int, bool]]:
    """Yield each ingest state that may go with its commit: its table, its sequence, and whether it is needed."""
    columns = schema.ingested.c
    query = sa.select(columns.table_name, columns.seq).where(columns.line == line.id, columns.path == STATE)
    rows = connection.execute(query.order_by(columns.table_name, columns.seq))
    for table, chain in groupby(rows, attrgetter("table_name")):
        for row, until in _with_next(chain):
            if row.seq in line.old:
                yield table, row.seq, line.is_asked_for(row.seq, until)


def _with_next(chain: Iterator[Any]) -> Iterator[tuple[Any, int | None]]:
    """Yield each row with the sequence of the next one."""
    row = next(chain, None)
    while row is not None:
        after = next(chain, None)
        yield row, after.seq if after is not None else None
        row = after


def _named(connection: Connection) -> _Named:
    states = (
        schema.lines.c.from_commit,
        schema.branches.c.head,
        schema.tags.c.commit_id,
        schema.pins.c.commit_id,
        schema.slots.c.commit_id,
        schema.commits.c.merged,
    )
    told = (schema.deliveries.c.delivered, schema.deliveries.c.begun, schema.runs.c.commit_id)
    return _Named(
        frozenset(one for column in states for one in _values(connection, column)),
        frozenset(one for column in told for one in _values(connection, column)) | frozenset(_reverted(connection)),
        frozenset(_versions(connection)),
    )


def _values(connection: Connection, column: "sa.ColumnElement[Any]") -> Iterator[str]:
    yield from connection.execute(sa.select(column).where(column.is_not(None))).scalars()


def _reverted(connection: Connection) -> Iterator[str]:
    """Yield the commits that were reverted: who made a table is asked through them."""
    changes, commits = schema.changes.c, schema.commits.c
    query = sa.select(changes.detail).join(schema.commits, commits.id == changes.commit_id)
    for text in connection.execute(query.where(commits.kind == "revert")).scalars():
        if undone := json.loads(text).get("reverts"):
            yield undone


def _versions(connection: Connection) -> Iterator[str]:
    """Yield the versions that results, streams, and what branches hold now were made of: who made those is asked."""
    for row in connection.execute(sa.select(schema.results)):
        yield from (head.location for head in result_of(row).inputs.values())
    for stream in streams(connection).values():
        yield from (tape.reached for tape in stream.tapes.values())
    for branch in connection.execute(sa.select(schema.branches.c.name, schema.branches.c.head)).all():
        commit = find(connection, branch.head)
        for table in head_state(connection, branch.name) if commit else ():
            made = origin(connection, commit, table) if commit else None
            used = made.made.change.detail.get("inputs", {}) if made else {}
            yield from (one["location"] for one in used.values())
