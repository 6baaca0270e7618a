"""Find the retained commits, and the versions of tables that they need.

A version is needed by every commit from the one that published it up to the next that changed its table, on its line
and on lines forked off in between; so it may be needed though the commit that published it has expired. One pass over
the changes of each line finds all versions, whatever the number of commits. Reads the catalog database only.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.catalog.migrate import MAIN_BRANCH
from runnel.lake.flow_state.streams import list_streams
from runnel.lake.history.ancestry import find_next_merge_bases
from runnel.lake.upkeep.gc.retention import Retention


@dataclass(frozen=True)
class RetainedCommit:
    """A commit whose contents are retained."""

    id: str
    line: str
    seq: int


@dataclass(frozen=True)
class VersionUse:
    """A version that retained commits need, and the first and the last of these commits."""

    table: str
    location: str
    first: RetainedCommit
    last: RetainedCommit


@dataclass(frozen=True)
class CatalogRow:
    """A row of Iceberg's catalog, or an append log. `is_ours` is true for branches, false for slots and other names."""

    catalog: str
    table: str
    location: str
    is_table: bool
    is_ours: bool
    is_append_log: bool = False


CommitSpan = tuple[RetainedCommit, RetainedCommit]
"""The first and the last commit that need something."""


@dataclass(frozen=True)
class _Need:
    """A sequence number on a line whose state is needed, and the commits that need it.

    Lines forked off there have changed some tables: `span_by_table` has the commits that still need the older version.
    """

    seq: int
    span: CommitSpan
    span_by_table: Mapping[str, CommitSpan | None] = field(default_factory=dict)

    def find_span(self, table: str) -> CommitSpan | None:
        """Return the commits that need a table at this sequence number."""
        return self.span_by_table.get(table, self.span)


def read_unexpired_commits(connection: Connection, excluded: frozenset[str] = frozenset()) -> list[RetainedCommit]:
    """Return every commit that has not expired and is not `excluded`."""
    columns = schema.commits.c
    query = sa.select(columns.id, columns.line, columns.seq).where(columns.expired_at.is_(None))
    return [RetainedCommit(row.id, row.line, row.seq) for row in connection.execute(query) if row.id not in excluded]


def find_expired_commits(connection: Connection, retention: Retention, now: str) -> list[str]:
    """Return the commits whose retention has ended and that nothing protects.

    A commit's retention starts when the next commit of its line replaces it: a state that was current within the
    retention can still be restored.
    """
    rows = connection.execute(sa.select(schema.branches.c.line, schema.branches.c.name))
    branch_by_line: dict[str, str] = {row.line: row.name for row in rows}
    protected_ids, columns = _find_protected_commits(connection), schema.commits.c
    query = sa.select(columns.id, columns.line, columns.kind, columns.at).where(columns.expired_at.is_(None))
    limits: dict[tuple[str, str], str] = {}
    expired_ids: list[str] = []
    for line, commits in groupby(connection.execute(query.order_by(columns.line, columns.seq)), attrgetter("line")):
        chain = list(commits)
        for row, successor in zip(chain, [*chain[1:], chain[-1]], strict=True):
            rule = (branch_by_line.get(line, MAIN_BRANCH), row.kind)
            if rule not in limits:
                limits[rule] = format_time(parse_time(now) - retention.find_commit_retention(*rule))
            if row.id not in protected_ids and successor.at <= limits[rule]:
                expired_ids.append(row.id)
    return expired_ids


def iter_version_uses(connection: Connection, commits: Iterable[RetainedCommit]) -> Iterator[VersionUse]:
    """Yield every version that one of the commits needs; a version that several lines need may come several times."""
    rows = connection.execute(sa.select(schema.lines.c.id, schema.lines.c.from_line, schema.lines.c.from_seq))
    origin_by_line = {row.id: (row.from_line, row.from_seq) for row in rows}
    needs: dict[str, list[_Need]] = {}
    for commit in commits:
        needs.setdefault(commit.line, []).append(_Need(commit.seq, (commit, commit)))
    for line in _order_children_first(origin_by_line):
        line_needs = sorted(needs.pop(line, []), key=attrgetter("seq"))
        if not line_needs:
            continue
        span_by_table = {
            table: _find_span(line_needs, 0, len(line_needs), table)
            for need in line_needs
            for table in need.span_by_table
        }
        for table, version_uses, inherited_span in _iter_table_uses(connection, line, line_needs):
            yield from version_uses
            span_by_table[table] = inherited_span
        parent, seq = origin_by_line[line]
        if parent is not None:
            needs.setdefault(parent, []).append(
                _Need(seq, (line_needs[0].span[0], line_needs[-1].span[1]), span_by_table)
            )


