"""Collect a flow's declarations for the catalog, since the service has no flow: readers, deadlines, sinks, alerts."""

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes, Push
from runnel.declare.model.flow import log_table_of
from runnel.errors import RunnelError
from runnel.lake.control.declarations import (
    AlertDeclaration,
    ProjectDeclarations,
    SinkDeclaration,
    SourceDeclaration,
    TableDeclaration,
)
from runnel.plan.graph import Graph
from runnel.plan.selection import select_tables

if TYPE_CHECKING:
    from runnel.declare.model.flow import Alert, Flow, Sink, Source
    from runnel.names import TableName

LOG = logging.getLogger("runnel.worker")
_CHANNEL_OPTIONS = ("webhook", "headers", "email", "smtp", "password", "sender", "command")


def collect_declarations(flow: "Flow") -> ProjectDeclarations:
    """Return what a flow declares. A selection that can't be parsed selects everything, with a warning in the log."""
    graph, schedules = Graph(flow), defaultdict[str, list[str]](list)
    for schedule in flow.schedules:
        for table in _select_tables(graph, flow, f"schedule {schedule.name}", schedule.select):
            schedules[str(table)].append(schedule.name)
    tables = {}
    for table in graph.inputs:
        readers = tuple(str(reader) for reader in graph.readers.get(table, ()))
        deadline = flow.tasks[table].options.deadline if table in flow.tasks else None
        tables[str(table)] = TableDeclaration(str(table), readers, tuple(sorted(schedules[str(table)])), deadline)
    sinks = {sink.name: describe_sink(sink) for sink in flow.sinks}
    sources = {str(table): _describe_source(source) for table, source in flow.sources.items()}
    return ProjectDeclarations(
        tables, sinks, tuple(_describe_alert(graph, flow, alert) for alert in flow.alerts), sources
    )


def describe_sink(sink: "Sink") -> SinkDeclaration:
    """Return what the service has to know about a sink."""
    return SinkDeclaration(sink.name, str(sink.table), sink.branch, type(sink.target).__name__.lower())


def _describe_source(source: "Source") -> SourceDeclaration:
    """Return what the service has to know about a source; events for a change log go to the inbox of the log."""
    origin, table = source.origin, source.table
    if isinstance(origin, Changes):
        origin, table = origin.origin, log_table_of(table)
    if not isinstance(origin, Push):
        return SourceDeclaration(str(source.table), type(origin).__name__.lower())
    key = source.key if table == source.table else ()
    return SourceDeclaration(str(source.table), "push", str(table), origin.key or key, origin.keep_seconds)


def _describe_alert(graph: Graph, flow: "Flow", alert: "Alert") -> AlertDeclaration:
    options = alert.json()
    tables = None
    if alert.select:
        tables = frozenset(map(str, _select_tables(graph, flow, f"alert {alert.name}", alert.select)))
    return AlertDeclaration(
        alert.name, alert.on, tables, {name: options[name] for name in _CHANNEL_OPTIONS if options.get(name)}
    )


def _select_tables(graph: Graph, flow: "Flow", owner: str, text: str) -> "frozenset[TableName]":
    try:
        return select_tables(graph, flow, [text] if text else [])
    except RunnelError as error:
        LOG.warning("%s: %s", owner, error)
        return frozenset(graph.inputs)
