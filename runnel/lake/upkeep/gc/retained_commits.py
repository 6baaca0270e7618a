"""Which commits are kept, and which versions of tables they need.

A version is needed by every commit from the one that made it up to the next that changed its table, on its line and
on lines forked off in between; so it may be needed though the commit that made it has expired. One pass over the
changes of each line finds them all, whatever the number of commits. Reads the catalog database only.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.catalog.migrate import MAIN
from runnel.lake.flow_state.streams import streams
from runnel.lake.history.ancestry import bases_of_next_merges
from runnel.lake.upkeep.gc.retention import Retention


@dataclass(frozen=True)
class Kept:
    """A commit whose contents are kept."""

    id: str
    line: str
    seq: int


@dataclass(frozen=True)
class Use:
    """A version that kept commits need: the first and the last of them."""

    table: str
    location: str
    first: Kept
    last: Kept


@dataclass(frozen=True)
class Registered:
    """A row of Iceberg's catalog, or a tape. `is_ours` tells branches from slots and from names that are not known."""

    catalog: str
    table: str
    location: str
    is_table: bool
    is_ours: bool
    is_tape: bool = False


Span = tuple[Kept, Kept]
"""The first and the last commit that need something."""


@dataclass(frozen=True)
class _Need:
    """A place on a line whose state is needed, and by which commits.

    Lines forked off there have changed some tables: `own` says which commits still need the older version of those.
    """

    seq: int
    span: Span
    own: Mapping[str, Span | None] = field(default_factory=dict)

    def of(self, table: str) -> Span | None:
        """Return which commits need a table as it is here."""
        return self.own.get(table, self.span)


def unexpired(connection: Connection, but: frozenset[str] = frozenset()) -> list[Kept]:
    """Return every commit whose contents are promised, leaving out those in `but`."""
    columns = schema.commits.c
    query = sa.select(columns.id, columns.line, columns.seq).where(columns.expired_at.is_(None))
    return [Kept(row.id, row.line, row.seq) for row in connection.execute(query) if row.id not in but]


def outlived(connection: Connection, retention: Retention, now: str) -> list[str]:
    """Return the commits whose retention has ended and that nothing holds.

    A commit's time runs from when the next one on its line took its place: what was current within the retention can
    still be gone back to.
    """
    rows = connection.execute(sa.select(schema.branches.c.line, schema.branches.c.name))
    live: dict[str, str] = {row.line: row.name for row in rows}
    held, columns = _held(connection), schema.commits.c
    kept = sa.select(columns.id, columns.line, columns.kind, columns.at).where(columns.expired_at.is_(None))
    limits: dict[tuple[str, str], str] = {}
    found: list[str] = []
    for line, commits in groupby(connection.execute(kept.order_by(columns.line, columns.seq)), attrgetter("line")):
        chain = list(commits)
        for row, successor in zip(chain, [*chain[1:], chain[-1]], strict=True):
            rule = (live.get(line, MAIN), row.kind)
            if rule not in limits:
                limits[rule] = stamp(moment(now) - retention.of(*rule))
            if row.id not in held and successor.at <= limits[rule]:
                found.append(row.id)
    return found


def uses(connection: Connection, kept: Iterable[Kept]) -> Iterator[Use]:
    """Yield every version that a kept commit needs; one that several lines need may come several times."""
    rows = connection.execute(sa.select(schema.lines.c.id, schema.lines.c.from_line, schema.lines.c.from_seq))
    origin = {row.id: (row.from_line, row.from_seq) for row in rows}
    needs: dict[str, list[_Need]] = {}
    for commit in kept:
        needs.setdefault(commit.line, []).append(_Need(commit.seq, (commit, commit)))
    for line in _children_first(origin):
        wanted = sorted(needs.pop(line, []), key=attrgetter("seq"))
        if not wanted:
            continue
        own = {table: _span(wanted, 0, len(wanted), table) for need in wanted for table in need.own}
        for table, found, inherited in _on_line(connection, line, wanted):
            yield from found
            own[table] = inherited
        parent, seq = origin[line]
        if parent is not None:
            needs.setdefault(parent, []).append(_Need(seq, (wanted[0].span[0], wanted[-1].span[1]), own))


