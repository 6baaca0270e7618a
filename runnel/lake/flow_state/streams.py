"""Record streams per branch: their state, the process that runs each, and their batches.

A stream has successive lives: each starts empty, has a checkpoint of its own, and replaces the output of the previous
one. One process at a time runs a stream. A batch is identified by Spark's query id of the checkpoint and by its epoch;
both are written in the transaction that publishes the batch.
"""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Conflict, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.flow_state.append_log import AppendLog
from runnel.lake.leases.pins import current_lease_owner, lease_expires_at, start_lease_renewal
from runnel.names import TableName

_STREAMS, _BATCHES = schema.streams, schema.batches
_FOLDER = "_streams"
_own_tokens: set[str] = set()  # tokens of the streams that this process holds


@dataclass(frozen=True)
class StreamRecord:
    """A stream on a branch. `state` is idle, running, waiting or failed, since `since`."""

    branch: str
    table: TableName
    life: str
    query: str | None
    code: str
    append_logs: Mapping[TableName, AppendLog]
    begun_at: str
    state: str
    problem: str | None
    since: str
    owner: str | None = None

    @property
    def is_task(self) -> bool:
        """Return whether it is a task; otherwise it is a continuously read source, which has only a state."""
        return bool(self.append_logs) or self.query is not None


@dataclass(frozen=True)
class StreamBatch:
    """A batch that is about to be published. `token` is that of the stream's lease."""

    branch: str
    table: TableName
    token: str
    query: str
    epoch: int
    detail: Mapping[str, Any] = field(default_factory=dict)


def list_streams(connection: Connection, branch: str | None = None) -> dict[tuple[str, TableName], StreamRecord]:
    """Return all streams, or those of a branch."""
    query = sa.select(_STREAMS)
    rows = connection.execute(query if branch is None else query.where(_STREAMS.c.branch == branch))
    return {(stream.branch, stream.table): stream for stream in map(_parse_stream, rows)}


class StreamLease:
    """A lease on a stream, which only this process may run while the lease is valid."""

    def __init__(self, db: Database, branch: str, table: TableName, token: str) -> None:
        self.db = db
        self.branch = branch
        self.table = table
        self.token = token

    def read_stream(self) -> StreamRecord:
        """Return the current record of the stream."""
        return _parse_stream(
            self.db.read(lambda connection: connection.execute(sa.select(_STREAMS).where(self._is_ours)).one())
        )

    def update_append_logs(
        self, append_logs: Mapping[TableName, AppendLog], previous_logs: Mapping[TableName, AppendLog]
    ) -> bool:
        """Replace its `previous_logs` by new ones; return False if an erasure has replaced those meanwhile."""

        def work(connection: Connection) -> bool:
            text = connection.execute(sa.select(_STREAMS.c.tapes).where(self._is_ours)).scalar()
            if text is None:
                raise _lease_lost_error(self.table)
            if _parse_logs(text) != previous_logs:
                return _parse_logs(text) == append_logs  # an earlier attempt took effect
            is_unchanged = sa.and_(self._is_ours, _STREAMS.c.tapes == text)
            return (
                connection.execute(
                    _STREAMS.update().where(is_unchanged).values(tapes=_serialize_logs(append_logs))
                ).rowcount
                == 1
            )

        return self.db.write(work)

    def record_start(self, query: str, code: str) -> None:
        """Record that Spark runs it, with the query id and the code's fingerprint."""
        self._update(query=query, code=code, state="running", problem=None)

    def set_state(self, state: str, problem: str | None = None) -> None:
        """Record its state."""
        self._update(state=state, problem=problem)

    @property
    def _is_ours(self) -> "sa.ColumnElement[bool]":
        return sa.and_(_is_stream(self.branch, self.table), _STREAMS.c.token == self.token)

    def _update(self, **values: object) -> None:
        def work(connection: Connection) -> int:
            if "state" in values:
                values["since"] = self.db.now(connection)
            return connection.execute(_STREAMS.update().where(self._is_ours).values(**values)).rowcount

        if not self.db.write(work):
            raise _lease_lost_error(self.table)


@contextmanager
def acquire_lease(db: Database, branch: str, table: TableName, code: str) -> Iterator[StreamLease]:
    """Hold the lease on a stream while the block runs, creating its record if missing; raise if another runs it."""
    token, stop = uuid.uuid4().hex, threading.Event()
    lease = StreamLease(db, branch, table, token)
    _own_tokens.add(token)
    try:
        db.write(lambda connection: _acquire(connection, lease, code))
        start_lease_renewal(db, _STREAMS, lease._is_ours, stop)
        yield lease
    finally:
        stop.set()
        _own_tokens.discard(token)
        released_values = {"token": None, "owner": None, "expires_at": None}
        with suppress(RunnelError):  # it expires by itself
            db.write(
                lambda connection: connection.execute(_STREAMS.update().where(lease._is_ours).values(**released_values))
            )


