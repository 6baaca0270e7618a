"""Tapes: the files that came to a table, one after another, as a private table that a stream reads.

Spark reads a tape as it reads any table that only grows. Upstream the table may be compacted, trimmed and reverted: its
tape is not. Files are named, never copied, and gc keeps what a tape names. What a stream has read is taken off again,
so that a tape stays short.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.errors import Broken, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.diff.compaction_delta import change
from runnel.lake.diff.file_delta import Delta
from runnel.lake.history.commits import Version
from runnel.lake.iceberg.manifests import Entry, entries
from runnel.lake.iceberg.partial_tables import side
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import KEPT_SNAPSHOTS, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableUpdate
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store
    from runnel.names import TableName

TAPE_LAYER = "tape"  # of a slot: where its tapes are
AHEAD = KEPT_SNAPSHOTS - 3  # how many snapshots a tape may have that are not read yet
_AT_ONCE = 200
LONG = 200  # files that were read; then they are taken off


class NotOnlyMore(RunnelError):
    """Rows of a table went or changed, so that what a stream made of them can't be mended by reading on."""

    def __init__(self, table: "TableName", why: str, fix: str) -> None:
        super().__init__("STREAM_ROWS_WENT", f"{why} of `{table}`, which is read as a stream", fix=fix)


@dataclass(frozen=True)
class Tape:
    """A tape at one moment: where it is, and which version of its table it reaches up to."""

    location: str
    reached: str
    content: str


def name_in_slot(table: "TableName") -> tuple[str, str]:
    """Return the layer and the name that the tape of a table has in a slot.

    >>> from runnel.names import TableName
    >>> name_in_slot(TableName.parse("ods.clicks"))
    ('tape', 'ods__clicks')
    """
    return TAPE_LAYER, f"{table.layer}__{table.name}"


def begin(store: "Store", table: "TableName", location: str, content: str) -> Tape:
    """Stage a tape with all files of a version, added to nothing: a stream reads only what a snapshot adds."""
    found = list(entries(store, load(store, location)))
    if any(not entry.is_data for entry in found):
        fix = f"let their files be written without them: runnel compact {table}"
        raise NotOnlyMore(table, "rows are marked as deleted in files", fix)
    empty = side(store, location, [])
    return Tape(stage(store, empty, Edit(taken=found)) if found else empty, location, content)


def wind(store: "Store", table: "TableName", tape: Tape, location: str, content: str) -> Tape:
    """Stage a tape that reaches up to a newer version; the same where no file came.

    Raises NotOnlyMore where the newer version lacks rows that the older one has.
    """
    if location == tape.reached:
        return tape
    if content == tape.content:
        return Tape(tape.location, location, content)
    found = change(store, table, tape.reached, location)
    if not _is_only_more(found):
        found = _step_by_step(store, table, tape, Version(location, content)) or found
    if not _is_only_more(found):
        fix = "start the stream anew with `runnel stream reset TASK`: it reads all rows that are there now"
        raise NotOnlyMore(table, "rows went or changed in files", fix)
    if not found.added:
        return Tape(tape.location, location, content)
    updates = grown(store, tape.location, location)
    return Tape(stage(store, tape.location, Edit(taken=found.added, updates=updates)), location, content)


def unread(store: "Store", tape: Tape, read: "Mapping[int, int]") -> int:
    """Return how many snapshots of a tape are still to be read; `read` are those that were last, of whichever tape."""
    listed = load(store, tape.location).snapshots
    last = max((place for place, one in enumerate(listed) if one.snapshot_id in read), default=-1)
    return sum(_files(one) > read.get(one.snapshot_id, 0) for one in listed[max(last, 0) :])


def shorten(store: "Store", tape: Tape, read: "Mapping[int, int]") -> Tape:
    """Stage a tape without the files before the snapshots that were read, where they are many."""
    metadata = load(store, tape.location)
    sequences = [one.sequence_number or 0 for one in metadata.snapshots if one.snapshot_id in read]
    gone = [entry for entry in entries(store, metadata) if entry.file_sequence < max(sequences, default=0)]
    if len(gone) <= LONG:
        return tape
    return Tape(stage(store, tape.location, Edit(removed=gone)), tape.reached, tape.content)


def grown(store: "Store", location: str, newer: str) -> "tuple[TableUpdate, ...]":
    """Return what makes the columns of a version those of a newer one of the same table."""
    from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate

    here, there = load(store, location), load(store, newer)
    if here.schema().as_struct() == there.schema().as_struct():
        return ()
    new = there.schema().model_copy(update={"schema_id": max(one.schema_id for one in here.schemas) + 1})
    return (AddSchemaUpdate(schema_=new), SetCurrentSchemaUpdate(schema_id=-1))


def _step_by_step(store: "Store", table: "TableName", tape: Tape, until: Version) -> Delta | None:
    """Return the files that came with each commit since a tape was wound; None where some step can't be told.

    A compaction may have put files together of which the tape has only some: then the others are taken as they came.
    """
    steps = store.db.read(lambda connection: _steps(connection, table, tape, until))
    came: dict[str, Entry] = {}
    try:
        for before, after in steps:
            if after.content == before.content:
                continue
            found = change(store, table, before.location, after.location)
            if not _is_only_more(found):
                return None
            came |= {entry.path: entry for entry in found.added}
    except Broken:
        return None  # retention took a version between
    return Delta(tuple(came.values()), ()) if steps else None


def _steps(connection: "Connection", table: "TableName", tape: Tape, until: Version) -> list[tuple[Version, Version]]:
    """Return every change of a table since a tape was wound, oldest first; none where they don't lead back to it."""
    columns = schema.changes.c
    newest_first = (
        sa.select(columns.before, columns.after, columns.content)
        .where(columns.table_name == str(table))
        .order_by(columns.seq.desc())
    )
    found, at = list[tuple[Version, Version]](), until
    with connection.execution_options(yield_per=_AT_ONCE).execute(newest_first) as rows:
        for row in rows:
            if found and row.after == found[-1][0].location:
                found[-1] = (replace(found[-1][0], content=row.content), found[-1][1])
                at = found[-1][0]
            if row.after != at.location:
                continue
            if row.before is None:
                return []
            found.append((Version(row.before, tape.content), at))
            if row.before == tape.reached:
                return found[::-1]
    return []


def _is_only_more(found: Delta) -> bool:
    return not found.removed and all(entry.is_data for entry in found.added)


def _files(snapshot: "Snapshot") -> int:
    """Return how many files there are to read in a snapshot."""
    told = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return int(told.get("added-data-files", 0))
