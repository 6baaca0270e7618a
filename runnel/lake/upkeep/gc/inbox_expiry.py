"""Let events go that were pushed and taken in long ago, and the keys by which they were known.

An event goes when main has had it for as long as its source keeps events. What main has not taken in is never let go.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.declare.model.endpoints import Push
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, moment, stamp
from runnel.lake.catalog.migrate import MAIN
from runnel.lake.control import declarations
from runnel.lake.flow_state.ingest_position import STATE, Seen
from runnel.lake.flow_state.ingest_positions import seen
from runnel.lake.history.commits import Commit, path
from runnel.lake.history.refs import head
from runnel.names import TableName

_ROWS_AT_ONCE, _KEYS_AT_ONCE = 64, 5000


def outlived(connection: Connection, now: str) -> dict[str, int]:
    """Return the number up to which the events of each inbox may go, where there are some."""
    columns, tip = schema.inboxes.c, head(connection, MAIN)
    known = (declarations.sources(connection) or {}).values()
    keep = {one.inbox: one.keep_seconds for one in known if one.inbox is not None}
    found = {}
    for row in connection.execute(sa.select(columns.source, columns.gone)).all():
        seconds = keep.get(row.source) or Push().keep_seconds
        number = _held_since(connection, tip, TableName.stored(row.source), _before(now, seconds))
        if number > row.gone:
            found[row.source] = number
    return found


def count(connection: Connection, now: str) -> int:
    """Return how many events would go."""
    columns = schema.inboxes.c
    gone = {row.source: row.gone for row in connection.execute(sa.select(columns.source, columns.gone))}
    return sum(number - gone[source] for source, number in outlived(connection, now).items())


def prune(db: Database, now: str) -> int:
    """Let events and keys go, in short transactions, and return how many events went."""
    count = 0
    for source, number in db.read(lambda connection: outlived(connection, now)).items():
        while (went := db.write(partial(_drop, source=source, number=number))) is not None:
            count += went
    return count


def _drop(connection: Connection, source: str, number: int) -> int | None:
    """Drop some rows, and return how many events were in them; None where there are no more to drop."""
    rows, keys, inboxes = schema.inbox.c, schema.inbox_keys.c, schema.inboxes.c
    lasts = sa.select(rows.last).where(rows.source == source, rows.last <= number).order_by(rows.last)
    ends = connection.execute(lasts.limit(_ROWS_AT_ONCE)).scalars().all()
    old = sa.select(keys.key).where(keys.source == source, keys.number <= number).limit(_KEYS_AT_ONCE)
    dropped = connection.execute(
        schema.inbox_keys.delete().where(keys.source == source, keys.key.in_(old.scalar_subquery()))
    ).rowcount
    if not ends:
        return 0 if dropped else None
    connection.execute(schema.inbox.delete().where(rows.source == source, rows.last <= ends[-1]))
    here = inboxes.source == source
    gone = connection.execute(sa.select(inboxes.gone).where(here).with_for_update()).scalar_one()
    connection.execute(schema.inboxes.update().where(here).values(gone=ends[-1]))
    return int(ends[-1] - gone)


def _held_since(connection: Connection, tip: Commit, table: TableName, limit: str) -> int:
    """Return the number up to which main has had the events of a source since a moment, and has them still."""
    now = _number(seen(connection, tip, table).get(STATE))
    return min(now, _number_at(connection, tip, table, limit)) if now else 0


def _number_at(connection: Connection, tip: Commit, table: TableName, limit: str) -> int:
    columns, commits = schema.ingested.c, schema.commits.c
    for line, seq in path(connection, tip.line, tip.seq):
        same = sa.and_(commits.line == columns.line, commits.seq == columns.seq)
        query = (
            sa.select(columns.state, columns.gone)
            .join(schema.commits, same)
            .where(columns.line == line, columns.table_name == str(table), columns.path == STATE, columns.seq <= seq)
            .where(commits.at <= limit)
            .order_by(columns.seq.desc())
            .limit(1)
        )
        row = connection.execute(query).first()
        if row is not None:
            return 0 if row.gone or row.state is None else _parsed(row.state)
    return 0


def _number(one: Seen | None) -> int:
    return _parsed(one.state) if one is not None and one.state is not None else 0


def _parsed(state: str) -> int:
    found: Mapping[str, int] = json.loads(state)
    return int(found.get("number", 0))


def _before(now: str, seconds: float) -> str:
    return stamp(moment(now) - timedelta(seconds=seconds))
