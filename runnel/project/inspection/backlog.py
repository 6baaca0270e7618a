"""Measure what streams and continuously read sources have still to read. Asks the catalog and the lake only.

So it answers while no worker runs, and while a broker or a database is away: of those it reports what a worker saw.
"""

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from runnel.connect.feed.state import read_feed_state
from runnel.errors import RunnelError
from runnel.lake.catalog.database import format_time
from runnel.lake.control.declarations import read_sources
from runnel.lake.flow_state.append_log import UnreadRows, measure_unread_rows
from runnel.lake.flow_state.inbox_reader import read_first_unread_at, read_inbox_level
from runnel.lake.flow_state.ingest_positions import read_processed_files
from runnel.lake.flow_state.stream_metrics import find_first_change_after, list_recent_versions, read_look
from runnel.lake.flow_state.streams import StreamRecord, list_streams
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.iceberg.table_size import read_size
from runnel.names import TableName
from runnel.run.stream.stream_inputs import read_published_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.lake.control.declarations import SourceDeclaration
    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion


@dataclass(frozen=True)
class Backlog:
    """What is still unread. `is_empty` is None if nobody knows.

    `since` is when the oldest of it arrived, as far as that is known. `looked_at` is when a worker saw it in another
    system; None if it is true now.
    """

    is_empty: bool | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    since: str | None = None
    looked_at: str | None = None


_UNREADABLE = (RunnelError, OSError)  # a file of the lake is missing, or its storage does not answer
EMPTY = Backlog(is_empty=True, rows=0)
MAIN = "main"


@dataclass(frozen=True)
class ReaderBacklog:
    """The backlog of a stream or a continuously read source; `kind` says which of both."""

    record: StreamRecord
    kind: Literal["stream", "source"]
    backlog: Backlog


def list_backlogs(store: "Store", branch: str | None = None) -> list[ReaderBacklog]:
    """Return the backlog of each stream and source, of one branch or all.

    Also of sources to which events were pushed before a worker has read any: these have no record of their own.
    """
    with store.db.read_transaction() as connection:
        records, sources = list_streams(connection, branch), read_sources(connection) or {}
    readers = [
        ReaderBacklog(record, _find_kind(record, sources), _measure_backlog(store, record, sources))
        for record in records.values()
    ]
    inboxes = [source for source in sources.values() if source.inbox is not None and branch in (None, MAIN)]
    for source in inboxes:
        table = TableName.parse_unchecked(source.table)
        backlog = EMPTY if (MAIN, table) in records else _measure_inbox(store, MAIN, source)
        if not backlog.is_empty:
            since = backlog.since or store.db.now()
            record = StreamRecord(MAIN, table, "", None, "", {}, since, "idle", None, since)
            readers.append(ReaderBacklog(record, "source", backlog))
    return readers


def _find_kind(record: StreamRecord, sources: "Mapping[str, SourceDeclaration]") -> Literal["stream", "source"]:
    """Return stream or source; a stream that has never started has no more than a state, as a source."""
    is_stream = record.is_task or (bool(sources) and str(record.table) not in sources)
    return "stream" if is_stream else "source"


def _measure_backlog(store: "Store", record: StreamRecord, sources: "Mapping[str, SourceDeclaration]") -> Backlog:
    if record.is_task:
        return _measure_stream(store, record)
    source = sources.get(str(record.table))
    if source is not None and source.inbox is not None:
        return _measure_inbox(store, record.branch, source)
    return _measure_source(store, record)


def _measure_stream(store: "Store", stream: StreamRecord) -> Backlog:
    """Return the rows of its input tables that a stream has not published anything for."""
    state = store.state(stream.branch)
    try:
        read_files = read_published_offsets(store, stream)
    except _UNREADABLE:
        return Backlog()
    backlogs = [
        _measure_input(store, stream, table, state[table], read_files) for table in stream.append_logs if table in state
    ]
    return _add_backlogs(backlogs)


