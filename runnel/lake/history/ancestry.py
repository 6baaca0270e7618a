"""Find the ancestors of a commit, through parents and merges, and the merge bases of two commits.

Each line is linear, so the ancestors of a commit are one number per line: the highest sequence. The cost depends on
the number of lines and merges, not on the number of commits.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.commits import Commit, commit_from_row, walk_lines

LinePosition = tuple[str, int]
"""A line and a sequence on it."""


@dataclass(frozen=True)
class LineMerge:
    """A merge commit on a line: its sequence, and the position that it merged."""

    seq: int
    merged: LinePosition


@dataclass(frozen=True)
class LineGraph:
    """All lines of the lake: where each was forked, and its merges in order."""

    origins: Mapping[str, LinePosition]
    merges: Mapping[str, tuple[LineMerge, ...]]

    def ancestor_sequences(self, start: LinePosition) -> dict[str, int]:
        """Return the highest sequence of each line among the ancestors of a position, including the position."""
        sequences: dict[str, int] = {}
        pending = [start]
        while pending:
            line, seq = pending.pop()
            highest_seen = sequences.get(line, -1)
            if seq <= highest_seen:
                continue
            sequences[line] = seq
            if highest_seen < 0 and line in self.origins:
                pending.append(self.origins[line])
            merges = self.merges.get(line, ())
            first = bisect_right(merges, highest_seen, key=lambda merge: merge.seq)
            pending.extend(merge.merged for merge in merges[first : bisect_right(merges, seq, key=lambda m: m.seq)])
        return sequences


def read_line_graph(connection: Connection) -> LineGraph:
    """Read the lines and merges of the lake."""
    lines, merge_commits, merged_commits = schema.lines.c, schema.commits.c, schema.commits.alias("taken")
    fork_rows = connection.execute(
        sa.select(lines.id, lines.from_line, lines.from_seq).where(lines.from_line.is_not(None))
    )
    merge_rows = connection.execute(
        sa.select(
            merge_commits.line,
            merge_commits.seq,
            merged_commits.c.line.label("from_line"),
            merged_commits.c.seq.label("from_seq"),
        )
        .join(merged_commits, merged_commits.c.id == merge_commits.merged)
        .where(merge_commits.merged.is_not(None))
        .order_by(merge_commits.line, merge_commits.seq)
    )
    merges: dict[str, list[LineMerge]] = {}
    for row in merge_rows:
        merges.setdefault(row.line, []).append(LineMerge(row.seq, (row.from_line, row.from_seq)))
    origins = {row.id: (row.from_line, row.from_seq) for row in fork_rows}
    return LineGraph(origins, {line: tuple(line_merges) for line, line_merges in merges.items()})


def read_ancestor_sequences(connection: Connection, commit: Commit) -> dict[str, int]:
    """Return the highest sequence of each line among the ancestors of a commit, including the commit."""
    return read_line_graph(connection).ancestor_sequences((commit.line, commit.seq))


def is_ancestor(ancestor_sequences: Mapping[str, int], commit: Commit) -> bool:
    """Return whether a commit is among the ancestors that `read_ancestor_sequences` returned."""
    return ancestor_sequences.get(commit.line, -1) >= commit.seq


def find_merge_bases(connection: Connection, a: Commit, b: Commit) -> list[Commit]:
    """Return the common ancestors of two commits that are no ancestors of another one, newest first.

    There are several only if branches were merged crosswise; two commits of one lake always have at least one.
    """
    graph = read_line_graph(connection)
    ancestors_of_a, ancestors_of_b = (
        graph.ancestor_sequences((a.line, a.seq)),
        graph.ancestor_sequences((b.line, b.seq)),
    )
    common = [
        (min(ancestors_of_a[line], ancestors_of_b[line]), line)
        for line in ancestors_of_a.keys() & ancestors_of_b.keys()
    ]
    bases: list[LinePosition] = []
    covered: dict[str, int] = {}
    for seq, line in sorted(common, reverse=True):
        if covered.get(line, -1) >= seq:
            continue
        bases.append((line, seq))
        for ancestor_line, highest in graph.ancestor_sequences((line, seq)).items():
            covered[ancestor_line] = max(highest, covered.get(ancestor_line, -1))
    return [read_commit_at(connection, base) for base in bases]


def find_next_merge_bases(connection: Connection, heads: Sequence[LinePosition]) -> list[Commit]:
    """Return the merge bases of every pair of `heads`.

    Only a line with several forks or merges can hold a merge base: whatever both commits have of any other line, both
    got through the same fork or merge, and so they share the line of that, too. Deleted branches that were merged once
    cost nothing.
    """
    graph = read_line_graph(connection)
    fork_counts = Counter(line for line, _ in graph.origins.values())
    fork_counts.update(merge.merged[0] for merges in graph.merges.values() for merge in merges)
    lines = {line for line, _ in heads} | {line for line, count in fork_counts.items() if count > 1}
    ancestors = [graph.ancestor_sequences(head) for head in dict.fromkeys(heads)]
    candidates = [{line: seq for line, seq in sequences.items() if line in lines} for sequences in ancestors]
    ancestors_of_position: dict[LinePosition, dict[str, int]] = {}
    bases: set[LinePosition] = set()
    for number, candidate in enumerate(candidates):
        for other in candidates[:number]:
            common = {(line, min(candidate[line], other[line])) for line in candidate.keys() & other.keys()}
            for line, seq in sorted(common, key=lambda position: position[1], reverse=True):
                if (line, seq) in bases:
                    continue
                for position in common:
                    if position not in ancestors_of_position:
                        ancestors_of_position[position] = graph.ancestor_sequences(position)
                if not any(
                    ancestors_of_position[position].get(line, -1) >= seq
                    for position in common
                    if position != (line, seq)
                ):
                    bases.add((line, seq))
    return [read_commit_at(connection, position) for position in sorted(bases)]


def find_merge_base(connection: Connection, a: Commit, b: Commit) -> Commit:
    """Return the newest common ancestor of two commits."""
    return find_merge_bases(connection, a, b)[0]


def find_tables_changed_between(connection: Connection, a: Commit, b: Commit) -> list[str]:
    """Return the names of the tables that may differ between two commits, in order.

    Follows first parents from both commits to where they meet, so the cost depends on the changes in between.
    """
    lines_of_a, lines_of_b = dict(walk_lines(connection, a.line, a.seq)), dict(walk_lines(connection, b.line, b.seq))
    shared_line = next((line for line in lines_of_a if line in lines_of_b), None)
    shared_seq = min(lines_of_a[shared_line], lines_of_b[shared_line]) if shared_line is not None else 0
    tables: set[str] = set()
    for line_sequences in (lines_of_a, lines_of_b):
        for line, seq in line_sequences.items():
            tables |= _read_changed_tables(connection, line, shared_seq if line == shared_line else 0, seq)
            if line == shared_line:
                break
    return sorted(tables)


def _read_changed_tables(connection: Connection, line: str, low: int, high: int) -> set[str]:
    # Join through the commits, whose index has the sequence; the index of changes is ordered by table.
    commits, changes = schema.commits.c, schema.changes.c
    query = (
        sa.select(changes.table_name)
        .distinct()
        .join(schema.commits, commits.id == changes.commit_id)
        .where(commits.line == line, commits.seq > low, commits.seq <= high)
    )
    return set(connection.execute(query).scalars())


def read_commit_at(connection: Connection, position: LinePosition) -> Commit:
    """Return the commit at a position: the newest of its line up to its sequence."""
    columns = schema.commits.c
    query = sa.select(schema.commits).where(columns.line == position[0], columns.seq <= position[1])
    return commit_from_row(connection.execute(query.order_by(columns.seq.desc()).limit(1)).one())
