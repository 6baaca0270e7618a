r"""Draw the history of branches as text: forks, merges, and the order of commits.

    * 3f2a91c0 (main) merge dev
    |\
    | * 9b1c44de (dev) more orders
    * | 71ab03f2 fix prices
    |/
    * 0c9de811 load orders

Newest first, by sequence, so that the graph of a history is always the same.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.branches import list_branches
from runnel.lake.history.commits import Commit, commit_from_row, find_commit
from runnel.lake.history.tags import list_tags

if TYPE_CHECKING:
    from runnel.lake.store import Store

MAX_COLUMNS = 16
_PAGE_COMMITS = 200


@dataclass(frozen=True)
class GraphLine:
    """One line of the graph: its drawing and, if it shows a commit, that commit with its branch and tag names."""

    drawing: str
    commit: Commit | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the line as it is printed."""
        if self.commit is None:
            return self.drawing
        names = f"({', '.join(self.names)}) " if self.names else ""
        return f"{self.drawing} {self.commit.id[:8]} {names}{self.commit.message}"


def draw_graph(store: "Store", ref: str | None = None, *, limit: int | None = None) -> list[GraphLine]:
    """Return the graph of the ancestors of a ref, or of all branches: at most `limit` commits."""
    start = store.commit(ref) if ref is not None else None
    return store.db.read(lambda connection: _draw_graph(connection, start, limit))


def _draw_graph(connection: Connection, start: Commit | None, limit: int | None) -> list[GraphLine]:
    names: dict[str, list[str]] = {}
    all_branches = list_branches(connection)
    for branch in all_branches:
        names.setdefault(branch.head, []).append(branch.name)
    for tag in list_tags(connection):
        names.setdefault(tag.commit, []).append(f"tag {tag.name}")
    heads = [start.id] if start else [branch.head for branch in all_branches]
    lines: list[GraphLine] = []
    columns: list[str] = []
    for commit in _read_newest_first(connection, heads, limit):
        lines += _draw_commit(columns, commit, tuple(names.get(commit.id, ())))
    return lines


def _read_newest_first(connection: Connection, heads: Sequence[str], limit: int | None) -> list[Commit]:
    """Return some commits and all their ancestors; the sequence puts every commit before its ancestors."""
    commits: list[Commit] = []
    pending: list[tuple[int, str]] = []
    commits_by_id: dict[str, Commit] = {}
    seen: set[str] = set()

    def enqueue(commit_id: str | None) -> None:
        if commit_id is None or commit_id in seen:
            return
        seen.add(commit_id)
        if commit_id not in commits_by_id:
            commits_by_id.update(_read_page(connection, commit_id))
        if commit_id in commits_by_id:
            heapq.heappush(pending, (-commits_by_id[commit_id].seq, commit_id))

    for head in heads:
        enqueue(head)
    while pending and (limit is None or len(commits) < limit):
        commit = commits_by_id[heapq.heappop(pending)[1]]
        commits.append(commit)
        enqueue(commit.parent)
        enqueue(commit.merged)
    return commits


def _read_page(connection: Connection, commit_id: str) -> dict[str, Commit]:
    """Return a commit and up to a page of commits before it on its line, in one query."""
    newest = find_commit(connection, commit_id)
    if newest is None:
        return {}
    columns = schema.commits.c
    query = sa.select(schema.commits).where(columns.line == newest.line, columns.seq <= newest.seq)
    rows = connection.execute(query.order_by(columns.seq.desc()).limit(_PAGE_COMMITS))
    return {row.id: commit_from_row(row) for row in rows}


def _draw_commit(columns: list[str], commit: Commit, names: tuple[str, ...]) -> list[GraphLine]:
    """Return the lines of one commit, and update `columns`, which holds the commit that each column shows next."""
    if commit.id not in columns:
        columns.append(commit.id)
    column = columns.index(commit.id)
    cells = ["*" if number == column else "|" for number in range(len(columns))]
    lines = [GraphLine(_cut_to_width(" ".join(cells), column), commit, names)]
    if commit.merged is not None:
        lines += _draw_merge(columns, column, commit.merged)
    return lines + _draw_parent(columns, column, commit.parent)


def _draw_merge(columns: list[str], column: int, merged: str) -> list[GraphLine]:
    """Draw the edge of a merge, to the column that shows the merged commit next, or to a new column on its right."""
    if merged in columns:
        target = columns.index(merged)
        cells = list(" ".join("|" * len(columns)))
        for position in range(2 * min(column, target) + 1, 2 * max(column, target), 2):
            cells[position] = "_"
        cells[2 * target - 1 if target > column else 2 * target + 1] = "\\" if target > column else "/"
        return [GraphLine(_cut_to_width("".join(cells)))]
    left, right = ["|"] * (column + 1), ["\\"] * (len(columns) - column - 1)
    columns.insert(column + 1, merged)
    return [GraphLine(_cut_to_width(" ".join(left) + "\\" + "".join(f" {cell}" for cell in right)))]


def _draw_parent(columns: list[str], column: int, parent: str | None) -> list[GraphLine]:
    """Let a column show the parent next, or end it if there is no parent or another column shows the parent next."""
    others = [number for number, commit_id in enumerate(columns) if commit_id == parent and number != column]
    if parent is not None and not others:
        columns[column] = parent
        return []
    is_last = column == len(columns) - 1
    if parent is None:
        del columns[column]
        return [] if is_last else [GraphLine(_cut_to_width(_draw_closing(len(columns) + 1, column, None)))]
    target = others[0]
    if target > column:  # keep the leftmost of the two
        columns[column], column, target = parent, target, column
    drawing = _draw_closing(len(columns), column, target)
    del columns[column]
    return [GraphLine(_cut_to_width(drawing))]


def _draw_closing(count: int, column: int, target: int | None) -> str:
    """Return the line in which `column` joins column `target`, or ends, and the columns on its right move left."""
    cells = [" "] * (2 * count)
    for number in range(column):
        cells[2 * number] = "|"
    for number in range(column + 1, count):
        cells[2 * number - 1] = "/"
    if target is not None:
        for position in range(2 * target + 1, 2 * column - 1, 2):
            cells[position] = "_"
        cells[2 * column - 1] = "/"
    return "".join(cells)


def _cut_to_width(drawing: str, column: int | None = None) -> str:
    """Return a drawing cut to the maximum width; a commit further right still gets its star."""
    width = 2 * MAX_COLUMNS - 1
    drawing = drawing.rstrip()
    if len(drawing) <= width:
        return drawing
    return drawing[:width] + (" *" if column is not None and column >= MAX_COLUMNS else " >")