def reset(db: Database, branch: str, table: TableName) -> StreamRecord | None:
    """Delete a stream's record, so that it starts over, and return the record; None if there was none."""

    def work(connection: Connection) -> StreamRecord | None:
        lock_lake(connection)
        row = connection.execute(sa.select(_STREAMS).where(_is_stream(branch, table))).first()
        if row is not None:
            _refuse_leased(db, connection, row)
            connection.execute(_STREAMS.delete().where(_is_stream(branch, table)))
        return _parse_stream(row) if row is not None else None

    return db.write(work)


def delete_unstarted(db: Database, branch: str, table: TableName) -> None:
    """Delete the record of a stream that Spark has never run and on which there is no lease."""
    is_unstarted = sa.and_(_is_stream(branch, table), _STREAMS.c.query.is_(None), _STREAMS.c.token.is_(None))
    if (
        db.read(lambda connection: connection.execute(sa.select(_STREAMS.c.life).where(is_unstarted)).first())
        is not None
    ):
        db.write(lambda connection: connection.execute(_STREAMS.delete().where(is_unstarted)))


def is_batch_published(db: Database, query: str, epoch: int) -> bool:
    """Return whether a batch was published."""
    batch_conditions = (_BATCHES.c.query == query, _BATCHES.c.epoch == epoch)
    return (
        db.read(lambda connection: connection.execute(sa.select(_BATCHES.c.at).where(*batch_conditions)).first())
        is not None
    )


def read_last_epoch(db: Database, query: str | None) -> int | None:
    """Return the epoch of the newest batch of a query."""
    max_epoch_query = sa.select(sa.func.max(_BATCHES.c.epoch)).where(_BATCHES.c.query == query)
    return db.read(lambda connection: connection.execute(max_epoch_query).scalar()) if query is not None else None


def record_batch(connection: Connection, batch: StreamBatch, commit: str | None, now: str) -> None:
    """Record a batch, in the transaction that publishes it; raise if the lease on its stream was lost."""
    is_leased = sa.and_(_is_stream(batch.branch, batch.table), _STREAMS.c.token == batch.token)
    if connection.execute(sa.select(_STREAMS.c.life).where(is_leased)).first() is None:
        raise _lease_lost_error(batch.table)
    values = {"query": batch.query, "epoch": batch.epoch, "branch": batch.branch, "table_name": str(batch.table)}
    connection.execute(_BATCHES.insert().values(**values, commit_id=commit, at=now, detail=json.dumps(batch.detail)))


def record_empty_batch(db: Database, batch: StreamBatch) -> None:
    """Record a batch that changed nothing."""

    def work(connection: Connection) -> None:
        batch_conditions = (_BATCHES.c.query == batch.query, _BATCHES.c.epoch == batch.epoch)
        if connection.execute(sa.select(_BATCHES.c.at).where(*batch_conditions)).first() is None:
            record_batch(connection, batch, None, db.now(connection))

    db.write(work)


def record_state(db: Database, branch: str, table: TableName, state: str, problem: str | None) -> None:
    """Record the state of a stream or of a continuously read source; needs no lease."""

    def work(connection: Connection) -> None:
        now, reporter = db.now(connection), None if state == "idle" else current_lease_owner()
        values: dict[str, Any] = {"state": state, "problem": problem, "since": now}
        values["owner"] = sa.case((_STREAMS.c.token.is_(None), reporter), else_=_STREAMS.c.owner)
        if connection.execute(_STREAMS.update().where(_is_stream(branch, table)).values(**values)).rowcount:
            return
        new_stream = {"branch": branch, "table_name": str(table), "life": uuid.uuid4().hex, "code": "", "tapes": "{}"}
        connection.execute(_STREAMS.insert().values(**new_stream, **values | {"owner": reporter}, begun_at=now))

    db.write(work)


def record_ingest(db: Database, branch: str, table: TableName, detail: Mapping[str, Any]) -> None:
    """Record what one read of a continuously read source ingested."""

    def work(connection: Connection) -> None:
        query_name = f"intake:{uuid.uuid5(uuid.NAMESPACE_URL, f'{branch} {table}').hex[:28]}"
        max_epoch_query = sa.select(sa.func.max(_BATCHES.c.epoch)).where(_BATCHES.c.query == query_name)
        epoch = (connection.execute(max_epoch_query).scalar() or 0) + 1
        values = {"query": query_name, "epoch": epoch, "branch": branch, "table_name": str(table)}
        connection.execute(_BATCHES.insert().values(**values, at=db.now(connection), detail=json.dumps(detail)))

    db.write(work)


