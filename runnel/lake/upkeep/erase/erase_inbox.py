"""Erase events from the inbox of a source. An empty line replaces each, so that the other events keep their numbers.

Writes the catalog database only.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.flow_state.inbox_reader import InboxBatch, InboxReader, read_inbox_level
from runnel.lake.upkeep.erase.raw_records import match_records

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.lake.upkeep.erase.condition import Condition
    from runnel.names import TableName


def erase_from_inbox(
    store: "Store", table: "TableName", condition: "Condition", metadata: "TableMetadata", *, dry_run: bool
) -> int:
    """Remove the events that match from the inbox of a source, and return how many; `dry_run` only counts them."""
    count = 0
    for batch in _iter_batches(store, table):
        lines = batch.body.splitlines()
        numbers = [number for number, line in enumerate(lines) if line.strip()]
        record_matches = match_records(condition, metadata, [lines[number].decode() for number in numbers])
        count += len(record_matches.matching)
        if record_matches.matching and not dry_run:
            for index in record_matches.matching:
                lines[numbers[index]] = b""
            _replace_body(store, table, batch, b"".join(line + b"\n" for line in lines))
    return count


def _iter_batches(store: "Store", table: "TableName") -> Iterator[InboxBatch]:
    newest = store.db.read(lambda connection: read_inbox_level(connection, str(table)).last)
    yield from InboxReader(store.db).read_batches(table, 0, newest)


def _replace_body(store: "Store", table: "TableName", batch: InboxBatch, body: bytes) -> None:
    columns = schema.inbox.c
    row_filter = sa.and_(columns.source == str(table), columns.last == batch.last, columns.first == batch.first)

    def work(connection: Connection) -> None:
        connection.execute(schema.inbox.update().where(row_filter).values(body=body))

    store.db.write(work)
