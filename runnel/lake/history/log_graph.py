r"""Draw the history of branches as text: forks, merges, and who comes after whom.

    * 3f2a91c0 (main) merge dev
    |\
    | * 9b1c44de (dev) more orders
    * | 71ab03f2 fix prices
    |/
    * 0c9de811 load orders

Newest first, by sequence, so that the picture of a history is always the same.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.branches import branches
from runnel.lake.history.commits import Commit, commit_of, find
from runnel.lake.history.tags import tags

if TYPE_CHECKING:
    from runnel.lake.store import Store

MOST_COLUMNS = 16
_PAGE = 200


@dataclass(frozen=True)
class GraphLine:
    """One line of the picture: its drawn part, and the commit that it shows, if it shows one, with its names."""

    drawn: str
    commit: Commit | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the line as it is printed."""
        if self.commit is None:
            return self.drawn
        names = f"({', '.join(self.names)}) " if self.names else ""
        return f"{self.drawn} {self.commit.id[:8]} {names}{self.commit.message}"


def graph(store: "Store", ref: str | None = None, *, limit: int | None = None) -> list[GraphLine]:
    """Return the picture of what lies behind a ref, or behind all branches: at most `limit` commits."""
    start = store.commit(ref) if ref is not None else None
    return store.db.read(lambda connection: _graph(connection, start, limit))


def _graph(connection: Connection, start: Commit | None, limit: int | None) -> list[GraphLine]:
    names: dict[str, list[str]] = {}
    known = branches(connection)
    for branch in known:
        names.setdefault(branch.head, []).append(branch.name)
    for tag in tags(connection):
        names.setdefault(tag.commit, []).append(f"tag {tag.name}")
    heads = [start.id] if start else [branch.head for branch in known]
    lines: list[GraphLine] = []
    columns: list[str] = []
    for commit in _newest_first(connection, heads, limit):
        lines += _row(columns, commit, tuple(names.get(commit.id, ())))
    return lines


def _newest_first(connection: Connection, heads: Sequence[str], limit: int | None) -> list[Commit]:
    """Return all that lies behind some commits; the sequence puts every commit after its ancestors."""
    found: list[Commit] = []
    waiting: list[tuple[int, str]] = []
    known: dict[str, Commit] = {}
    seen: set[str] = set()

    def wait(commit_id: str | None) -> None:
        if commit_id is None or commit_id in seen:
            return
        seen.add(commit_id)
        if commit_id not in known:
            known.update(_page(connection, commit_id))
        if commit_id in known:
            heapq.heappush(waiting, (-known[commit_id].seq, commit_id))

    for head in heads:
        wait(head)
    while waiting and (limit is None or len(found) < limit):
        commit = known[heapq.heappop(waiting)[1]]
        found.append(commit)
        wait(commit.parent)
        wait(commit.merged)
    return found


def _page(connection: Connection, commit_id: str) -> dict[str, Commit]:
    """Return a commit and those before it on its line: one query for many."""
    newest = find(connection, commit_id)
    if newest is None:
        return {}
    columns = schema.commits.c
    query = sa.select(schema.commits).where(columns.line == newest.line, columns.seq <= newest.seq)
    rows = connection.execute(query.order_by(columns.seq.desc()).limit(_PAGE))
    return {row.id: commit_of(row) for row in rows}


def _row(columns: list[str], commit: Commit, names: tuple[str, ...]) -> list[GraphLine]:
    """Return the lines of one commit, and move `columns`, the commits that each column waits for, past it."""
    if commit.id not in columns:
        columns.append(commit.id)
    at = columns.index(commit.id)
    star = ["*" if number == at else "|" for number in range(len(columns))]
    lines = [GraphLine(_shown(" ".join(star), at), commit, names)]
    if commit.merged is not None:
        lines += _open(columns, at, commit.merged)
    return lines + _continue(columns, at, commit.parent)


def _open(columns: list[str], at: int, merged: str) -> list[GraphLine]:
    """Draw the edge of a merge, to a column that waits for the commit already, or to a new one beside it."""
    if merged in columns:
        to = columns.index(merged)
        cells = list(" ".join("|" * len(columns)))
        for place in range(2 * min(at, to) + 1, 2 * max(at, to), 2):
            cells[place] = "_"
        cells[2 * to - 1 if to > at else 2 * to + 1] = "\\" if to > at else "/"
        return [GraphLine(_shown("".join(cells)))]
    left, right = ["|"] * (at + 1), ["\\"] * (len(columns) - at - 1)
    columns.insert(at + 1, merged)
    return [GraphLine(_shown(" ".join(left) + "\\" + "".join(f" {cell}" for cell in right)))]


def _continue(columns: list[str], at: int, parent: str | None) -> list[GraphLine]:
    """Let a column wait for the parent, or end it: where it begins, or where another one waits for the same."""
    others = [number for number, waits in enumerate(columns) if waits == parent and number != at]
    if parent is not None and not others:
        columns[at] = parent
        return []
    last = at == len(columns) - 1
    if parent is None:
        del columns[at]
        return [] if last else [GraphLine(_shown(_closing(len(columns) + 1, at, None)))]
    to = others[0]
    if to > at:  # the leftmost of the two goes on
        columns[at], at, to = parent, to, at
    drawn = _closing(len(columns), at, to)
    del columns[at]
    return [GraphLine(_shown(drawn))]


def _closing(count: int, at: int, to: int | None) -> str:
    """Return the line in which column `at` runs into column `to`, or ends, and those to the right move up."""
    cells = [" "] * (2 * count)
    for number in range(at):
        cells[2 * number] = "|"
    for number in range(at + 1, count):
        cells[2 * number - 1] = "/"
    if to is not None:
        for place in range(2 * to + 1, 2 * at - 1, 2):
            cells[place] = "_"
        cells[2 * at - 1] = "/"
    return "".join(cells)


def _shown(drawn: str, at: int | None = None) -> str:
    """Return a drawn line, cut where it would grow too wide; a commit further right still gets its star."""
    width = 2 * MOST_COLUMNS - 1
    drawn = drawn.rstrip()
    if len(drawn) <= width:
        return drawn
    return drawn[:width] + (" *" if at is not None and at >= MOST_COLUMNS else " >")