def add_detail(db: Database, query: str, epoch: int, extra: Mapping[str, Any]) -> bool:
    """Add measurements to the recorded detail of a batch; return False if it is not recorded."""

    def work(connection: Connection) -> bool:
        is_batch = sa.and_(_BATCHES.c.query == query, _BATCHES.c.epoch == epoch)
        text = connection.execute(sa.select(_BATCHES.c.detail).where(is_batch)).scalar()
        if text is None:
            return False
        detail = json.dumps({**json.loads(text), **extra})
        connection.execute(_BATCHES.update().where(is_batch).values(detail=detail))
        return True

    return db.write(work)


def delete_old_batches(db: Database, days: int = 7) -> None:
    """Delete records of old batches; the last 100 of each query are retained, because a restart reads them."""

    def work(connection: Connection) -> None:
        limit = format_time(parse_time(db.now(connection)) - timedelta(days=days))
        last_epochs_query = sa.select(_BATCHES.c.query, sa.func.max(_BATCHES.c.epoch).label("last")).group_by(
            _BATCHES.c.query
        )
        for query, last_epoch_of_query in connection.execute(last_epochs_query).all():
            old_conditions = (
                _BATCHES.c.query == query,
                _BATCHES.c.epoch < last_epoch_of_query - 100,
                _BATCHES.c.at < limit,
            )
            connection.execute(_BATCHES.delete().where(*old_conditions))

    db.write(work)


def checkpoint_folder(warehouse: str, life: str) -> str:
    """Return the checkpoint folder of a stream's life: Spark's offsets and state."""
    return f"{warehouse}/{_FOLDER}/{life}"


def list_checkpoint_folders(db: Database, warehouse: str) -> tuple[str, ...]:
    """Return the checkpoint folders of all streams, each with a trailing slash."""
    lives = db.read(lambda connection: connection.execute(sa.select(_STREAMS.c.life)).scalars().all())
    return tuple(f"{checkpoint_folder(warehouse, life)}/" for life in lives)


def _acquire(connection: Connection, lease: StreamLease, code: str) -> None:
    lock_lake(connection)
    now, is_stream = lease.db.now(connection), _is_stream(lease.branch, lease.table)
    lease_values = {"token": lease.token, "owner": current_lease_owner(), "expires_at": lease_expires_at(now)}
    row = connection.execute(sa.select(_STREAMS).where(is_stream)).first()
    if row is not None and row.token == lease.token:
        return  # an earlier attempt took effect, and its acknowledgement was lost
    if row is not None:
        _refuse_leased(lease.db, connection, row)
        connection.execute(_STREAMS.update().where(is_stream).values(**lease_values))
        return
    stream_values = {"branch": lease.branch, "table_name": str(lease.table), "life": uuid.uuid4().hex, "code": code}
    state_values = {"tapes": "{}", "begun_at": now, "state": "idle", "since": now}
    connection.execute(_STREAMS.insert().values(**stream_values, **state_values, **lease_values))


def _refuse_leased(db: Database, connection: Connection, row: Row[Any]) -> None:
    from runnel.lake.leases.expiry import is_lease_owner_dead

    # Leased by a process with our pid, but not by us: it has ended, or could not release its lease.
    is_abandoned = row.owner == current_lease_owner() and row.token not in _own_tokens
    is_expired = row.token is None or (row.expires_at or "") <= db.now(connection) or is_lease_owner_dead(row.owner)
    if not is_expired and not is_abandoned:
        what = f"process {row.owner} runs the stream of `{row.table_name}` on `{row.branch}`"
        raise Conflict("STREAM_RUNNING", what, fix="stop that process first, with Ctrl-C")


def _is_stream(branch: str, table: TableName) -> "sa.ColumnElement[bool]":
    return sa.and_(_STREAMS.c.branch == branch, _STREAMS.c.table_name == str(table))


def _parse_stream(row: Row[Any]) -> StreamRecord:
    stored_values = (
        row.life,
        row.query,
        row.code,
        _parse_logs(row.tapes),
        row.begun_at,
        row.state,
        row.problem,
        row.since,
        row.owner,
    )
    return StreamRecord(row.branch, TableName.parse(row.table_name), *stored_values)


def _parse_logs(text: str) -> dict[TableName, AppendLog]:
    return {TableName.parse(name): AppendLog(**fields) for name, fields in json.loads(text).items()}


def _serialize_logs(append_logs: Mapping[TableName, AppendLog]) -> str:
    return json.dumps({str(table): vars(append_log) for table, append_log in append_logs.items()})


def _lease_lost_error(table: TableName) -> RunnelError:
    what = f"the lease on the stream of `{table}` was not renewed in time, so another process may run it now"
    return RunnelError("STREAM_LEASE_LOST", what, fix="start it again")
