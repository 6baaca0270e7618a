"""Push events to the inboxes of sources, where they are numbered in the order in which they were taken.

A number is given out only by whoever holds the row of the inbox, until its transaction ends. So a reader who sees a
number sees all smaller ones, now and for ever: none becomes visible later.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from runnel.errors import Mistake
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database

ROW_BYTES = 1 << 20  # of the events that are kept in one row, about
# Made once: this is done very often.
_HERE = schema.inboxes.c.source == sa.bindparam("name")
_LAST = sa.select(schema.inboxes.c.last).where(_HERE).with_for_update()
_MOVED = schema.inboxes.update().where(_HERE).values(last=sa.bindparam("number"))
_KEPT = schema.inbox.insert()
_KEYS, _THERE = schema.inbox_keys.c, schema.inbox_keys.c.source == sa.bindparam("name")
_TOLD = sa.select(_KEYS.request, _KEYS.taken, _KEYS.known).where(_THERE, _KEYS.key == sa.bindparam("asked"))
_ANSWERED = schema.inbox_keys.insert()
_WRITTEN = (_THERE, _KEYS.number == sa.bindparam("most"))
_CORRECTED = schema.inbox_keys.update().where(*_WRITTEN).values(number=sa.bindparam("last"))


@dataclass(frozen=True)
class Parcel:
    """What one request brings: JSON objects, none of which has a line's end in it.

    `keys` are the hashes by which the events are known, None where one is known by nothing; empty where that is so for
    all of them. `request` is the hash of the request's own key, and that of the request.
    """

    source: str
    events: Sequence[str]
    keys: Sequence[str | None] = ()
    request: tuple[str, str] | None = None


@dataclass(frozen=True)
class Receipt:
    """How many events were taken, and how many were known; `is_again` where the whole request was."""

    taken: int
    known: int
    is_again: bool = False


def put(db: Database, parcels: Sequence[Parcel]) -> list[Receipt | Mistake]:
    """Write what several requests bring in one transaction, and return what each is to be told.

    When it returns, all is durable. A request whose key came with another request before is a Mistake, the others are
    not held up by it.
    """
    attempts: dict[str, list[Receipt | Mistake]] = {}

    def work(connection: Connection) -> list[Receipt | Mistake]:
        inboxes = {name: _Writing(db, connection, name, last) for name, last in _held(db, connection, parcels).items()}
        if attempts and (mark := _effective(connection, attempts)) is not None:
            return attempts[mark]  # an earlier attempt took effect, and its acknowledgement was lost
        for name, inbox in inboxes.items():
            inbox.look([parcel for parcel in parcels if parcel.source == name])
        receipts = [inboxes[parcel.source].take(parcel) for parcel in parcels]
        mark, now = uuid.uuid4().hex, db.now(connection)
        for inbox in inboxes.values():
            inbox.write(mark, now)
        attempts[mark] = receipts
        failpoints.reach(failpoints.INBOX_BEFORE_COMMIT)
        return receipts

    found = db.write(work)
    failpoints.reach(failpoints.INBOX_AFTER_COMMIT)
    return found


def digest(*texts: str) -> str:
    """Return the hash by which something is known that is called by these texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


