"""What a project declares of its tables, sources, sinks and alerts, as the catalog remembers it.

A worker that has loaded the flow writes it; the service, which imports no code of users, reads it.
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
class Watched:
    """A table: who reads it, which schedules run it, and when it has to be ready. `since`: of the deadline."""

    table: str
    readers: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    deadline: str | None = None
    since: str = ""

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        return {"readers": list(self.readers), "schedules": list(self.schedules), "deadline": self.deadline}


@dataclass(frozen=True)
class Filled:
    """A source: what kind it is and, where events are pushed to it, the inbox that takes them.

    `key` are the fields by which events are known; `keep_seconds` is how long they are kept after they were taken in.
    """

    table: str
    kind: str
    inbox: str | None = None
    key: tuple[str, ...] = ()
    keep_seconds: float | None = None

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        found = {"kind": self.kind, "inbox": self.inbox, "key": list(self.key), "keep_seconds": self.keep_seconds}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True)
class Fed:
    """A sink, and the table that it gets."""

    sink: str
    table: str
    branch: str = "main"


@dataclass(frozen=True)
class Listener:
    """An alert: what it is told about, and how. `tables` is None where it is about all; `way` has no secrets."""

    name: str
    on: tuple[str, ...]
    tables: frozenset[str] | None = None
    way: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Return what is kept."""
        return {"on": list(self.on), "tables": None if self.tables is None else sorted(self.tables), "way": self.way}


@dataclass(frozen=True)
class Declared:
    """All of it."""

    tables: Mapping[str, Watched] = field(default_factory=dict)
    sinks: Mapping[str, Fed] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    sources: Mapping[str, Filled] = field(default_factory=dict)

    def blocked(self, tables: Iterable[str]) -> list[str]:
        """Return what can't be made, or handed on, without some tables: tables, then sinks."""
        start = set(tables)
        seen, edge = set(start), set(start)
        while edge:
            edge = {one for table in edge if table in self.tables for one in self.tables[table].readers} - seen
            seen |= edge
        sinks = sorted(f"sink {one.sink}" for one in self.sinks.values() if one.table in seen)
        return [*sorted(seen - start), *sinks]


def declare(db: Database, found: Declared) -> None:
    """Note what a project declares now; what it no longer declares is forgotten."""
    wanted = {(_TABLE, one.table): _text(one.json()) for one in found.tables.values()}
    wanted |= {(_SOURCE, one.table): _text(one.json()) for one in found.sources.values()}
    wanted |= {(_SINK, one.sink): _text({"table": one.table, "branch": one.branch}) for one in found.sinks.values()}
    wanted |= {(_ALERT, one.name): _text(one.json()) for one in found.listeners}
    table, columns = schema.declared, schema.declared.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        known = {(row.kind, row.name): row.declared for row in connection.execute(sa.select(table))}
        for (kind, name), text in wanted.items():
            here, before = sa.and_(columns.kind == kind, columns.name == name), known.get((kind, name))
            if before is None:
                connection.execute(table.insert().values(kind=kind, name=name, declared=text, since=now))
            elif before != text:
                values = {"declared": text} | ({"since": now} if _deadline(before) != _deadline(text) else {})
                connection.execute(table.update().where(here).values(values))
        for kind, name in known.keys() - wanted.keys():
            connection.execute(table.delete().where(columns.kind == kind, columns.name == name))

    db.write(work)


def declared(connection: Connection) -> Declared:
    """Return what was declared last."""
    rows = connection.execute(sa.select(schema.declared).order_by(schema.declared.c.name)).all()
    return Declared(
        {row.name: _watched(row) for row in rows if row.kind == _TABLE},
        {row.name: Fed(row.name, **json.loads(row.declared)) for row in rows if row.kind == _SINK},
        tuple(_listener(row) for row in rows if row.kind == _ALERT),
        {row.name: _filled(row) for row in rows if row.kind == _SOURCE},
    )


def sources(connection: Connection) -> dict[str, Filled] | None:
    """Return the sources that were declared last, by table; None where nothing was ever declared."""
    columns = schema.declared.c
    query = sa.select(schema.declared).where(columns.kind.in_((_TABLE, _SOURCE)))
    rows = connection.execute(query).all()
    return {row.name: _filled(row) for row in rows if row.kind == _SOURCE} if rows else None


def _watched(row: Row[Any]) -> Watched:
    found = json.loads(row.declared)
    return Watched(row.name, tuple(found["readers"]), tuple(found["schedules"]), found["deadline"], row.since)


def _filled(row: Row[Any]) -> Filled:
    found = json.loads(row.declared)
    return Filled(row.name, **{**found, "key": tuple(found.get("key", ()))})


def _listener(row: Row[Any]) -> Listener:
    found = json.loads(row.declared)
    tables = None if found["tables"] is None else frozenset(found["tables"])
    return Listener(row.name, tuple(found["on"]), tables, found["way"])


def _deadline(text: str) -> Any:
    return json.loads(text).get("deadline")


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True)
