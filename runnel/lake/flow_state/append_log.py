"""Stage append logs: private, append-only copies of a table's metadata that a stream reads.

Spark reads an append log like any append-only table. The table itself may be compacted, trimmed or reverted; its append
log is not. Data files are referenced, never copied, and gc retains what an append log references. Files that the stream
has read are removed from the log, so that it stays short.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.errors import CorruptData, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.diff.compaction_delta import compute_change
from runnel.lake.diff.file_delta import FileDelta
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.partial_tables import stage_partial_table
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import RETAINED_SNAPSHOTS, load_metadata
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableUpdate
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store
    from runnel.names import TableName

APPEND_LOG_LAYER = "tape"  # layer of a slot that contains its append logs
MAX_UNREAD_SNAPSHOTS = RETAINED_SNAPSHOTS - 3  # limit of snapshots not read yet
_ROWS_PER_FETCH = 200
MAX_READ_FILES = 200  # if more files were read, they are removed


class NotAppendOnly(RunnelError):
    """Rows of a table were removed or changed, so that a stream can't correct its result by reading new rows."""

    def __init__(self, table: "TableName", why: str, fix: str) -> None:
        super().__init__("STREAM_ROWS_WENT", f"{why} of `{table}`, which is read as a stream", fix=fix)


@dataclass(frozen=True)
class AppendLog:
    """A version of an append log: its location, and the location and content of the table version it extends to."""

    location: str
    reached: str
    content: str


@dataclass(frozen=True)
class UnreadRows:
    """The unread rows of an append log. `since` is in seconds since 1970; None if there are none."""

    rows: int
    since: float | None = None


def append_log_name(table: "TableName") -> tuple[str, str]:
    """Return the layer and the name of a table's append log in a slot.

    >>> from runnel.names import TableName
    >>> append_log_name(TableName.parse("ods.clicks"))
    ('tape', 'ods__clicks')
    """
    return APPEND_LOG_LAYER, f"{table.layer}__{table.name}"


def create(store: "Store", table: "TableName", location: str, content: str) -> AppendLog:
    """Stage an append log with all files of a version in one snapshot: a stream reads only what a snapshot adds."""
    version_entries = list(read_entries(store, load_metadata(store, location)))
    if any(not entry.is_data for entry in version_entries):
        fix = f"rewrite the files without these rows: runnel compact {table}"
        raise NotAppendOnly(table, "rows are marked as deleted in files", fix)
    empty_location = stage_partial_table(store, location, [])
    return AppendLog(
        stage_version(store, empty_location, VersionEdit(reused=version_entries))
        if version_entries
        else empty_location,
        location,
        content,
    )


def extend(store: "Store", table: "TableName", append_log: AppendLog, location: str, content: str) -> AppendLog:
    """Stage an append log that extends to a newer version; keep its location if no file was added.

    Raises NotAppendOnly if the newer version lacks rows of the older one.
    """
    if location == append_log.reached:
        return append_log
    if content == append_log.content:
        return AppendLog(append_log.location, location, content)
    file_changes = compute_change(store, table, append_log.reached, location)
    if not _is_append_only(file_changes):
        file_changes = _collect_appends(store, table, append_log, TableVersion(location, content)) or file_changes
    if not _is_append_only(file_changes):
        fix = "start the stream again from the beginning with `runnel stream reset TASK`: it reads all rows"
        raise NotAppendOnly(table, "rows were removed or changed in files", fix)
    if not file_changes.added:
        return AppendLog(append_log.location, location, content)
    updates = build_schema_updates(store, append_log.location, location)
    return AppendLog(
        stage_version(store, append_log.location, VersionEdit(reused=file_changes.added, updates=updates)),
        location,
        content,
    )


def count_unread_snapshots(store: "Store", append_log: AppendLog, read_files_by_snapshot: "Mapping[int, int]") -> int:
    """Return how many snapshots of an append log are unread.

    `read_files_by_snapshot` maps the snapshots that were read last, of any version of the log, to the files read.
    """
    return sum(
        _count_added_files(snapshot) > read_files_by_snapshot.get(snapshot.snapshot_id, 0)
        for snapshot in _list_unread_snapshots(load_metadata(store, append_log.location), read_files_by_snapshot)
    )


