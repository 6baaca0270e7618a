"""What the catalog is told of a flow, for the service, which has none: who reads whom, deadlines, sinks, alerts."""

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes, Push
from runnel.declare.model.flow import log_of
from runnel.errors import RunnelError
from runnel.lake.control.declarations import Declared, Fed, Filled, Listener, Watched
from runnel.plan.graph import Graph
from runnel.plan.selection import select

if TYPE_CHECKING:
    from runnel.declare.model.flow import Alert, Flow, Source
    from runnel.names import TableName

LOG = logging.getLogger("runnel.worker")
_WAY = ("webhook", "headers", "email", "smtp", "password", "sender", "command")


def declared_of(flow: "Flow") -> Declared:
    """Return what a flow declares. A selection that can't be read is taken for everything, and told in the log."""
    graph, schedules = Graph(flow), defaultdict[str, list[str]](list)
    for schedule in flow.schedules:
        for table in _selected(graph, flow, f"schedule {schedule.name}", schedule.select):
            schedules[str(table)].append(schedule.name)
    tables = {}
    for table in graph.reads:
        readers = tuple(str(reader) for reader in graph.readers.get(table, ()))
        deadline = flow.tasks[table].options.deadline if table in flow.tasks else None
        tables[str(table)] = Watched(str(table), readers, tuple(sorted(schedules[str(table)])), deadline)
    sinks = {sink.name: Fed(sink.name, str(sink.table), sink.branch) for sink in flow.sinks}
    sources = {str(table): _filled(source) for table, source in flow.sources.items()}
    return Declared(tables, sinks, tuple(_listener(graph, flow, alert) for alert in flow.alerts), sources)


def _filled(source: "Source") -> Filled:
    """Return what the service has to know of a source; events for a log of changes go to the log's own inbox."""
    origin, table = source.origin, source.table
    if isinstance(origin, Changes):
        origin, table = origin.origin, log_of(table)
    if not isinstance(origin, Push):
        return Filled(str(source.table), type(origin).__name__.lower())
    key = source.key if table == source.table else ()
    return Filled(str(source.table), "push", str(table), origin.key or key, origin.keep_seconds)


def _listener(graph: Graph, flow: "Flow", alert: "Alert") -> Listener:
    found = alert.json()
    tables = None
    if alert.select:
        tables = frozenset(map(str, _selected(graph, flow, f"alert {alert.name}", alert.select)))
    return Listener(alert.name, alert.on, tables, {name: found[name] for name in _WAY if found.get(name)})


def _selected(graph: Graph, flow: "Flow", owner: str, text: str) -> "frozenset[TableName]":
    try:
        return select(graph, flow, [text] if text else [])
    except RunnelError as error:
        LOG.warning("%s: %s", owner, error)
        return frozenset(graph.reads)