class _Writing:
    """One inbox within a transaction that holds it. `last` is the number that was given out last."""

    def __init__(self, db: Database, connection: Connection, source: str, last: int) -> None:
        self._connection = connection
        self._insert = sqlite.insert if db.is_sqlite else postgresql.insert
        self._source = source
        self._first = last + 1
        self._last = self._most = last
        self._events: list[str] = []
        self._told: dict[str, tuple[str, Receipt]] = {}  # what requests were, and were told
        self._new: set[str] = set()  # keys of events that were not known before

    def look(self, parcels: Sequence[Parcel]) -> None:
        """Find out what of these parcels is known already."""
        asked: set[str] = set()
        keys: dict[str, None] = {}
        for parcel in parcels:
            if parcel.request is not None:
                key = parcel.request[0]
                if key in asked or self._was_told(key):
                    continue  # nothing of it will be taken
                asked.add(key)
            keys |= dict.fromkeys(key for key in parcel.keys if key is not None)
            self._most += len(parcel.events)
        if keys:
            # Inserted before it is known which numbers the events get: all keys of a write have its last one.
            rows = [{"source": self._source, "key": key, "number": self._most} for key in keys]
            insert = self._insert(schema.inbox_keys).on_conflict_do_nothing().returning(schema.inbox_keys.c.key)
            self._new = set(self._connection.execute(insert, rows).scalars())

    def _was_told(self, key: str) -> bool:
        """Look up what a request with this key was told."""
        row = self._connection.execute(_TOLD, {"name": self._source, "asked": key}).first()
        if row is not None:
            self._told[key] = (row.request, Receipt(row.taken, row.known))
        return row is not None

    def take(self, parcel: Parcel) -> Receipt | Mistake:
        """Number the events of a parcel that are not known, and return what its sender is told."""
        if parcel.request is not None and (told := self._told.get(parcel.request[0])) is not None:
            if told[0] == parcel.request[1]:
                return Receipt(told[1].taken, told[1].known, is_again=True)
            what = "this Idempotency-Key came with other events before"
            return Mistake("KEY_REUSED", what, fix="use a new key for each request, and the same one to repeat it")
        before = self._last
        if parcel.keys:
            for event, key in zip(parcel.events, parcel.keys, strict=True):
                if key is None or key in self._new:
                    self._events.append(event)
                    self._last += 1
                    self._new.discard(key or "")
        else:
            self._events += parcel.events
            self._last += len(parcel.events)
        receipt = Receipt(self._last - before, len(parcel.events) - (self._last - before))
        if parcel.request is not None:
            self._told[parcel.request[0]] = (parcel.request[1], receipt)
            answer = {"request": parcel.request[1], "taken": receipt.taken, "known": receipt.known}
            row = {"source": self._source, "key": parcel.request[0], "number": self._most, **answer}
            self._connection.execute(_ANSWERED, row)
        return receipt

    def write(self, mark: str, now: str) -> None:
        """Write what was taken."""
        if self._most != self._last:
            here = {"name": self._source, "most": self._most, "last": self._last}
            self._connection.execute(_CORRECTED, here)
        if not self._events:
            return
        rows = [
            {"source": self._source, "first": first, "last": last, "body": body, "received_at": now, "mark": mark}
            for first, last, body in _packed(self._events, self._first)
        ]
        self._connection.execute(_KEPT, rows)
        self._connection.execute(_MOVED, {"name": self._source, "number": self._last})


def _packed(events: Sequence[str], first: int) -> Iterator[tuple[int, int, bytes]]:
    r"""Yield events as rows of about a size: the first and the last number of each, and its lines.

    >>> list(_packed(["{}", '{"a": 1}'], 7))
    [(7, 8, b'{}\n{"a": 1}\n')]
    """
    lines: list[str] = []
    size = 0
    for event in events:
        lines.append(event)
        size += len(event)
        if size >= ROW_BYTES:
            yield first, first + len(lines) - 1, _body(lines)
            first, size, lines = first + len(lines), 0, []
    if lines:
        yield first, first + len(lines) - 1, _body(lines)


def _body(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _held(db: Database, connection: Connection, parcels: Sequence[Parcel]) -> dict[str, int]:
    """Hold the inboxes that parcels are for, always in the same order, and return the number that each gave out last.

    One that holds them waits for whoever held them before.
    """
    found = {}
    for name in sorted({parcel.source for parcel in parcels}):
        last = connection.execute(_LAST, {"name": name}).scalar()
        if last is None:
            insert = sqlite.insert(schema.inboxes) if db.is_sqlite else postgresql.insert(schema.inboxes)
            connection.execute(insert.on_conflict_do_nothing(), {"source": name, "last": 0, "gone": 0})
            last = connection.execute(_LAST, {"name": name}).scalar_one()
        found[name] = int(last)
    return found


def _effective(connection: Connection, marks: Iterable[str]) -> str | None:
    columns = schema.inbox.c
    return connection.execute(sa.select(columns.mark).where(columns.mark.in_(list(marks))).limit(1)).scalar()
