"""Erase events from the inbox of a source; the others keep their numbers: an empty line stays for each that is gone.

Writes the catalog database only.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.flow_state.inbox_reader import Inbox, Kept, level
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
    for kept in _all(store, table):
        lines = kept.body.splitlines()
        numbers = [number for number, line in enumerate(lines) if line.strip()]
        tested = match_records(condition, metadata, [lines[number].decode() for number in numbers])
        count += len(tested.matching)
        if tested.matching and not dry_run:
            for place in tested.matching:
                lines[numbers[place]] = b""
            _replace(store, table, kept, b"".join(line + b"\n" for line in lines))
    return count


def _all(store: "Store", table: "TableName") -> Iterator[Kept]:
    newest = store.db.read(lambda connection: level(connection, str(table)).last)
    yield from Inbox(store.db).kept(table, 0, newest)


def _replace(store: "Store", table: "TableName", kept: Kept, body: bytes) -> None:
    columns = schema.inbox.c
    here = sa.and_(columns.source == str(table), columns.last == kept.last, columns.first == kept.first)

    def work(connection: Connection) -> None:
        connection.execute(schema.inbox.update().where(here).values(body=body))

    store.db.write(work)
