"""Store backfills: chunks of days that run one after the other until one fails or a user pauses them."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Conflict, Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.control import queue_entry, run_queue
from runnel.lake.control.queue_entry import CANCELLED, FAILED, PAUSED, QUEUED, RUNNING, QueueEntry, QueueRequest
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.names import quote_value


@dataclass(frozen=True)
class Backfill:
    """A backfill, with the queue entry of each chunk in order. Its `state` follows from theirs."""

    id: str
    branch: str
    request: RunRequest
    author: str
    made_at: str
    is_paused: bool
    chunks: tuple[QueueEntry, ...]

    @property
    def state(self) -> str:
        """Return running, paused, or how it ended: succeeded, failed, cancelled."""
        states = {chunk.state for chunk in self.chunks}
        if self.is_paused and RUNNING not in states and (FAILED in states or CANCELLED in states):
            return FAILED if FAILED in states else CANCELLED
        if open_chunks := [chunk for chunk in self.chunks if chunk.state in (QUEUED, RUNNING)]:
            if self.is_paused and all(chunk.cancel_at for chunk in open_chunks):
                return CANCELLED  # the worker has yet to stop the last chunk
            return PAUSED if self.is_paused else RUNNING
        return CANCELLED if CANCELLED in states else "succeeded"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        chunks = [
            {"run": chunk.run, "from": str(days.first), "to": str(days.last), "state": chunk.state}
            for chunk, days in ((chunk, chunk_days(chunk)) for chunk in self.chunks)
        ]
        return {
            "backfill": self.id,
            "branch": self.branch,
            "state": self.state,
            "author": self.author,
            "made_at": self.made_at,
            "select": list(self.request.select),
            "chunks": chunks,
        }


def chunk_days(chunk: QueueEntry) -> DateRange:
    """Return the days of a backfill's chunk."""
    days = chunk.run_request.days
    assert days is not None, chunk.id
    return days


def create(db: Database, name: str, requests: Iterable[RunRequest], author: str, key: str | None = None) -> str:
    """Queue the chunks of a backfill, one run request with its days each, and return the backfill's id.

    If the same request with this `key` created a backfill before and its response was lost, return that one's id.
    """
    chunks = list(requests)

    def work(connection: Connection) -> str:
        if connection.execute(sa.select(schema.backfills.c.id).where(schema.backfills.c.id == name)).first():
            return name  # an earlier attempt took effect, and its acknowledgement was lost
        slot_prefix = f"request/{key}" if key else queue_entry.backfill_cause(name)
        slots = [f"{slot_prefix}/{chunk.days.first}" for chunk in chunks if chunk.days is not None]
        cause_query = sa.select(schema.queue.c.cause).where(schema.queue.c.slot == slots[0])
        if (cause := connection.execute(cause_query).scalar()) is not None:
            return str(cause).removeprefix(queue_entry.BACKFILL_PREFIX)
        request_text = json.dumps(chunks[0].to_json(), sort_keys=True)
        row = {"id": name, "branch": chunks[0].branch, "wish": request_text, "author": author}
        connection.execute(schema.backfills.insert().values(**row, state=RUNNING, made_at=db.now(connection)))
        cause = queue_entry.backfill_cause(name)
        queue_requests = [
            QueueRequest(chunk, author, cause=cause, slot=slot) for chunk, slot in zip(chunks, slots, strict=True)
        ]
        run_queue.add(connection, db, queue_requests)
        return name

    return db.write(work)


def list_backfills(connection: Connection, limit: int | None = None) -> list[Backfill]:
    """Return the newest backfills, newest first."""
    query = sa.select(schema.backfills).order_by(schema.backfills.c.made_at.desc()).limit(limit)
    return [_backfill_from_row(connection, row) for row in connection.execute(query).all()]


def list_paused_causes(connection: Connection) -> frozenset[str]:
    """Return the queue's causes of the paused backfills."""
    columns = schema.backfills.c
    backfill_ids = connection.execute(sa.select(columns.id).where(columns.state == PAUSED)).scalars()
    return frozenset(str(queue_entry.backfill_cause(backfill_id)) for backfill_id in backfill_ids)


def find(connection: Connection, name: str) -> Backfill:
    """Return a backfill, or raise with the nearest name."""
    row = connection.execute(sa.select(schema.backfills).where(schema.backfills.c.id == name)).first()
    if row is not None:
        return _backfill_from_row(connection, row)
    what = f"there is no backfill {quote_value(name)}" + did_you_mean(
        name, connection.execute(sa.select(schema.backfills.c.id)).scalars()
    )
    raise Mistake("BACKFILL_UNKNOWN", what, fix="`runnel backfills` lists them")


def pause(db: Database, name: str) -> Backfill:
    """Let queued chunks wait; the running one finishes."""
    return _set_state(db, name, PAUSED)


def resume(db: Database, name: str) -> Backfill:
    """Continue a backfill, and queue its failed and cancelled chunks again."""

    def requeue_failed(connection: Connection, backfill: Backfill) -> None:
        failed_ids = [chunk.id for chunk in backfill.chunks if chunk.state in (FAILED, CANCELLED)]
        queued_values = {"state": QUEUED, "cancel_at": None, "ended_at": None, "not_before": ""}
        retries = schema.queue.c.attempt + 2
        connection.execute(
            schema.queue.update().where(schema.queue.c.id.in_(failed_ids)).values(**queued_values, retries=retries)
        )

    return _set_state(db, name, RUNNING, requeue_failed)


def cancel(db: Database, name: str) -> Backfill:
    """Cancel all queued chunks and the running one."""
    backfill = pause(db, name)
    for chunk in backfill.chunks:
        if chunk.is_open:
            run_queue.cancel(db, chunk.id)
    return db.read(lambda connection: find(connection, name))


def _set_state(
    db: Database, name: str, state: str, update_chunks: "Callable[[Connection, Backfill], None] | None" = None
) -> Backfill:
    def work(connection: Connection) -> Backfill:
        backfill = find(connection, name)
        if not any(chunk.is_open or chunk.state in (FAILED, CANCELLED) for chunk in backfill.chunks):
            raise Conflict("BACKFILL_ENDED", f"backfill {name} has ended: {backfill.state}")
        if update_chunks is not None:
            update_chunks(connection, backfill)
        connection.execute(schema.backfills.update().where(schema.backfills.c.id == name).values(state=state))
        return find(connection, name)

    return db.write(work)


def _backfill_from_row(connection: Connection, row: Row[Any]) -> Backfill:
    chunks = run_queue.list_entries(connection, cause=queue_entry.backfill_cause(row.id))
    sorted_chunks = sorted(chunks, key=lambda chunk: chunk_days(chunk).first)
    request = RunRequest.from_json(json.loads(row.wish), row.branch)
    return Backfill(row.id, row.branch, request, row.author, row.made_at, row.state == PAUSED, tuple(sorted_chunks))
