"""Make sure that a version which a run wrote descends from its base by snapshots of that run only.

A straggler of an earlier run, or another engine, may have written into the slot. Reads metadata files; never writes.
"""

from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.iceberg.table_metadata import load

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store

RUN = "runnel.run"
"""The property of a snapshot's summary that says which run wrote it."""


def check_descent(store: "Store", base: str | None, written: str, run: str) -> None:
    """Raise PUBLISH_FOREIGN_WRITE where the rows of `written` may be the work of another than `run`.

    Every snapshot between the base's current one and the written one must be marked with the run. One that starts
    anew, without a parent, replaces the base whole.
    """
    if written == base:
        return
    metadata = load(store, written)
    start = load(store, base).current_snapshot_id if base is not None else None
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    at = metadata.current_snapshot_id
    if at is None and start is not None:
        raise _foreign(metadata.location, "its rows are gone without a snapshot that says who removed them")
    while at is not None and at != start:
        snapshot = known.get(at)
        if snapshot is None:
            if base is None:
                return  # too many snapshots for all to be listed, and those that are listed are the run's
            raise _foreign(metadata.location, "it does not descend from the version that the run started from")
        if _writer(snapshot) != run:
            raise _foreign(metadata.location, f"snapshot {at} was written by {_writer(snapshot) or 'another engine'}")
        at = snapshot.parent_snapshot_id


def _writer(snapshot: "Snapshot") -> str | None:
    return snapshot.summary.additional_properties.get(RUN) if snapshot.summary else None


def _foreign(location: str, why: str) -> RunnelError:
    return RunnelError(
        "PUBLISH_FOREIGN_WRITE",
        f"the table in {location} was changed by another while the run wrote it: {why}",
        fix="run it again; nothing was published",
    )
