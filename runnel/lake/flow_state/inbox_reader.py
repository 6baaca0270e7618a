"""Read the events that were pushed to the inbox of a source, for ingest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.flow_state.inbox_level import InboxLevel
from runnel.names import TableName

_ROWS_PER_QUERY = 16


@dataclass(frozen=True)
class InboxBatch:
    """Events that are stored in one row, one per line, numbered from `first` to `last`."""

    first: int
    last: int
    body: bytes
    received_at: str


class InboxReader:
    """Reads the inboxes of a catalog database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def read_level(self, table: TableName) -> InboxLevel:
        """Return the level of a source's inbox."""
        return self._db.read(lambda connection: read_inbox_level(connection, str(table)))

    def read_batches(self, table: TableName, after: int, until: int) -> Iterator[InboxBatch]:
        """Yield the events after one number and up to another; the first and last batch may contain others, too."""
        columns = schema.inbox.c
        query = sa.select(columns.first, columns.last, columns.body, columns.received_at).order_by(columns.last)
        while after < until:
            next_rows = query.where(columns.source == str(table), columns.last > after, columns.first <= until)
            rows = self._db.read(partial(_fetch_rows, query=next_rows.limit(_ROWS_PER_QUERY)))
            if not rows:
                return
            yield from (InboxBatch(row.first, row.last, row.body, row.received_at) for row in rows)
            after = rows[-1].last


def _fetch_rows(connection: Connection, query: "sa.Select[Any]") -> "Sequence[sa.Row[Any]]":
    return connection.execute(query).all()


def read_inbox_level(connection: Connection, source: str) -> InboxLevel:
    """Return the level of an inbox."""
    columns = schema.inboxes.c
    row = connection.execute(sa.select(columns.last, columns.gone).where(columns.source == source)).first()
    return InboxLevel(row.last, row.gone) if row is not None else InboxLevel()


def read_first_unread_at(connection: Connection, table: TableName, after: int) -> str | None:
    """Return when the first event after a number was received; None if there is none."""
    columns = schema.inbox.c
    query = sa.select(columns.received_at).where(columns.source == str(table), columns.last > after)
    return connection.execute(query.order_by(columns.last).limit(1)).scalar()
