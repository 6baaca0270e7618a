"""Delete pushed events that were ingested long ago, and their deduplication keys.

An event is deleted when main has had it for as long as its source keeps events. Events that main has not ingested are
never deleted.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.declare.model.endpoints import Push
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.catalog.migrate import MAIN_BRANCH
from runnel.lake.control import declarations
from runnel.lake.flow_state.ingest_position import STATE_PATH, ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_processed_files
from runnel.lake.history.commits import Commit, walk_lines
from runnel.lake.history.refs import read_head
from runnel.names import TableName

_ROWS_AT_ONCE, _KEYS_AT_ONCE = 64, 5000


def find_expired(connection: Connection, now: str) -> dict[str, int]:
    """Return the number up to which the events of an inbox can be deleted, for each inbox that has such events."""
    columns, main_head = schema.inboxes.c, read_head(connection, MAIN_BRANCH)
    sources = (declarations.read_sources(connection) or {}).values()
    keep_seconds_by_inbox = {source.inbox: source.keep_seconds for source in sources if source.inbox is not None}
    expired_up_to = {}
    for row in connection.execute(sa.select(columns.source, columns.gone)).all():
        seconds = keep_seconds_by_inbox.get(row.source) or Push().keep_seconds
        number = _find_ingested_number(
            connection, main_head, TableName.parse_unchecked(row.source), _subtract_seconds(now, seconds)
        )
        if number > row.gone:
            expired_up_to[row.source] = number
    return expired_up_to


def count_expired(connection: Connection, now: str) -> int:
    """Return how many events would be deleted."""
    columns = schema.inboxes.c
    pruned_up_to = {row.source: row.gone for row in connection.execute(sa.select(columns.source, columns.gone))}
    return sum(number - pruned_up_to[source] for source, number in find_expired(connection, now).items())


def prune(db: Database, now: str) -> int:
    """Delete events and keys, in short transactions, and return how many events were deleted."""
    count = 0
    for source, number in db.read(lambda connection: find_expired(connection, now)).items():
        while (dropped := db.write(partial(_drop_batch, source=source, number=number))) is not None:
            count += dropped
    return count


def _drop_batch(connection: Connection, source: str, number: int) -> int | None:
    """Delete a batch of rows, and return how many events were in them; None if there are no more."""
    rows, keys, inboxes = schema.inbox.c, schema.inbox_keys.c, schema.inboxes.c
    lasts = sa.select(rows.last).where(rows.source == source, rows.last <= number).order_by(rows.last)
    ends = connection.execute(lasts.limit(_ROWS_AT_ONCE)).scalars().all()
    old_keys = sa.select(keys.key).where(keys.source == source, keys.number <= number).limit(_KEYS_AT_ONCE)
    dropped = connection.execute(
        schema.inbox_keys.delete().where(keys.source == source, keys.key.in_(old_keys.scalar_subquery()))
    ).rowcount
    if not ends:
        return 0 if dropped else None
    connection.execute(schema.inbox.delete().where(rows.source == source, rows.last <= ends[-1]))
    row_filter = inboxes.source == source
    pruned_up_to = connection.execute(sa.select(inboxes.gone).where(row_filter).with_for_update()).scalar_one()
    connection.execute(schema.inboxes.update().where(row_filter).values(gone=ends[-1]))
    return int(ends[-1] - pruned_up_to)


def _find_ingested_number(connection: Connection, main_head: Commit, table: TableName, limit: str) -> int:
    """Return the number up to which main had ingested the events of a source at `limit` and still has them."""
    current_number = _read_number(read_processed_files(connection, main_head, table).get(STATE_PATH))
    return min(current_number, _find_number_at(connection, main_head, table, limit)) if current_number else 0


def _find_number_at(connection: Connection, main_head: Commit, table: TableName, limit: str) -> int:
    columns, commits = schema.ingested.c, schema.commits.c
    for line, seq in walk_lines(connection, main_head.line, main_head.seq):
        same_commit = sa.and_(commits.line == columns.line, commits.seq == columns.seq)
        query = (
            sa.select(columns.state, columns.gone)
            .join(schema.commits, same_commit)
            .where(
                columns.line == line, columns.table_name == str(table), columns.path == STATE_PATH, columns.seq <= seq
            )
            .where(commits.at <= limit)
            .order_by(columns.seq.desc())
            .limit(1)
        )
        row = connection.execute(query).first()
        if row is not None:
            return 0 if row.gone or row.state is None else _parse_number(row.state)
    return 0


def _read_number(position: ProcessedFile | None) -> int:
    return _parse_number(position.state) if position is not None and position.state is not None else 0


def _parse_number(state: str) -> int:
    fields: Mapping[str, int] = json.loads(state)
    return int(fields.get("number", 0))


def _subtract_seconds(now: str, seconds: float) -> str:
    return format_time(parse_time(now) - timedelta(seconds=seconds))
