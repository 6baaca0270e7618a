"""Which commits lie behind a commit, through parents and merges, and where two of them last agreed.

Each line is linear, so all that is behind a commit is one number per line: the highest sequence. The cost follows the
number of lines and merges, not of commits.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.commits import Commit, commit_of, path

Place = tuple[str, int]
"""A line and a sequence on it."""


@dataclass(frozen=True)
class Merge:
    """A merge on a line: its sequence, and the place that it took in."""

    seq: int
    merged: Place


@dataclass(frozen=True)
class Lineage:
    """All lines of the lake: where each was forked off, and its merges in order."""

    origins: Mapping[str, Place]
    merges: Mapping[str, tuple[Merge, ...]]

    def reach(self, start: Place) -> dict[str, int]:
        """Return the highest sequence of every line that lies behind a place, itself included."""
        found: dict[str, int] = {}
        waiting = [start]
        while waiting:
            line, seq = waiting.pop()
            seen = found.get(line, -1)
            if seq <= seen:
                continue
            found[line] = seq
            if seen < 0 and line in self.origins:
                waiting.append(self.origins[line])
            merges = self.merges.get(line, ())
            first = bisect_right(merges, seen, key=lambda merge: merge.seq)
            waiting.extend(merge.merged for merge in merges[first : bisect_right(merges, seq, key=lambda m: m.seq)])
        return found


def lineage(connection: Connection) -> Lineage:
    """Read the lines and merges of the lake."""
    lines, made, taken = schema.lines.c, schema.commits.c, schema.commits.alias("taken")
    forked = connection.execute(
        sa.select(lines.id, lines.from_line, lines.from_seq).where(lines.from_line.is_not(None))
    )
    merged = connection.execute(
        sa.select(made.line, made.seq, taken.c.line.label("from_line"), taken.c.seq.label("from_seq"))
        .join(taken, taken.c.id == made.merged)
        .where(made.merged.is_not(None))
        .order_by(made.line, made.seq)
    )
    merges: dict[str, list[Merge]] = {}
    for row in merged:
        merges.setdefault(row.line, []).append(Merge(row.seq, (row.from_line, row.from_seq)))
    origins = {row.id: (row.from_line, row.from_seq) for row in forked}
    return Lineage(origins, {line: tuple(found) for line, found in merges.items()})


def reach(connection: Connection, commit: Commit) -> dict[str, int]:
    """Return the highest sequence of every line that lies behind a commit, itself included."""
    return lineage(connection).reach((commit.line, commit.seq))


def contains(behind: Mapping[str, int], commit: Commit) -> bool:
    """Tell whether a commit is among what `reach` returned."""
    return behind.get(commit.line, -1) >= commit.seq


def merge_bases(connection: Connection, a: Commit, b: Commit) -> list[Commit]:
    """Return the common ancestors of two commits that lie behind no other one, newest first.

    There are several only where branches were merged crosswise; two commits of one lake always have one.
    """
    whole = lineage(connection)
    one, other = whole.reach((a.line, a.seq)), whole.reach((b.line, b.seq))
    common = [(min(one[line], other[line]), line) for line in one.keys() & other.keys()]
    places: list[Place] = []
    covered: dict[str, int] = {}
    for seq, line in sorted(common, reverse=True):
        if covered.get(line, -1) >= seq:
            continue
        places.append((line, seq))
        for behind, highest in whole.reach((line, seq)).items():
            covered[behind] = max(highest, covered.get(behind, -1))
    return [commit_at(connection, place) for place in places]


def bases_of_next_merges(connection: Connection, heads: Sequence[Place]) -> list[Commit]:
    """Return the commits that merges between any two of some commits would start from.

    Only lines that several ways lead from can have such a commit: what both have of any other line, both have by the
    same fork or merge, and so the line of that too. Deleted branches that were merged once cost nothing.
    """
    whole = lineage(connection)
    ways = Counter(line for line, _ in whole.origins.values())
    ways.update(merge.merged[0] for merges in whole.merges.values() for merge in merges)
    lines = {line for line, _ in heads} | {line for line, count in ways.items() if count > 1}
    behind = [whole.reach(head) for head in dict.fromkeys(heads)]
    own = [{line: seq for line, seq in found.items() if line in lines} for found in behind]
    reaches: dict[Place, dict[str, int]] = {}
    places: set[Place] = set()
    for number, one in enumerate(own):
        for other in own[:number]:
            common = {(line, min(one[line], other[line])) for line in one.keys() & other.keys()}
            for line, seq in sorted(common, key=lambda place: place[1], reverse=True):
                if (line, seq) in places:
                    continue
                for place in common:
                    if place not in reaches:
                        reaches[place] = whole.reach(place)
                if not any(reaches[place].get(line, -1) >= seq for place in common if place != (line, seq)):
                    places.add((line, seq))
    return [commit_at(connection, place) for place in sorted(places)]


def merge_base(connection: Connection, a: Commit, b: Commit) -> Commit:
    """Return the newest common ancestor of two commits."""
    return merge_bases(connection, a, b)[0]


def tables_between(connection: Connection, a: Commit, b: Commit) -> list[str]:
    """Return the names of the tables that may differ between two commits, in order.

    Follows first parents from each to where they meet, so that it costs by the changes in between.
    """
    mine, theirs = dict(path(connection, a.line, a.seq)), dict(path(connection, b.line, b.seq))
    met = next((line for line in mine if line in theirs), None)
    low = min(mine[met], theirs[met]) if met is not None else 0
    found: set[str] = set()
    for way in (mine, theirs):
        for line, seq in way.items():
            found |= _tables(connection, line, low if line == met else 0, seq)
            if line == met:
                break
    return sorted(found)


def _tables(connection: Connection, line: str, low: int, high: int) -> set[str]:
    # Through the commits, whose index knows sequences; that of changes is ordered by table.
    commits, changes = schema.commits.c, schema.changes.c
    query = (
        sa.select(changes.table_name)
        .distinct()
        .join(schema.commits, commits.id == changes.commit_id)
        .where(commits.line == line, commits.seq > low, commits.seq <= high)
    )
    return set(connection.execute(query).scalars())


def commit_at(connection: Connection, place: Place) -> Commit:
    """Return the commit at a place."""
    columns = schema.commits.c
    query = sa.select(schema.commits).where(columns.line == place[0], columns.seq <= place[1])
    return commit_of(connection.execute(query.order_by(columns.seq.desc()).limit(1)).one())