def registered(connection: Connection) -> list[Registered]:
    """Return every row of Iceberg's catalog, branches with what other engines did to them and slots, and all tapes."""
    names = set(connection.execute(sa.select(schema.branches.c.name)).scalars())
    rows = connection.execute(sa.select(schema.iceberg_tables).where(schema.iceberg_tables.c.metadata_location != ""))
    found = [
        Registered(
            row.catalog_name,
            f"{row.table_namespace}.{row.table_name}",
            row.metadata_location,
            row.iceberg_type in (None, "TABLE"),
            row.catalog_name in names,
        )
        for row in rows
    ]
    return found + [
        Registered(stream.branch, str(table), location, is_table=True, is_ours=True, is_tape=is_tape)
        for stream in streams(connection).values()
        for table, tape in stream.tapes.items()
        for location, is_tape in ((tape.location, True), (tape.reached, False))
    ]


def tape_locations(connection: Connection) -> set[str]:
    """Return the versions that are tapes: what streams read, snapshot by snapshot."""
    return {tape.location for stream in streams(connection).values() for tape in stream.tapes.values()}


def open_writes(connection: Connection) -> list[str]:
    """Return when each open write started; a slot counts as one."""
    pins = sa.select(schema.pins.c.started_at).where(schema.pins.c.kind.not_in(["read", "gc"]))
    slots = sa.select(schema.slots.c.taken_at)
    return [*connection.execute(pins).scalars(), *connection.execute(slots).scalars()]


def _held(connection: Connection) -> set[str]:
    """Return the commits that are kept whatever their age: heads, tags, pins, slots, and what merges start from."""
    columns = (
        schema.branches.c.head,
        schema.tags.c.commit_id,
        schema.pins.c.commit_id,
        schema.slots.c.commit_id,
    )
    held = {commit for column in columns for commit in connection.execute(sa.select(column)).scalars()}
    heads = sa.select(schema.commits.c.line, schema.commits.c.seq).join(
        schema.branches, schema.branches.c.head == schema.commits.c.id
    )
    places = [(row.line, row.seq) for row in connection.execute(heads)]
    held |= {commit.id for commit in bases_of_next_merges(connection, places)}
    return held


def _on_line(
    connection: Connection, line: str, wanted: Sequence[_Need]
) -> Iterator[tuple[str, list[Use], Span | None]]:
    """Yield each table that a line changed, its needed versions, and which commits need an older one."""
    columns = schema.changes.c
    query = sa.select(columns.table_name, columns.seq, columns.after).where(columns.line == line)
    rows = connection.execute(query.order_by(columns.table_name, columns.seq))
    seqs = [need.seq for need in wanted]
    for table, changes in groupby(rows, attrgetter("table_name")):
        chain = list(changes)
        starts = [bisect_left(seqs, change.seq) for change in chain]
        found = []
        for change, start, end in zip(chain, starts, [*starts[1:], len(seqs)], strict=True):
            need = _span(wanted, start, end, table) if change.after else None
            if need is not None:
                found.append(Use(table, change.after, *need))
        yield table, found, _span(wanted, 0, starts[0], table)


def _span(wanted: Sequence[_Need], start: int, end: int, table: str) -> Span | None:
    """Return the first and the last commit in wanted[start:end] that need a table."""
    first = next(filter(None, (wanted[at].of(table) for at in range(start, end))), None)
    last = next(filter(None, (wanted[at].of(table) for at in range(end - 1, start - 1, -1))), None)
    return (first[0], last[1]) if first and last else None


def _children_first(origin: dict[str, tuple[str | None, int | None]]) -> list[str]:
    depths: dict[str, int] = {}
    for line in origin:
        chain, at = [], line
        while at not in depths:
            chain.append(at)
            parent = origin[at][0]
            if parent is None or parent not in origin:
                depths[at] = 0
                break
            at = parent
        for back in reversed(chain):
            depths[back] = depths.get(back, depths.get(origin[back][0] or "", -1) + 1)
    return sorted(origin, key=lambda line: -depths[line])