def measure_unread_rows(
    store: "Store", append_log: AppendLog, read_files_by_snapshot: "Mapping[int, int]"
) -> UnreadRows:
    """Return how many rows of an append log are unread, and since when the log has the first of them."""
    metadata = load_metadata(store, append_log.location)
    snapshots = _list_unread_snapshots(metadata, read_files_by_snapshot)
    entries_by_snapshot: dict[int, list[FileEntry]] = {snapshot.snapshot_id: [] for snapshot in snapshots}
    for entry in read_entries(store, metadata):
        if entry.snapshot_id in entries_by_snapshot:
            entries_by_snapshot[entry.snapshot_id].append(entry)
    rows, since_ms = 0, list[int]()
    for snapshot in snapshots:
        unread_entries = entries_by_snapshot[snapshot.snapshot_id][
            read_files_by_snapshot.get(snapshot.snapshot_id, 0) :
        ]
        if unread_entries:
            rows += sum(entry.file.record_count for entry in unread_entries)
            since_ms.append(snapshot.timestamp_ms)
    return UnreadRows(rows, min(since_ms) / 1000 if since_ms else None)


def _list_unread_snapshots(
    metadata: "TableMetadata", read_files_by_snapshot: "Mapping[int, int]"
) -> "Sequence[Snapshot]":
    """Return the last snapshot of a log that was read, of which some files may be unread, and all after it."""
    snapshots = metadata.snapshots
    last_read_index = max(
        (index for index, snapshot in enumerate(snapshots) if snapshot.snapshot_id in read_files_by_snapshot),
        default=-1,
    )
    return snapshots[max(last_read_index, 0) :]


def trim(store: "Store", append_log: AppendLog, read_files_by_snapshot: "Mapping[int, int]") -> AppendLog:
    """Stage an append log without the files older than the snapshots that were read, if there are many."""
    metadata = load_metadata(store, append_log.location)
    sequences = [
        snapshot.sequence_number or 0
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id in read_files_by_snapshot
    ]
    obsolete_entries = [
        entry for entry in read_entries(store, metadata) if entry.file_sequence < max(sequences, default=0)
    ]
    if len(obsolete_entries) <= MAX_READ_FILES:
        return append_log
    return AppendLog(
        stage_version(store, append_log.location, VersionEdit(removed=obsolete_entries)),
        append_log.reached,
        append_log.content,
    )


def build_schema_updates(store: "Store", location: str, newer: str) -> "tuple[TableUpdate, ...]":
    """Return the updates that give a version the columns of a newer version of the same table."""
    from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate

    current_metadata, newer_metadata = load_metadata(store, location), load_metadata(store, newer)
    if current_metadata.schema().as_struct() == newer_metadata.schema().as_struct():
        return ()
    new_schema = newer_metadata.schema().model_copy(
        update={"schema_id": max(existing_schema.schema_id for existing_schema in current_metadata.schemas) + 1}
    )
    return (AddSchemaUpdate(schema_=new_schema), SetCurrentSchemaUpdate(schema_id=-1))


def _collect_appends(
    store: "Store", table: "TableName", append_log: AppendLog, until: TableVersion
) -> FileDelta | None:
    """Return the files that each commit added since the append log was extended; None if a step is not known.

    A compaction may have combined files of which the log has only some: then the others are taken as first written.
    """
    steps = store.db.read(lambda connection: _list_steps(connection, table, append_log, until))
    added_entries: dict[str, FileEntry] = {}
    try:
        for before, after in steps:
            if after.content == before.content:
                continue
            file_changes = compute_change(store, table, before.location, after.location)
            if not _is_append_only(file_changes):
                return None
            added_entries |= {entry.path: entry for entry in file_changes.added}
    except CorruptData:
        return None  # retention deleted a version in between
    return FileDelta(tuple(added_entries.values()), ()) if steps else None


def _list_steps(
    connection: "Connection", table: "TableName", append_log: AppendLog, until: TableVersion
) -> list[tuple[TableVersion, TableVersion]]:
    """Return every change of a table since the append log was extended, oldest first; [] if they don't connect."""
    columns = schema.changes.c
    newest_first = (
        sa.select(columns.before, columns.after, columns.content)
        .where(columns.table_name == str(table))
        .order_by(columns.seq.desc())
    )
    steps, version = list[tuple[TableVersion, TableVersion]](), until
    with connection.execution_options(yield_per=_ROWS_PER_FETCH).execute(newest_first) as rows:
        for row in rows:
            if steps and row.after == steps[-1][0].location:
                steps[-1] = (replace(steps[-1][0], content=row.content), steps[-1][1])
                version = steps[-1][0]
            if row.after != version.location:
                continue
            if row.before is None:
                return []
            steps.append((TableVersion(row.before, append_log.content), version))
            if row.before == append_log.reached:
                return steps[::-1]
    return []


def _is_append_only(file_changes: FileDelta) -> bool:
    return not file_changes.removed and all(entry.is_data for entry in file_changes.added)


def _count_added_files(snapshot: "Snapshot") -> int:
    """Return how many data files a snapshot added."""
    summary_properties = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return int(summary_properties.get("added-data-files", 0))
