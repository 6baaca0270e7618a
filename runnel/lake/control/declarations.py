"""Store a project's declarations of tables, sources, sinks and alerts in the catalog database.

A worker that has loaded the flow writes them; the service, which imports no user code, reads them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database

_TABLE, _SOURCE, _SINK, _ALERT = "table", "source", "sink", "alert"


@dataclass(frozen=True)
class TableDeclaration:
    """A table: which tables read it, which schedules run it, and its deadline, declared at `since`."""

    table: str
    readers: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    deadline: str | None = None
    since: str = ""

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        return {"readers": list(self.readers), "schedules": list(self.schedules), "deadline": self.deadline}


@dataclass(frozen=True)
class SourceDeclaration:
    """A source: its kind and, if events are pushed to it, the inbox that receives them.

    `key` are the fields that identify an event; `keep_seconds` is how long events are retained after ingest.
    """

    table: str
    kind: str
    inbox: str | None = None
    key: tuple[str, ...] = ()
    keep_seconds: float | None = None

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        values = {"kind": self.kind, "inbox": self.inbox, "key": list(self.key), "keep_seconds": self.keep_seconds}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class SinkDeclaration:
    """A sink, the table that is delivered to it, and the kind of its target."""

    sink: str
    table: str
    branch: str = "main"
    kind: str = ""

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        return {"table": self.table, "branch": self.branch, "kind": self.kind}


@dataclass(frozen=True)
class AlertDeclaration:
    """An alert: which events it notifies about, and how. `tables` is None for all; `channel` has no secrets."""

    name: str
    on: tuple[str, ...]
    tables: frozenset[str] | None = None
    channel: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        return {
            "on": list(self.on),
            "tables": None if self.tables is None else sorted(self.tables),
            "way": self.channel,
        }


@dataclass(frozen=True)
class ProjectDeclarations:
    """All declarations of a project."""

    tables: Mapping[str, TableDeclaration] = field(default_factory=dict)
    sinks: Mapping[str, SinkDeclaration] = field(default_factory=dict)
    alerts: tuple[AlertDeclaration, ...] = ()
    sources: Mapping[str, SourceDeclaration] = field(default_factory=dict)

    def find_blocked(self, tables: Iterable[str]) -> list[str]:
        """Return what depends on some tables, directly or not: tables, then sinks."""
        start = set(tables)
        reached, frontier = set(start), set(start)
        while frontier:
            frontier = {
                dependent for table in frontier if table in self.tables for dependent in self.tables[table].readers
            } - reached
            reached |= frontier
        sinks = sorted(f"sink {dependent.sink}" for dependent in self.sinks.values() if dependent.table in reached)
        return [*sorted(reached - start), *sinks]


def write_declarations(db: Database, declarations: ProjectDeclarations) -> None:
    """Store what a project declares now, and delete what it no longer declares."""
    declared_texts = {
        (_TABLE, declaration.table): _to_json(declaration.json()) for declaration in declarations.tables.values()
    }
    declared_texts |= {
        (_SOURCE, declaration.table): _to_json(declaration.json()) for declaration in declarations.sources.values()
    }
    declared_texts |= {
        (_SINK, declaration.sink): _to_json(declaration.json()) for declaration in declarations.sinks.values()
    }
    declared_texts |= {(_ALERT, declaration.name): _to_json(declaration.json()) for declaration in declarations.alerts}
    table, columns = schema.declared, schema.declared.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        stored_texts = {(row.kind, row.name): row.declared for row in connection.execute(sa.select(table))}
        for (kind, name), text in declared_texts.items():
            row_condition, stored_text = (
                sa.and_(columns.kind == kind, columns.name == name),
                stored_texts.get((kind, name)),
            )
            if stored_text is None:
                connection.execute(table.insert().values(kind=kind, name=name, declared=text, since=now))
            elif stored_text != text:
                values = {"declared": text} | (
                    {"since": now} if _parse_deadline(stored_text) != _parse_deadline(text) else {}
                )
                connection.execute(table.update().where(row_condition).values(values))
        for kind, name in stored_texts.keys() - declared_texts.keys():
            connection.execute(table.delete().where(columns.kind == kind, columns.name == name))

    db.write(work)


def read_declarations(connection: Connection) -> ProjectDeclarations:
    """Return the declarations that were stored last."""
    rows = connection.execute(sa.select(schema.declared).order_by(schema.declared.c.name)).all()
    return ProjectDeclarations(
        {row.name: _table_from_row(row) for row in rows if row.kind == _TABLE},
        {row.name: SinkDeclaration(row.name, **json.loads(row.declared)) for row in rows if row.kind == _SINK},
        tuple(_alert_from_row(row) for row in rows if row.kind == _ALERT),
        {row.name: _source_from_row(row) for row in rows if row.kind == _SOURCE},
    )


def read_sources(connection: Connection) -> dict[str, SourceDeclaration] | None:
    """Return the sources that were declared last, by table; None if nothing was ever declared."""
    columns = schema.declared.c
    query = sa.select(schema.declared).where(columns.kind.in_((_TABLE, _SOURCE)))
    rows = connection.execute(query).all()
    return {row.name: _source_from_row(row) for row in rows if row.kind == _SOURCE} if rows else None


def _table_from_row(row: Row[Any]) -> TableDeclaration:
    values = json.loads(row.declared)
    return TableDeclaration(
        row.name, tuple(values["readers"]), tuple(values["schedules"]), values["deadline"], row.since
    )


def _source_from_row(row: Row[Any]) -> SourceDeclaration:
    values = json.loads(row.declared)
    return SourceDeclaration(row.name, **{**values, "key": tuple(values.get("key", ()))})


def _alert_from_row(row: Row[Any]) -> AlertDeclaration:
    values = json.loads(row.declared)
    tables = None if values["tables"] is None else frozenset(values["tables"])
    return AlertDeclaration(row.name, tuple(values["on"]), tables, values["way"])


def _parse_deadline(text: str) -> Any:
    return json.loads(text).get("deadline")


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True)
