"""The tapes of one stream: wound up to what its tables have now, and shortened by what Spark has read."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.lake.flow_state import append_log
from runnel.lake.flow_state.streams import checkpoint, last_epoch
from runnel.lake.history.commits import Version
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.lake.flow_state.append_log import Tape
    from runnel.lake.flow_state.streams import Stream
    from runnel.lake.history.commits import State
    from runnel.lake.store import Store

LAYER = append_log.TAPE_LAYER


def streamed(task: "Task") -> list[TableName]:
    """Return the tables that a task reads as streams."""
    return [table for parameter, table in task.inputs if parameter in task.options.stream]


def on_tape(table: TableName) -> TableName:
    """Return what the tape of a table is called in a slot.

    >>> str(on_tape(TableName.parse("ods.clicks")))
    'tape.ods__clicks'
    """
    return TableName(*append_log.name_in_slot(table))


def wound(
    store: "Store", task: "Task", known: "Mapping[TableName, Tape]", state: "State", read: Mapping[int, int]
) -> "dict[TableName, Tape]":
    """Return the tapes of a task, up to what its tables are in `state`; `read` is what Spark has read, and how far.

    A tape of which much is unread stays as it is: what has been pushed off its other end would be lost.
    """
    found = {}
    for table in streamed(task):
        now, old = state[table], known.get(table)
        if old is None:
            found[table] = append_log.begin(store, table, now.location, now.content)
        elif now.location == old.reached or append_log.unread(store, old, read) >= append_log.AHEAD:
            found[table] = old
        else:
            found[table] = append_log.wind(
                store, table, append_log.shorten(store, old, read), now.location, now.content
            )
    return found


def versions(tapes: "Mapping[TableName, Tape]") -> "dict[TableName, Version]":
    """Return tapes as tables of a slot."""
    return {on_tape(table): Version(one.location, one.content) for table, one in tapes.items()}


def read_in(offsets: Iterable[str | None]) -> dict[int, int]:
    """Return the snapshots that Spark's offsets name, whichever tape each is of, and how many files of them were read.

    >>> read_in(['{"version":1,"snapshot_id":7,"position":1,"scan_all_files":false}', None])
    {7: 1}
    """
    found = [json.loads(text) for text in offsets if text]
    return {int(one["snapshot_id"]): int(one["position"]) for one in found}


def read_before(store: "Store", stream: "Stream") -> dict[int, int]:
    """Return the snapshots that a stream has read last, and how far; none before its first batch.

    Those of the newest batch that Spark knows to be done: one that is only published it reads once more.
    """
    folder, newest = checkpoint(store.warehouse, stream.life), last_epoch(store.db, stream.query)
    for epoch in () if newest is None else (newest, newest - 1):
        if store.io.new_input(f"{folder}/commits/{epoch}").exists():
            with store.io.new_input(f"{folder}/offsets/{epoch}").open() as file:
                _, _, *lines = file.read().decode().splitlines()
            return read_in(line for line in lines if line.startswith("{"))
    return {}


def reached(store: "Store", stream: "Stream") -> dict[TableName, str]:
    """Return the content of each table that a stream has read up to; empty where it is not through with it."""
    read = read_before(store, stream)
    return {table: "" if append_log.unread(store, one, read) else one.content for table, one in stream.tapes.items()}
