"""Find the lineage of a table: the tables it is computed from and the tables computed from it.

Uses what the project's flow declares now; for tables that it does not declare, uses what commits recorded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.endpoints import Changes, Files, Function, Http, Jdbc, Kafka, Push
from runnel.declare.model.flow import Flow, log_table_of
from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake

Edges = dict[TableName, tuple[TableName, ...]]


@dataclass(frozen=True)
class Lineage:
    """The graph around a table. `makers` describes what computes or fills each table of it."""

    table: TableName
    up: tuple[TableName, ...]
    down: tuple[TableName, ...]
    reads: Mapping[TableName, tuple[TableName, ...]]
    readers: Mapping[TableName, tuple[TableName, ...]]
    makers: Mapping[TableName, str]

    @property
    def edges(self) -> tuple[tuple[TableName, TableName], ...]:
        """Return all edges of the graph, as pairs of an input and the table that reads it."""
        return tuple((above, table) for table, inputs in sorted(self.reads.items()) for above in inputs)

    def json(self) -> dict[str, object]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "up": [str(table) for table in self.up],
            "down": [str(table) for table in self.down],
            "edges": [[str(above), str(below)] for above, below in self.edges],
            "makers": {str(table): text for table, text in sorted(self.makers.items())},
        }


def find_lineage(
    lake: "Lake", table: TableName, *, up: bool = True, down: bool = True, flow: Flow | None = None
) -> Lineage:
    """Return the graph around a table: upstream, downstream or both. `flow` is the loaded project, if there is one."""
    flow = flow or _load_flow(lake)
    declared: Edges = {name: tuple(dict.fromkeys(flow.inputs_of(name))) for name in (*flow.sources, *flow.tasks)}
    recorded, kinds = _read_recorded_edges(lake, declared)
    reads = {**recorded, **declared}
    known_tables = {*reads, *(above for inputs in reads.values() for above in inputs)}
    if table not in known_tables:
        what = f"there is no table `{table}` in the project or on main" + did_you_mean(
            str(table), map(str, known_tables)
        )
        raise Mistake("TABLE_UNKNOWN", what, fix="`runnel tables` lists those of the lake")
    readers = _invert_edges(reads)
    above = _walk_edges(reads, table) if up else ()
    below = _walk_edges(readers, table) if down else ()
    inside = {table, *above, *below}
    return Lineage(
        table,
        above,
        below,
        {name: tuple(neighbor for neighbor in reads.get(name, ()) if neighbor in inside) for name in inside},
        {name: tuple(neighbor for neighbor in readers.get(name, ()) if neighbor in inside) for name in inside},
        {name: _describe_maker(flow, name) or kinds.get(name, "not computed yet") for name in inside},
    )


def _load_flow(lake: "Lake") -> Flow:
    """Return what the project declares; an empty flow if it has no flow files."""
    from runnel.project.planning.plan_project import load_project_flow

    try:
        return load_project_flow(lake)
    except ProjectMistakes as error:
        if [mistake.code for mistake in error.all] != ["DECLARE_NO_FLOWS"]:
            raise
        return Flow(lake.settings.root)


def _read_recorded_edges(lake: "Lake", declared: Edges) -> tuple[Edges, dict[TableName, str]]:
    """Return the recorded inputs of main's tables that the project does not declare, and what filled them."""
    from sqlalchemy.engine import Connection

    from runnel.lake.history.content_origin import find_origin
    from runnel.lake.provenance.table_provenance import classify_origin

    commit = lake.store.commit("main")
    undeclared_tables = [table for table in lake.store.state(commit) if table not in declared]

    def work(connection: Connection) -> tuple[Edges, dict[TableName, str]]:
        reads: Edges = {}
        kinds: dict[TableName, str] = {}
        for table in undeclared_tables:
            table_origin = find_origin(connection, commit, table)
            detail = table_origin.origin_step.change.detail if table_origin else {}
            names = [*detail.get("inputs", ()), *([detail["of"]] if "of" in detail else ())]
            reads[table] = tuple(TableName.parse_unchecked(name) for name in names)
            kind = classify_origin(table_origin) if table_origin else "write"
            kinds[table] = _KIND_TEXTS.get(kind, kind)
            if kind == "task":
                kinds[table] = f"task {detail.get('task', '?')}, which is not declared any more"
            elif kind == "quarantine":
                kinds[table] = f"rows that checks of {detail['of']} set aside"
        return reads, kinds

    return lake.store.db.read(work)


_SOURCE_KINDS: dict[type, str] = {
    Jdbc: "database",
    Kafka: "Kafka",
    Http: "API",
    Push: "pushed events",
    Function: "function",
}
_KIND_TEXTS = {"load": "loaded by hand", "put": "files put by hand", "outside": "another engine", "source": "a source"}


def _describe_maker(flow: Flow, table: TableName) -> str | None:
    """Describe what computes or fills a declared table."""
    if table in flow.tasks:
        task = flow.tasks[table]
        return f"task {task.name}, {task.place}"
    if table not in flow.sources:
        return None
    source = flow.sources[table]
    if isinstance(source.origin, Changes):
        return f"changes of {log_table_of(table)} by {', '.join(source.origin.key)}, {source.place}"
    if isinstance(source.origin, Files):
        return f"source files {source.origin.glob}, {source.place}"
    return f"source {_SOURCE_KINDS.get(type(source.origin), 'filled by hand')}, {source.place}"


def _invert_edges(reads: Edges) -> Edges:
    readers: dict[TableName, list[TableName]] = {}
    for table, above in sorted(reads.items()):
        for input_table in above:
            readers.setdefault(input_table, []).append(table)
    return {table: tuple(below) for table, below in readers.items()}


def _walk_edges(edges: Edges, start: TableName) -> tuple[TableName, ...]:
    """Return the tables that can be reached from `start`, the nearest first."""
    visited: dict[TableName, None] = {}
    frontier: Iterable[TableName] = [start]
    while frontier:
        frontier = [
            neighbor
            for table in frontier
            for neighbor in edges.get(table, ())
            if neighbor != start and neighbor not in visited
        ]
        visited.update(dict.fromkeys(frontier))
    return tuple(visited)
