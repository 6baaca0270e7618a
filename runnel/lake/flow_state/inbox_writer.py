"""Write pushed events to the inboxes of sources, numbered in the order in which they were accepted.

A transaction assigns numbers only while it holds the lock on the inbox's row. So a reader that sees a number also sees
all smaller ones: none becomes visible later.
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

ROW_BYTES = 1 << 20  # approximate size of the events that one row stores
# Built once, because they are executed very often.
_IS_INBOX = schema.inboxes.c.source == sa.bindparam("name")
_SELECT_LAST_NUMBER = sa.select(schema.inboxes.c.last).where(_IS_INBOX).with_for_update()
_UPDATE_LAST_NUMBER = schema.inboxes.update().where(_IS_INBOX).values(last=sa.bindparam("number"))
_INSERT_EVENTS = schema.inbox.insert()
_KEY_COLUMNS, _IS_KEY_OF_SOURCE = schema.inbox_keys.c, schema.inbox_keys.c.source == sa.bindparam("name")
_SELECT_ANSWER = sa.select(_KEY_COLUMNS.request, _KEY_COLUMNS.taken, _KEY_COLUMNS.known).where(
    _IS_KEY_OF_SOURCE, _KEY_COLUMNS.key == sa.bindparam("asked")
)
_INSERT_ANSWER = schema.inbox_keys.insert()
_HAS_PROVISIONAL_NUMBER = (_IS_KEY_OF_SOURCE, _KEY_COLUMNS.number == sa.bindparam("most"))
_CORRECT_NUMBERS = schema.inbox_keys.update().where(*_HAS_PROVISIONAL_NUMBER).values(number=sa.bindparam("last"))


@dataclass(frozen=True)
class PushRequest:
    """The events of one request: JSON objects without line breaks.

    `keys` are the hashes that identify the events, None for an event without a key; empty if no event has one.
    `request_key` is the hash of the request's Idempotency-Key, and the hash of the request.
    """

    source: str
    events: Sequence[str]
    keys: Sequence[str | None] = ()
    request_key: tuple[str, str] | None = None


@dataclass(frozen=True)
class PushReceipt:
    """How many events were accepted and how many were duplicates; `is_repeated` if the whole request was."""

    accepted: int
    duplicates: int
    is_repeated: bool = False


def write_events(db: Database, requests: Sequence[PushRequest]) -> list[PushReceipt | Mistake]:
    """Write the events of several requests in one transaction, and return the answer for each.

    When it returns, all events are durable. A request that reuses the key of a different request gets a Mistake; the
    other requests are not affected.
    """
    receipts_by_mark: dict[str, list[PushReceipt | Mistake]] = {}

    def work(connection: Connection) -> list[PushReceipt | Mistake]:
        inboxes = {
            name: _InboxWriter(db, connection, name, last)
            for name, last in _lock_inboxes(db, connection, requests).items()
        }
        if receipts_by_mark and (mark := _find_effective_mark(connection, receipts_by_mark)) is not None:
            return receipts_by_mark[mark]  # an earlier attempt took effect, and its acknowledgement was lost
        for name, inbox in inboxes.items():
            inbox.detect_duplicates([request for request in requests if request.source == name])
        receipts = [inboxes[request.source].accept(request) for request in requests]
        mark, now = uuid.uuid4().hex, db.now(connection)
        for inbox in inboxes.values():
            inbox.write(mark, now)
        receipts_by_mark[mark] = receipts
        failpoints.reach(failpoints.INBOX_BEFORE_COMMIT)
        return receipts

    results = db.write(work)
    failpoints.reach(failpoints.INBOX_AFTER_COMMIT)
    return results


def hash_texts(*texts: str) -> str:
    """Return the hash that identifies an event or a request with these key texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


