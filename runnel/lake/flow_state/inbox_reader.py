"""The inbox of a source, as those read it who take in the events that were pushed to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.flow_state.inbox_level import Level
from runnel.names import TableName

_ROWS_AT_ONCE = 16


@dataclass(frozen=True)
class Kept:
    """Events that are kept together, one in a line, from the number `first` on."""

    first: int
    last: int
    body: bytes
    received_at: str


class Inbox:
    """The inboxes of a catalog database, as those read them who take the events in."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def level(self, table: TableName) -> Level:
        """Return how far the inbox of a source is."""
        return self._db.read(lambda connection: level(connection, str(table)))

    def kept(self, table: TableName, after: int, until: int) -> Iterator[Kept]:
        """Yield the events after one number and up to another; the first and the last lot may hold more than that."""
        columns = schema.inbox.c
        query = sa.select(columns.first, columns.last, columns.body, columns.received_at).order_by(columns.last)
        while after < until:
            some = query.where(columns.source == str(table), columns.last > after, columns.first <= until)
            found = self._db.read(partial(_rows, query=some.limit(_ROWS_AT_ONCE)))
            if not found:
                return
            yield from (Kept(row.first, row.last, row.body, row.received_at) for row in found)
            after = found[-1].last


def _rows(connection: Connection, query: "sa.Select[Any]") -> "Sequence[sa.Row[Any]]":
    return connection.execute(query).all()


def level(connection: Connection, source: str) -> Level:
    """Return how far an inbox is."""
    columns = schema.inboxes.c
    row = connection.execute(sa.select(columns.last, columns.gone).where(columns.source == source)).first()
    return Level(row.last, row.gone) if row is not None else Level()
