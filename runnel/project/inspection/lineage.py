"""The graph around a table: what it is made from and what is made from it, as declared, else as recorded.

Declared is what the project's flow says now. Tables that it does not declare are known by how they were made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.endpoints import Changes, Files, Function, Http, Jdbc, Kafka, Push
from runnel.declare.model.flow import Flow, log_of
from runnel.errors import Mistake, nearest
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake

Edges = dict[TableName, tuple[TableName, ...]]


@dataclass(frozen=True)
class Lineage:
    """The graph around a table. `makers` says what makes each table of it."""

    table: TableName
    up: tuple[TableName, ...]
    down: tuple[TableName, ...]
    reads: Mapping[TableName, tuple[TableName, ...]]
    readers: Mapping[TableName, tuple[TableName, ...]]
    makers: Mapping[TableName, str]

    @property
    def edges(self) -> tuple[tuple[TableName, TableName], ...]:
        """Return who is read by whom, of all tables of the graph."""
        return tuple((above, table) for table, found in sorted(self.reads.items()) for above in found)

    def json(self) -> dict[str, object]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "up": [str(table) for table in self.up],
            "down": [str(table) for table in self.down],
            "edges": [[str(above), str(below)] for above, below in self.edges],
            "makers": {str(table): text for table, text in sorted(self.makers.items())},
        }


def lineage_of(lake: "Lake", table: TableName, *, up: bool = True, down: bool = True) -> Lineage:
    """Return the graph around a table; above it, below it or both."""
    flow = _flow(lake)
    declared: Edges = {name: tuple(dict.fromkeys(flow.reads(name))) for name in (*flow.sources, *flow.tasks)}
    recorded, kinds = _recorded(lake, declared)
    reads = {**recorded, **declared}
    known = {*reads, *(above for found in reads.values() for above in found)}
    if table not in known:
        close = nearest(str(table), map(str, known))
        what = f"there is no table `{table}` in the project or on main" + (f"; close: `{close}`" if close else "")
        raise Mistake("TABLE_UNKNOWN", what, fix="`runnel tables` lists those of the lake")
    readers = _turned(reads)
    above = _reached(reads, table) if up else ()
    below = _reached(readers, table) if down else ()
    inside = {table, *above, *below}
    return Lineage(
        table,
        above,
        below,
        {name: tuple(one for one in reads.get(name, ()) if one in inside) for name in inside},
        {name: tuple(one for one in readers.get(name, ()) if one in inside) for name in inside},
        {name: _maker(flow, name) or kinds.get(name, "not made yet") for name in inside},
    )


def _flow(lake: "Lake") -> Flow:
    """Return what the project declares; nothing, where it declares nothing."""
    from runnel.project.planning.plan_project import flow_of

    try:
        return flow_of(lake)
    except ProjectMistakes as error:
        if [one.code for one in error.all] != ["DECLARE_NO_FLOWS"]:
            raise
        return Flow(lake.settings.root)


def _recorded(lake: "Lake", declared: Edges) -> tuple[Edges, dict[TableName, str]]:
    """Return what the tables of main that nobody declares were made from, and what made them."""
    from sqlalchemy.engine import Connection

    from runnel.lake.flow_state.provenance import kind_of
    from runnel.lake.history.content_origin import origin

    commit = lake.store.commit("main")
    wanted = [table for table in lake.store.state(commit) if table not in declared]

    def work(connection: Connection) -> tuple[Edges, dict[TableName, str]]:
        reads: Edges = {}
        kinds: dict[TableName, str] = {}
        for table in wanted:
            found = origin(connection, commit, table)
            detail = found.made.change.detail if found else {}
            names = [*detail.get("inputs", ()), *([detail["of"]] if "of" in detail else ())]
            reads[table] = tuple(TableName.stored(name) for name in names)
            kind = kind_of(found) if found else "write"
            kinds[table] = _TOLD.get(kind, kind)
            if kind == "task":
                kinds[table] = f"task {detail.get('task', '?')}, which is not declared any more"
            elif kind == "quarantine":
                kinds[table] = f"rows that checks of {detail['of']} set aside"
        return reads, kinds

    return lake.store.db.read(work)


_FILLED: dict[type, str] = {Jdbc: "database", Kafka: "Kafka", Http: "API", Push: "pushed events", Function: "function"}
_TOLD = {"load": "loaded by hand", "put": "files put by hand", "outside": "another engine", "source": "a source"}


def _maker(flow: Flow, table: TableName) -> str | None:
    """Return what makes a declared table."""
    if table in flow.tasks:
        task = flow.tasks[table]
        return f"task {task.name}, {task.place}"
    if table not in flow.sources:
        return None
    source = flow.sources[table]
    if isinstance(source.origin, Changes):
        return f"changes of {log_of(table)} by {', '.join(source.origin.key)}, {source.place}"
    if isinstance(source.origin, Files):
        return f"source files {source.origin.glob}, {source.place}"
    return f"source {_FILLED.get(type(source.origin), 'filled by hand')}, {source.place}"


def _turned(reads: Edges) -> Edges:
    found: dict[TableName, list[TableName]] = {}
    for table, above in sorted(reads.items()):
        for one in above:
            found.setdefault(one, []).append(table)
    return {table: tuple(below) for table, below in found.items()}


def _reached(edges: Edges, start: TableName) -> tuple[TableName, ...]:
    """Return what lies in a direction, the nearest first."""
    found: dict[TableName, None] = {}
    edge: Iterable[TableName] = [start]
    while edge:
        edge = [there for here in edge for there in edges.get(here, ()) if there != start and there not in found]
        found.update(dict.fromkeys(edge))
    return tuple(found)
