"""Backfills: chunks of days that are run one after the other, until one fails or somebody pauses them."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Conflict, Mistake, nearest
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.control import run_queue
from runnel.lake.control.run_queue import CANCELLED, FAILED, PAUSED, QUEUED, RUNNING, Entry, Queued
from runnel.names import shown


@dataclass(frozen=True)
class Backfill:
    """A backfill, with the run of each chunk in their order. Its `state` follows from theirs."""

    id: str
    branch: str
    wish: Mapping[str, Any]
    author: str
    made_at: str
    is_paused: bool
    chunks: tuple[Queued, ...]

    @property
    def state(self) -> str:
        """Return running, paused, or how it ended: succeeded, failed, cancelled."""
        states = {chunk.state for chunk in self.chunks}
        if self.is_paused and RUNNING not in states and (FAILED in states or CANCELLED in states):
            return FAILED if FAILED in states else CANCELLED
        if states & {QUEUED, RUNNING}:
            return PAUSED if self.is_paused else RUNNING
        return CANCELLED if CANCELLED in states else "succeeded"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        chunks = [
            {"run": one.run, "from": one.wish["days"][0], "to": one.wish["days"][1], "state": one.state}
            for one in self.chunks
        ]
        return {
            "backfill": self.id,
            "branch": self.branch,
            "state": self.state,
            "author": self.author,
            "made_at": self.made_at,
            "select": self.wish.get("select", []),
            "chunks": chunks,
        }


def make(
    db: Database, name: str, wishes: Iterable[Mapping[str, Any]], author: str, branch: str, key: str | None = None
) -> str:
    """Queue the chunks of a backfill, each a wish with its days, and return its id.

    With a `key` that is the one which the same request made before, where its answer was lost.
    """
    chunks = list(wishes)

    def work(connection: Connection) -> str:
        if connection.execute(sa.select(schema.backfills.c.id).where(schema.backfills.c.id == name)).first():
            return name  # an earlier attempt took effect, and its acknowledgement was lost
        place = f"request/{key}" if key else run_queue.cause_of(name)
        slots = [f"{place}/{one['days'][0]}" for one in chunks]
        made = sa.select(schema.queue.c.cause).where(schema.queue.c.slot == slots[0])
        if (cause := connection.execute(made).scalar()) is not None:
            return str(cause).removeprefix(run_queue.BACKFILL)
        row = {"id": name, "branch": branch, "wish": json.dumps(dict(chunks[0]), sort_keys=True), "author": author}
        connection.execute(schema.backfills.insert().values(**row, state=RUNNING, made_at=db.now(connection)))
        cause = run_queue.cause_of(name)
        entries = [Entry(one, author, branch, cause=cause, slot=slot) for one, slot in zip(chunks, slots, strict=True)]
        run_queue.add(connection, db, entries)
        return name

    return db.write(work)


def backfills(connection: Connection, limit: int | None = None) -> list[Backfill]:
    """Return the newest backfills, newest first."""
    query = sa.select(schema.backfills).order_by(schema.backfills.c.made_at.desc()).limit(limit)
    return [_backfill(connection, row) for row in connection.execute(query).all()]


def paused_causes(connection: Connection) -> frozenset[str]:
    """Return how the queue names the backfills that wait for a person."""
    columns = schema.backfills.c
    found = connection.execute(sa.select(columns.id).where(columns.state == PAUSED)).scalars()
    return frozenset(str(run_queue.cause_of(one)) for one in found)


def find(connection: Connection, name: str) -> Backfill:
    """Return a backfill, or raise with the nearest name."""
    row = connection.execute(sa.select(schema.backfills).where(schema.backfills.c.id == name)).first()
    if row is not None:
        return _backfill(connection, row)
    close = nearest(name, connection.execute(sa.select(schema.backfills.c.id)).scalars())
    what = f"there is no backfill {shown(name)}" + (f"; close: `{close}`" if close else "")
    raise Mistake("BACKFILL_UNKNOWN", what, fix="`runnel backfills` lists them")


def pause(db: Database, name: str) -> Backfill:
    """Let later chunks wait; the one that goes on is finished."""
    return _change(db, name, PAUSED)


def resume(db: Database, name: str) -> Backfill:
    """Go on, with what failed first."""

    def again(connection: Connection, found: Backfill) -> None:
        failed = [one.id for one in found.chunks if one.state in (FAILED, CANCELLED)]
        fresh = {"state": QUEUED, "cancel_at": None, "ended_at": None, "not_before": ""}
        more = schema.queue.c.attempt + 2
        connection.execute(schema.queue.update().where(schema.queue.c.id.in_(failed)).values(**fresh, retries=more))

    return _change(db, name, RUNNING, again)


def cancel(db: Database, name: str) -> Backfill:
    """Run no further chunk, and stop the one that goes on."""
    found = pause(db, name)
    for chunk in found.chunks:
        if chunk.is_open:
            run_queue.cancel(db, chunk.id)
    return db.read(lambda connection: find(connection, name))


def _change(
    db: Database, name: str, state: str, more: "Callable[[Connection, Backfill], None] | None" = None
) -> Backfill:
    def work(connection: Connection) -> Backfill:
        found = find(connection, name)
        if not any(chunk.is_open or chunk.state in (FAILED, CANCELLED) for chunk in found.chunks):
            raise Conflict("BACKFILL_ENDED", f"backfill {name} has ended: {found.state}")
        if more is not None:
            more(connection, found)
        connection.execute(schema.backfills.update().where(schema.backfills.c.id == name).values(state=state))
        return find(connection, name)

    return db.write(work)


def _backfill(connection: Connection, row: Row[Any]) -> Backfill:
    chunks = run_queue.entries(connection, cause=run_queue.cause_of(row.id))
    order = sorted(chunks, key=lambda one: str(one.wish["days"]))
    wish = json.loads(row.wish)
    return Backfill(row.id, row.branch, wish, row.author, row.made_at, row.state == PAUSED, tuple(order))
