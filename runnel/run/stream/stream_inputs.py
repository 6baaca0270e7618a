"""Maintain the append logs that a stream reads: extend them to the current tables, trim what Spark has read."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.lake.flow_state import append_log
from runnel.lake.flow_state.streams import checkpoint_folder, read_last_epoch
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
        elif (
            current_version.location == existing_log.reached
            or append_log.count_unread_snapshots(store, existing_log, read_files) >= append_log.MAX_UNREAD_SNAPSHOTS
        ):
            append_logs[table] = existing_log
        else:
            append_logs[table] = append_log.extend(
                store,
                table,
                append_log.trim(store, existing_log, read_files),
                current_version.location,
                current_version.content,
            )
    return append_logs


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
    folder, newest = checkpoint_folder(store.warehouse, stream.life), read_last_epoch(store.db, stream.query)
    for epoch in () if newest is None else (newest, newest - 1):
        if store.io.new_input(f"{folder}/commits/{epoch}").exists():
            with store.io.new_input(f"{folder}/offsets/{epoch}").open() as file:
                _, _, *lines = file.read().decode().splitlines()
            return parse_offsets(line for line in lines if line.startswith("{"))
    return {}


def find_reached_contents(store: "Store", stream: "StreamRecord") -> dict[TableName, str]:
    """Return the content of each table that a stream has read; empty if some of it is unread."""
    read_files = read_committed_offsets(store, stream)
    return {
        table: "" if append_log.count_unread_snapshots(store, stream_log, read_files) else stream_log.content
        for table, stream_log in stream.append_logs.items()
    }
