"""Maintain the append logs that a stream reads: extend them to the current tables, trim what Spark has read."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.errors import CorruptData, RunnelError
from runnel.lake.flow_state import append_log
from runnel.lake.flow_state.streams import checkpoint_folder, read_last_epoch
from runnel.lake.iceberg.file_io import missing_file_error
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.lake.flow_state.append_log import AppendLog
    from runnel.lake.flow_state.streams import StreamRecord
    from runnel.lake.history.commits import LakeState
    from runnel.lake.store import Store

LAYER = append_log.APPEND_LOG_LAYER


def list_streamed_tables(task: "Task") -> list[TableName]:
    """Return the tables that a task reads as streams."""
    return [table for parameter, table in task.inputs if parameter in task.options.stream]


def name_append_log(table: TableName) -> TableName:
    """Return the name of the append log of a table in a slot.

    >>> str(name_append_log(TableName.parse("ods.clicks")))
    'tape.ods__clicks'
    """
    return TableName(*append_log.append_log_name(table))


def extend_append_logs(
    store: "Store",
    task: "Task",
    existing_logs: "Mapping[TableName, AppendLog]",
    state: "LakeState",
    read_files: Mapping[int, int],
) -> "dict[TableName, AppendLog]":
    """Return the append logs of a task, extended to its tables in `state`.

    `read_files` maps the snapshots that Spark has read last to the number of files read. A log with much unread data
    stays as it is: what is trimmed from its other end would be lost.
    """
    append_logs = {}
    for table in list_streamed_tables(task):
        current_version, existing_log = state[table], existing_logs.get(table)
        if existing_log is None:
            append_logs[table] = append_log.create(store, table, current_version.location, current_version.content)
            continue
        try:
            append_logs[table] = _extend_append_log(store, table, existing_log, current_version, read_files)
        except CorruptData as error:
            _refuse_damaged_version(store, current_version)
            raise _lost_position_error(task, error) from error
    return append_logs


def _extend_append_log(
    store: "Store",
    table: TableName,
    existing_log: "AppendLog",
    current_version: TableVersion,
    read_files: Mapping[int, int],
) -> "AppendLog":
    if (
        current_version.location == existing_log.reached
        or append_log.count_unread_snapshots(store, existing_log, read_files) >= append_log.MAX_UNREAD_SNAPSHOTS
    ):
        return existing_log
    trimmed_log = append_log.trim(store, existing_log, read_files)
    return append_log.extend(store, table, trimmed_log, current_version.location, current_version.content)


def _refuse_damaged_version(store: "Store", version: TableVersion) -> None:
    """Raise CorruptData if the table itself can't be read: then only a backup helps, not a stream that starts over."""
    for _ in read_entries(store, load_metadata(store, version.location)):
        pass


def _lost_position_error(task: "Task", error: CorruptData) -> RunnelError:
    """Return the error for a stream whose append log lacks a file; a backup could bring erased rows back."""
    what = f"{error.what}, and the stream of `{task.table}` can't continue without it"
    fix = f"start it again from the beginning: runnel stream reset {task.table}"
    return RunnelError("STREAM_TAPE_LOST", what, at=str(task.place), fix=fix)


def list_log_versions(append_logs: "Mapping[TableName, AppendLog]") -> "dict[TableName, TableVersion]":
    """Return append logs as tables of a slot."""
    return {
        name_append_log(table): TableVersion(stream_log.location, stream_log.content)
        for table, stream_log in append_logs.items()
    }


def parse_offsets(offsets: Iterable[str | None]) -> dict[int, int]:
    """Return the snapshots in Spark's offsets, of any log, and how many files of each were read.

    >>> parse_offsets(['{"version":1,"snapshot_id":7,"position":1,"scan_all_files":false}', None])
    {7: 1}
    """
    parsed_offsets = [json.loads(text) for text in offsets if text]
    return {int(offset["snapshot_id"]): int(offset["position"]) for offset in parsed_offsets}


def read_committed_offsets(store: "Store", stream: "StreamRecord") -> dict[int, int]:
    """Return the snapshots that a stream has read last, with the number of files; none before its first batch.

    These are of the newest batch that Spark's checkpoint has as committed; a batch that is only published is read
    again.
    """
    newest = read_last_epoch(store.db, stream.query)
    for epoch in () if newest is None else (newest, newest - 1):
        if store.io.new_input(f"{checkpoint_folder(store.warehouse, stream.life)}/commits/{epoch}").exists():
            return _read_offsets(store, stream, epoch)
    return {}


def read_published_offsets(store: "Store", stream: "StreamRecord") -> dict[int, int]:
    """Return the snapshots, with the number of files, that the newest published batch of a stream has read."""
    newest = read_last_epoch(store.db, stream.query)
    try:
        return _read_offsets(store, stream, newest) if newest is not None else {}
    except FileNotFoundError as error:
        raise missing_file_error(checkpoint_folder(store.warehouse, stream.life)) from error


def _read_offsets(store: "Store", stream: "StreamRecord", epoch: int) -> dict[int, int]:
    """Return the snapshots up to which a batch reads, from Spark's checkpoint."""
    with store.io.new_input(f"{checkpoint_folder(store.warehouse, stream.life)}/offsets/{epoch}").open() as file:
        _, _, *lines = file.read().decode().splitlines()
    return parse_offsets(line for line in lines if line.startswith("{"))


def find_reached_contents(store: "Store", stream: "StreamRecord") -> dict[TableName, str]:
    """Return the content of each table that a stream has read; empty if some of it is unread."""
    read_files = read_committed_offsets(store, stream)
    return {
        table: "" if append_log.count_unread_snapshots(store, stream_log, read_files) else stream_log.content
        for table, stream_log in stream.append_logs.items()
    }
