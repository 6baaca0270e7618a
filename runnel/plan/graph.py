"""Build the graph of a flow's tables: the order to compute them in, and what is upstream and downstream of a table.

Pure. The loader has already rejected cycles.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from runnel.declare.model.flow import Flow
from runnel.names import TableName


class Graph:
    """The tables of a flow and their dependencies, without tables that the flow does not declare."""

    def __init__(self, flow: Flow) -> None:
        names = {*flow.sources, *flow.tasks}
        self.inputs: Mapping[TableName, tuple[TableName, ...]] = {
            table: tuple(above for above in flow.inputs_of(table) if above in names) for table in names
        }
        self.readers: Mapping[TableName, tuple[TableName, ...]] = self._invert_inputs()

    @cached_property
    def levels(self) -> tuple[tuple[TableName, ...], ...]:
        """Return the tables in groups, sorted by name; a table reads only tables of earlier groups."""
        waiting = {table: len(above) for table, above in self.inputs.items()}
        ready = sorted(table for table, count in waiting.items() if not count)
        groups = []
        while ready:
            groups.append(tuple(ready))
            next_level = []
            for table in ready:
                for below in self.readers.get(table, ()):
                    waiting[below] -= 1
                    if not waiting[below]:
                        next_level.append(below)
            ready = sorted(next_level)
        return tuple(groups)

    @cached_property
    def order(self) -> tuple[TableName, ...]:
        """Return the tables in dependency order, by name within a level."""
        return tuple(table for level in self.levels for table in level)

    def upstream_of(self, start: TableName | Iterable[TableName], depth: int | None = None) -> frozenset[TableName]:
        """Return the tables that `start` depends on, at most `depth` steps away, without `start` itself."""
        return _walk_edges(self.inputs, start, depth)

    def downstream_of(self, start: TableName | Iterable[TableName], depth: int | None = None) -> frozenset[TableName]:
        """Return the tables that depend on `start`, at most `depth` steps away, without `start` itself."""
        return _walk_edges(self.readers, start, depth)

    def _invert_inputs(self) -> dict[TableName, tuple[TableName, ...]]:
        readers: dict[TableName, list[TableName]] = defaultdict(list)
        for table, above in self.inputs.items():
            for upstream in above:
                readers[upstream].append(table)
        return {table: tuple(sorted(below)) for table, below in readers.items()}


def _walk_edges(
    edges: Mapping[TableName, tuple[TableName, ...]], start: TableName | Iterable[TableName], depth: int | None
) -> frozenset[TableName]:
    origin = {start} if isinstance(start, TableName) else set(start)
    visited, frontier = set(origin), origin
    while frontier and depth != 0:
        frontier = {neighbor for table in frontier for neighbor in edges.get(table, ())} - visited
        visited |= frontier
        depth = None if depth is None else depth - 1
    return frozenset(visited - origin)
