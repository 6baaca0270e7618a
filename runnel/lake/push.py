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
from runnel.lake import failpoints, schema
from runnel.lake.database import Database

ROW_BYTES = 1 << 20  # of the events that are kept in one row, about
_KEYS_AT_ONCE = 500


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
        inboxes = {name: _Writing(connection, name, last) for name, last in _held(db, connection, parcels).items()}
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

    def __init__(self, connection: Connection, source: str, last: int) -> None:
        self._connection = connection
        self._source = source
        self._last = last
        self._first = last + 1
        self._events: list[str] = []
        self._known: dict[str, tuple[str, Receipt] | None] = {}  # of a request: what it was, and was told
        self._rows: list[dict[str, object]] = []

    def look(self, parcels: Sequence[Parcel]) -> None:
        """Find out which keys of these parcels are known already."""
        wanted = {key for parcel in parcels for key in parcel.keys if key is not None}
        wanted |= {parcel.request[0] for parcel in parcels if parcel.request is not None}
        columns, keys = schema.inbox_keys.c, sorted(wanted)
        query = sa.select(columns.key, columns.request, columns.taken, columns.known)
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = columns.key.in_(keys[start : start + _KEYS_AT_ONCE])
            for row in self._connection.execute(query.where(columns.source == self._source, some)):
                told = (row.request, Receipt(row.taken, row.known)) if row.request is not None else None
                self._known[row.key] = told

    def take(self, parcel: Parcel) -> Receipt | Mistake:
        """Number the events of a parcel that are not known, and return what its sender is told."""
        if parcel.request is not None and (told := self._known.get(parcel.request[0])) is not None:
            if told[0] == parcel.request[1]:
                return Receipt(told[1].taken, told[1].known, is_again=True)
            what = "this Idempotency-Key came with other events before"
            return Mistake("KEY_REUSED", what, fix="use a new key for each request, and the same one to repeat it")
        before = self._last
        if parcel.keys:
            for event, key in zip(parcel.events, parcel.keys, strict=True):
                self._add(event, key)
        else:
            self._events += parcel.events
            self._last += len(parcel.events)
        receipt = Receipt(self._last - before, len(parcel.events) - (self._last - before))
        if parcel.request is not None:
            self._note(parcel.request[0], (parcel.request[1], receipt))
        return receipt

    def _add(self, event: str, key: str | None) -> None:
        if key is not None and key in self._known:
            return
        self._events.append(event)
        self._last += 1
        if key is not None:
            self._note(key, None)

    def _note(self, key: str, told: tuple[str, Receipt] | None) -> None:
        self._known[key] = told
        row = {"source": self._source, "key": key, "number": self._last}
        answer = {"request": told[0], "taken": told[1].taken, "known": told[1].known} if told else dict.fromkeys(_TOLD)
        self._rows.append(row | answer)

    def write(self, mark: str, now: str) -> None:
        """Write what was taken."""
        if self._rows:
            self._connection.execute(schema.inbox_keys.insert(), self._rows)
        if not self._events:
            return
        rows = [
            {"source": self._source, "first": first, "last": last, "body": body, "received_at": now, "mark": mark}
            for first, last, body in _packed(self._events, self._first)
        ]
        self._connection.execute(schema.inbox.insert(), rows)
        columns = schema.inboxes.c
        moved = schema.inboxes.update().where(columns.source == self._source).values(last=self._last)
        self._connection.execute(moved)


_TOLD = ("request", "taken", "known")


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
    table, names = schema.inboxes, sorted({parcel.source for parcel in parcels})
    query = sa.select(table.c.source, table.c.last).where(table.c.source.in_(names)).order_by(table.c.source)
    found = {row.source: int(row.last) for row in connection.execute(query.with_for_update())}
    missing = [name for name in names if name not in found]
    if missing:
        insert = sqlite.insert(table) if db.is_sqlite else postgresql.insert(table)
        rows = [{"source": name, "last": 0, "gone": 0} for name in missing]
        connection.execute(insert.on_conflict_do_nothing(), rows)
        found = {row.source: int(row.last) for row in connection.execute(query.with_for_update())}
    return found


def _effective(connection: Connection, marks: Iterable[str]) -> str | None:
    columns = schema.inbox.c
    return connection.execute(sa.select(columns.mark).where(columns.mark.in_(list(marks))).limit(1)).scalar()
