"""Answers to requests that came with a key: who asks again with the same key gets the same answer, for a day.

A key is taken before the work begins, so that of two requests at once only one does it. What a process took and did
not answer because it died is done by whoever asks next; the work itself has to bear that.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from runnel.errors import Conflict, Mistake
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, moment, stamp
from runnel.lake.leases.expiry import is_dead
from runnel.lake.leases.pins import owner

KEPT_SECONDS = 86_400.0
PATIENCE_SECONDS = 60.0  # for a request of a process of which it is not known whether it lives
_UNDER_WAY = 0  # stands where the status of the answer will


@dataclass(frozen=True)
class Answer:
    """What was answered: a status, and whatever text the caller keeps with it."""

    status: int
    body: str


@dataclass(frozen=True)
class Taken:
    """A key whose request is under way here; `mark` tells this taking from any other."""

    key: str
    mark: str


def begin(db: Database, key: str, request: str) -> Answer | Taken:
    """Take a key for a request, or return what was answered to it before.

    Raises where the key came with another request, or the same one is under way now.
    """
    hashed, asked = digest(key), digest(request)
    table, mark = schema.answers, f"{owner()} {secrets.token_hex(8)}"

    def work(connection: Connection) -> Answer | Taken:
        now = db.now(connection)
        values = {"key": hashed, "request": asked, "status": _UNDER_WAY, "body": mark, "at": now}
        connection.execute(_insert(db).values(values).on_conflict_do_nothing())
        row = connection.execute(sa.select(table).where(table.c.key == hashed).with_for_update()).one()
        if row.body == mark:
            return Taken(hashed, mark)
        if row.at < _ago(now, KEPT_SECONDS) or (row.request == asked and _is_left(row.status, row.body, row.at, now)):
            connection.execute(table.update().where(table.c.key == hashed).values(values))
            return Taken(hashed, mark)
        if row.request != asked:
            what = "this Idempotency-Key came with another request before"
            raise Mistake("KEY_REUSED", what, fix="use a new key for each request, and the same one to repeat it")
        if row.status == _UNDER_WAY:
            raise Conflict("KEY_UNDER_WAY", "the same request is under way now", fix="ask again in a moment")
        return Answer(row.status, row.body)

    return db.write(work)


def keep(db: Database, taken: Taken, answer: Answer) -> None:
    """Keep the answer to a request that was taken."""
    values = {"status": answer.status, "body": answer.body}
    db.write(lambda connection: connection.execute(schema.answers.update().where(_mine(taken)).values(values)))


def drop(db: Database, taken: Taken) -> None:
    """Forget that a request was taken, so that it may be repeated."""
    db.write(lambda connection: connection.execute(schema.answers.delete().where(_mine(taken))))


def forget_old(db: Database) -> int:
    """Forget answers of more than a day ago, and return how many."""

    def work(connection: Connection) -> int:
        old = schema.answers.c.at < _ago(db.now(connection), KEPT_SECONDS)
        return connection.execute(schema.answers.delete().where(old)).rowcount

    return db.write(work)


def digest(text: str) -> str:
    """Return the hash by which a key or a request is known."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_left(status: int, body: str, at: str, now: str) -> bool:
    """Tell whether a request was taken by a process that is gone, or is not heard of."""
    if status != _UNDER_WAY:
        return False
    return is_dead(body.partition(" ")[0]) or at < _ago(now, PATIENCE_SECONDS)


def _mine(taken: Taken) -> "sa.ColumnElement[bool]":
    columns = schema.answers.c
    return sa.and_(columns.key == taken.key, columns.status == _UNDER_WAY, columns.body == taken.mark)


def _insert(db: Database) -> "sqlite.Insert | postgresql.Insert":
    return sqlite.insert(schema.answers) if db.is_sqlite else postgresql.insert(schema.answers)


def _ago(now: str, seconds: float) -> str:
    return stamp(moment(now) - timedelta(seconds=seconds))
