"""The queue of runs: add requests, find and list its entries, cancel them, and delete old ones.

`run_claims` has what workers do with the entries.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.control.queue_entry import (
    CANCELLED,
    QUEUED,
    RUNNING,
    QueueEntry,
    QueueRequest,
    parse_entry,
    read_entry,
    to_row,
)
from runnel.model.run_request import RunRequest
from runnel.names import quote_value

_IS_ANSWERED_REQUEST = sa.and_(schema.queue.c.kind != RunRequest.kind, schema.queue.c.ended_at.is_not(None))


def add(connection: Connection, db: Database, entries: Iterable[QueueRequest]) -> list[str]:
    """Queue requests and return the ids of those that were queued; skip a request whose slot was queued before."""
    requests = list(entries)
    slots = [entry.slot for entry in requests if entry.slot is not None]
    existing_slots = _find_existing_slots(connection, slots)
    now, rows, queued_ids = db.now(connection), list[dict[str, Any]](), list[str]()
    for entry in requests:
        if entry.slot is not None and entry.slot in existing_slots:
            continue
        existing_slots.add(entry.slot or "")
        rows.append(to_row(entry, format_time(parse_time(now) + timedelta(microseconds=len(rows)))))  # in this order
        queued_ids.append(entry.id)
    if rows:
        connection.execute(schema.queue.insert(), rows)
    return queued_ids


def submit(db: Database, entry: QueueRequest) -> str | None:
    """Queue one request and return its id; None if its slot was queued before."""

    def work(connection: Connection) -> str | None:
        if connection.execute(sa.select(schema.queue.c.id).where(schema.queue.c.id == entry.id)).first():
            return entry.id  # an earlier attempt took effect, and its acknowledgement was lost
        queued_ids = add(connection, db, [entry])
        return queued_ids[0] if queued_ids else None

    return db.write(work)


def cancel(db: Database, entry_id: str) -> QueueEntry:
    """Cancel an entry: a queued one at once, a running one as soon as its worker sees the request."""
    columns = schema.queue.c

    def work(connection: Connection) -> QueueEntry:
        now, current_entry = db.now(connection), find(connection, entry_id)
        cancel_queued = schema.queue.update().where(columns.id == current_entry.id, columns.state == QUEUED)
        if not connection.execute(cancel_queued.values(state=CANCELLED, cancel_at=now, ended_at=now)).rowcount:
            cancel_running = schema.queue.update().where(columns.id == current_entry.id, columns.state == RUNNING)
            connection.execute(cancel_running.where(columns.cancel_at.is_(None)).values(cancel_at=now))
        return read_entry(connection, current_entry.id)

    return db.write(work)


def find(connection: Connection, text: str) -> QueueEntry:
    """Return the entry with this id or unique id prefix; the run id of an attempt is accepted, too."""
    columns = schema.queue.c
    for name in (text, text.rpartition("-")[0]):
        row = connection.execute(sa.select(schema.queue).where(columns.id == name)).first() if name else None
        if row is not None:
            return parse_entry(row)
    starts = columns.id.startswith(text, autoescape=True)
    rows = connection.execute(sa.select(schema.queue).where(starts).limit(2)).all() if text else []
    if len(rows) == 1:
        return parse_entry(rows[0])
    if rows:
        raise Mistake("RUN_AMBIGUOUS", f"several runs start with `{text}`", fix="write more of its characters")
    recent_ids = connection.execute(sa.select(columns.id).order_by(columns.queued_at.desc()).limit(100)).scalars()
    what = f"there is no run {quote_value(text)}" + did_you_mean(text, recent_ids)
    raise Mistake("RUN_UNKNOWN", what, fix="`runnel runs` lists them")


def find_many(connection: Connection, names: Iterable[str]) -> dict[str, QueueEntry]:
    """Return the existing entries among these ids."""
    requested_ids, entries_by_id = list(names), dict[str, QueueEntry]()
    for start in range(0, len(requested_ids), 500):
        query = sa.select(schema.queue).where(schema.queue.c.id.in_(requested_ids[start : start + 500]))
        entries_by_id |= {row.id: parse_entry(row) for row in connection.execute(query)}
    return entries_by_id


def find_by_slot(connection: Connection, slot: str) -> QueueEntry:
    """Return the entry that was queued for a slot."""
    return parse_entry(connection.execute(sa.select(schema.queue).where(schema.queue.c.slot == slot)).one())


def list_entries(
    connection: Connection,
    *,
    states: Iterable[str] = (),
    cause: str | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> list[QueueEntry]:
    """Return entries, newest first. `before` is the id of one: only older ones are returned."""
    columns = schema.queue.c
    query = sa.select(schema.queue).order_by(columns.id.desc()).limit(limit)
    if requested_states := tuple(states):
        query = query.where(columns.state.in_(requested_states))
    if cause is not None:
        query = query.where(columns.cause == cause)
    if before is not None:
        query = query.where(columns.id < before)
    return [parse_entry(row) for row in connection.execute(query)]


def list_ended(connection: Connection, since: str, limit: int) -> list[QueueEntry]:
    """Return the runs that ended since a time, the oldest first."""
    columns = schema.queue.c
    is_ended_run = sa.and_(columns.ended_at >= since, columns.kind == "run")
    query = sa.select(schema.queue).where(is_ended_run).order_by(columns.ended_at, columns.id).limit(limit)
    return [parse_entry(row) for row in connection.execute(query)]


def delete_read_answer(db: Database, entry_id: str) -> None:
    """Delete an ended request whose answer was read: it may have many rows, and nobody asks for it again."""
    statement = schema.queue.delete().where(schema.queue.c.id == entry_id, schema.queue.c.ended_at.is_not(None))
    db.write(lambda connection: connection.execute(statement))


def count_answers(connection: Connection) -> int:
    """Return how many ended requests that are no runs, such as queries, are stored with their answers."""
    return int(connection.execute(sa.select(sa.func.count()).where(_IS_ANSWERED_REQUEST)).scalar_one())


def delete_answers(connection: Connection) -> int:
    """Delete all ended requests that are no runs, such as queries, with their answers; return how many."""
    return connection.execute(schema.queue.delete().where(_IS_ANSWERED_REQUEST)).rowcount


def delete_old(db: Database, seconds: float) -> int:
    """Delete entries that ended more than `seconds` ago, with their events; return how many."""
    columns = schema.queue.c

    def work(connection: Connection) -> int:
        until = format_time(parse_time(db.now(connection)) - timedelta(seconds=seconds))
        is_old = sa.and_(columns.ended_at.is_not(None), columns.ended_at < until)
        old_ids = sa.select(columns.id).where(is_old)
        connection.execute(schema.events.delete().where(schema.events.c.run.in_(old_ids)))
        return connection.execute(schema.queue.delete().where(is_old)).rowcount

    return db.write(work)


def _find_existing_slots(connection: Connection, slots: list[str]) -> set[str]:
    column, existing = schema.queue.c.slot, set[str]()
    for start in range(0, len(slots), 500):
        query = sa.select(column).where(column.in_(slots[start : start + 500]))
        existing.update(connection.execute(query).scalars())
    return existing