class _InboxWriter:
    """Write to one inbox within a transaction that has locked it. `last` is the last number assigned."""

    def __init__(self, db: Database, connection: Connection, source: str, last: int) -> None:
        self._connection = connection
        self._insert = sqlite.insert if db.is_sqlite else postgresql.insert
        self._source = source
        self._first = last + 1
        self._last = self._provisional_last = last
        self._events: list[str] = []
        self._answers: dict[str, tuple[str, PushReceipt]] = {}  # hash and answer of earlier requests
        self._new_keys: set[str] = set()  # keys of events that were not seen before

    def detect_duplicates(self, requests: Sequence[PushRequest]) -> None:
        """Find out which requests and events were received before."""
        request_keys: set[str] = set()
        keys: dict[str, None] = {}
        for request in requests:
            if request.request_key is not None:
                key = request.request_key[0]
                if key in request_keys or self._load_answer(key):
                    continue  # none of its events will be accepted
                request_keys.add(key)
            keys |= dict.fromkeys(key for key in request.keys if key is not None)
            self._provisional_last += len(request.events)
        if keys:
            # Inserted before the events get their numbers: all keys of one write carry its last number.
            rows = [{"source": self._source, "key": key, "number": self._provisional_last} for key in keys]
            insert = self._insert(schema.inbox_keys).on_conflict_do_nothing().returning(schema.inbox_keys.c.key)
            self._new_keys = set(self._connection.execute(insert, rows).scalars())

    def _load_answer(self, key: str) -> bool:
        """Load the answer that a request with this key got, and tell whether there is one."""
        row = self._connection.execute(_SELECT_ANSWER, {"name": self._source, "asked": key}).first()
        if row is not None:
            self._answers[key] = (row.request, PushReceipt(row.taken, row.known))
        return row is not None

    def accept(self, request: PushRequest) -> PushReceipt | Mistake:
        """Assign numbers to the events of a request that are not duplicates, and return the answer for its sender."""
        if request.request_key is not None and (answer := self._answers.get(request.request_key[0])) is not None:
            if answer[0] == request.request_key[1]:
                return PushReceipt(answer[1].accepted, answer[1].duplicates, is_repeated=True)
            what = "this Idempotency-Key was already used for different events"
            return Mistake("KEY_REUSED", what, fix="use a new key for each request, and the same one to repeat it")
        last_before = self._last
        if request.keys:
            for event, key in zip(request.events, request.keys, strict=True):
                if key is None or key in self._new_keys:
                    self._events.append(event)
                    self._last += 1
                    self._new_keys.discard(key or "")
        else:
            self._events += request.events
            self._last += len(request.events)
        receipt = PushReceipt(self._last - last_before, len(request.events) - (self._last - last_before))
        if request.request_key is not None:
            self._answers[request.request_key[0]] = (request.request_key[1], receipt)
            answer_columns = {"request": request.request_key[1], "taken": receipt.accepted, "known": receipt.duplicates}
            row = {
                "source": self._source,
                "key": request.request_key[0],
                "number": self._provisional_last,
                **answer_columns,
            }
            self._connection.execute(_INSERT_ANSWER, row)
        return receipt

    def write(self, mark: str, now: str) -> None:
        """Write the accepted events."""
        if self._provisional_last != self._last:
            parameters = {"name": self._source, "most": self._provisional_last, "last": self._last}
            self._connection.execute(_CORRECT_NUMBERS, parameters)
        if not self._events:
            return
        rows = [
            {"source": self._source, "first": first, "last": last, "body": body, "received_at": now, "mark": mark}
            for first, last, body in _pack_rows(self._events, self._first)
        ]
        self._connection.execute(_INSERT_EVENTS, rows)
        self._connection.execute(_UPDATE_LAST_NUMBER, {"name": self._source, "number": self._last})


def _pack_rows(events: Sequence[str], first: int) -> Iterator[tuple[int, int, bytes]]:
    r"""Yield events as rows of about equal size: the first and last number of each row, and its lines.

    >>> list(_pack_rows(["{}", '{"a": 1}'], 7))
    [(7, 8, b'{}\n{"a": 1}\n')]
    """
    lines: list[str] = []
    size = 0
    for event in events:
        lines.append(event)
        size += len(event)
        if size >= ROW_BYTES:
            yield first, first + len(lines) - 1, _encode_lines(lines)
            first, size, lines = first + len(lines), 0, []
    if lines:
        yield first, first + len(lines) - 1, _encode_lines(lines)


def _encode_lines(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _lock_inboxes(db: Database, connection: Connection, requests: Sequence[PushRequest]) -> dict[str, int]:
    """Lock the inboxes of the requests, always in the same order, and return the last number assigned in each.

    Waits until other transactions have released them.
    """
    last_numbers = {}
    for name in sorted({request.source for request in requests}):
        last = connection.execute(_SELECT_LAST_NUMBER, {"name": name}).scalar()
        if last is None:
            insert = sqlite.insert(schema.inboxes) if db.is_sqlite else postgresql.insert(schema.inboxes)
            connection.execute(insert.on_conflict_do_nothing(), {"source": name, "last": 0, "gone": 0})
            last = connection.execute(_SELECT_LAST_NUMBER, {"name": name}).scalar_one()
        last_numbers[name] = int(last)
    return last_numbers


def _find_effective_mark(connection: Connection, marks: Iterable[str]) -> str | None:
    columns = schema.inbox.c
    return connection.execute(sa.select(columns.mark).where(columns.mark.in_(list(marks))).limit(1)).scalar()