def _measure_input(
    store: "Store",
    stream: StreamRecord,
    table: TableName,
    current_version: "TableVersion",
    read_files: dict[int, int],
) -> Backlog:
    """Return the rows that the append log of a table has unread, and those that it does not have yet."""
    append_log = stream.append_logs[table]
    try:
        unread = measure_unread_rows(store, append_log, read_files)
    except _UNREADABLE:
        return Backlog()
    is_current = current_version.content == append_log.content
    if is_current and not unread.rows:
        return EMPTY
    rows_now, rows_in_log = _count_rows(store, current_version.location), _count_rows(store, append_log.reached)
    if is_current:
        rows_in_log = rows_now
    if rows_now is None or rows_in_log is None:
        return Backlog(is_empty=False, since=_find_since_in_log(store, stream, table, unread))
    unread_rows = unread.rows + max(rows_now - rows_in_log, 0)
    versions = store.db.read(lambda connection: list_recent_versions(connection, stream.branch, table))
    first_unread_at = _find_first_unread_at(store, versions, rows_now - unread_rows)
    return Backlog(
        is_empty=False,
        rows=unread_rows,
        since=first_unread_at or _find_since_in_log(store, stream, table, unread),
    )


def _find_since_in_log(store: "Store", stream: StreamRecord, table: TableName, unread: UnreadRows) -> str | None:
    """Return since when the append log of a table has unread rows, or since when it lacks some of the table."""
    if unread.since is not None:
        return format_time(datetime.fromtimestamp(unread.since, UTC))
    reached = stream.append_logs[table].reached
    return store.db.read(lambda connection: find_first_change_after(connection, stream.branch, table, reached))


def _find_first_unread_at(store: "Store", versions: "Sequence[tuple[str, str]]", read_rows: int) -> str | None:
    """Return when the first of some versions, newest first, was published that has more rows than were read.

    The rows of a table that is read as a stream only grow, so half of the versions are left out at a time.
    """
    is_read = partial(_has_at_most, store, read_rows)
    unread_count = bisect_left(versions, True, key=lambda version: is_read(version[0]))
    return versions[unread_count - 1][1] if unread_count else None


def _has_at_most(store: "Store", most_rows: int, location: str) -> bool:
    """Return whether a version has at most some rows, or is so old that its files were deleted."""
    rows = _count_rows(store, location)
    return rows is None or rows <= most_rows


def _measure_inbox(store: "Store", branch: str, source: "SourceDeclaration") -> Backlog:
    """Return the pushed events that a branch has not ingested."""
    inbox = TableName.parse_unchecked(source.inbox or source.table)
    position = read_feed_state(read_processed_files(store.db, store.commit(branch), inbox))
    with store.db.read_transaction() as connection:
        level = read_inbox_level(connection, str(inbox))
        after = max(int(position["number"]) if position is not None else 0, level.last_removed)
        if level.last <= after:
            return EMPTY
        received_at = read_first_unread_at(connection, inbox, after)
    return Backlog(is_empty=False, rows=level.last - after, since=received_at)


def _measure_source(store: "Store", record: StreamRecord) -> Backlog:
    """Return what a worker last saw in the system that a source reads."""
    look = store.db.read(lambda connection: read_look(connection, record.branch, record.table))
    if look is None:
        return Backlog()
    if look.since is None:
        is_known = look.rows is not None or look.files is not None
        return Backlog(True if is_known else None, look.rows, look.files, look.bytes, looked_at=look.at)
    return Backlog(False, look.rows, look.files, look.bytes, look.since, look.at)


def _add_backlogs(backlogs: "Iterable[Backlog]") -> Backlog:
    """Return the sum of backlogs; what one of them does not know is unknown."""
    parts = [backlog for backlog in backlogs if backlog.is_empty is not True]
    if not parts:
        return EMPTY
    rows = [backlog.rows for backlog in parts]
    known_rows = [count for count in rows if count is not None]
    is_empty = False if any(backlog.is_empty is False for backlog in parts) else None
    since = min((backlog.since for backlog in parts if backlog.since is not None), default=None)
    return Backlog(is_empty, sum(known_rows) if len(known_rows) == len(rows) else None, since=since)


def _count_rows(store: "Store", location: str) -> int | None:
    try:
        return read_size(load_metadata(store, location)).rows
    except _UNREADABLE:
        return None