def read_catalog_rows(connection: Connection) -> list[CatalogRow]:
    """Return every row of Iceberg's catalog (branches with changes by other engines, slots) and all append logs."""
    names = set(connection.execute(sa.select(schema.branches.c.name)).scalars())
    rows = connection.execute(sa.select(schema.iceberg_tables).where(schema.iceberg_tables.c.metadata_location != ""))
    catalog_rows = [
        CatalogRow(
            row.catalog_name,
            f"{row.table_namespace}.{row.table_name}",
            row.metadata_location,
            row.iceberg_type in (None, "TABLE"),
            row.catalog_name in names,
        )
        for row in rows
    ]
    return catalog_rows + [
        CatalogRow(stream.branch, str(table), location, is_table=True, is_ours=True, is_append_log=is_append_log)
        for stream in list_streams(connection).values()
        for table, append_log in stream.append_logs.items()
        for location, is_append_log in ((append_log.location, True), (append_log.reached, False))
    ]


def read_append_log_locations(connection: Connection) -> set[str]:
    """Return the versions that are append logs, which streams read snapshot by snapshot."""
    return {
        append_log.location
        for stream in list_streams(connection).values()
        for append_log in stream.append_logs.values()
    }


def read_open_writes(connection: Connection) -> list[str]:
    """Return when each open write started; a slot counts as a write."""
    pins = sa.select(schema.pins.c.started_at).where(schema.pins.c.kind.not_in(["read", "gc"]))
    slots = sa.select(schema.slots.c.taken_at)
    return [*connection.execute(pins).scalars(), *connection.execute(slots).scalars()]


def _find_protected_commits(connection: Connection) -> set[str]:
    """Return the commits that are retained whatever their age: heads, tags, pins, slots, and bases of next merges."""
    columns = (
        schema.branches.c.head,
        schema.tags.c.commit_id,
        schema.pins.c.commit_id,
        schema.slots.c.commit_id,
    )
    protected_ids = {commit for column in columns for commit in connection.execute(sa.select(column)).scalars()}
    heads = sa.select(schema.commits.c.line, schema.commits.c.seq).join(
        schema.branches, schema.branches.c.head == schema.commits.c.id
    )
    head_positions = [(row.line, row.seq) for row in connection.execute(heads)]
    protected_ids |= {commit.id for commit in find_next_merge_bases(connection, head_positions)}
    return protected_ids


def _iter_table_uses(
    connection: Connection, line: str, needs: Sequence[_Need]
) -> Iterator[tuple[str, list[VersionUse], CommitSpan | None]]:
    """Yield each table that a line changed, its needed versions, and which commits need an older one."""
    columns = schema.changes.c
    query = sa.select(columns.table_name, columns.seq, columns.after).where(columns.line == line)
    rows = connection.execute(query.order_by(columns.table_name, columns.seq))
    seqs = [span.seq for span in needs]
    for table, changes in groupby(rows, attrgetter("table_name")):
        chain = list(changes)
        starts = [bisect_left(seqs, change.seq) for change in chain]
        version_uses = []
        for change, start, end in zip(chain, starts, [*starts[1:], len(seqs)], strict=True):
            span = _find_span(needs, start, end, table) if change.after else None
            if span is not None:
                version_uses.append(VersionUse(table, change.after, *span))
        yield table, version_uses, _find_span(needs, 0, starts[0], table)


def _find_span(needs: Sequence[_Need], start: int, end: int, table: str) -> CommitSpan | None:
    """Return the first and the last commit in needs[start:end] that need a table."""
    first = next(filter(None, (needs[index].find_span(table) for index in range(start, end))), None)
    last = next(filter(None, (needs[index].find_span(table) for index in range(end - 1, start - 1, -1))), None)
    return (first[0], last[1]) if first and last else None


def _order_children_first(origin_by_line: dict[str, tuple[str | None, int | None]]) -> list[str]:
    depths: dict[str, int] = {}
    for line in origin_by_line:
        chain, current = [], line
        while current not in depths:
            chain.append(current)
            parent = origin_by_line[current][0]
            if parent is None or parent not in origin_by_line:
                depths[current] = 0
                break
            current = parent
        for member in reversed(chain):
            depths[member] = depths.get(member, depths.get(origin_by_line[member][0] or "", -1) + 1)
    return sorted(origin_by_line, key=lambda line: -depths[line])
