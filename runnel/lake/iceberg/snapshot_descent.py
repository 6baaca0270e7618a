"""Check that a version which a run wrote descends from its base only through snapshots of that run.

A leftover process of an earlier run, or another engine, may have written to the slot. Reads metadata files; never
writes.
"""

from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.iceberg.table_metadata import load_metadata

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store

RUN_PROPERTY = "runnel.run"
"""The property of a snapshot's summary that says which run wrote it."""


def check_descent(store: "Store", base: str | None, written: str, run: str) -> None:
    """Raise PUBLISH_FOREIGN_WRITE if something other than `run` may have written rows of `written`.

    Every snapshot after the base's current one, up to the written one, must have the run in its summary. A snapshot
    without a parent replaces the base completely.
    """
    if written == base:
        return
    metadata = load_metadata(store, written)
    base_snapshot_id = load_metadata(store, base).current_snapshot_id if base is not None else None
    snapshots_by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot_id = metadata.current_snapshot_id
    if snapshot_id is None and base_snapshot_id is not None:
        raise _foreign_write_error(metadata.location, "its rows were removed, and no snapshot records who removed them")
    while snapshot_id is not None and snapshot_id != base_snapshot_id:
        snapshot = snapshots_by_id.get(snapshot_id)
        if snapshot is None:
            if base is None:
                return  # the oldest snapshots are not listed any more, and all that are listed are the run's
            raise _foreign_write_error(
                metadata.location, "it does not descend from the version that the run started from"
            )
        if _writing_run(snapshot) != run:
            raise _foreign_write_error(
                metadata.location, f"snapshot {snapshot_id} was written by {_writing_run(snapshot) or 'another engine'}"
            )
        snapshot_id = snapshot.parent_snapshot_id


def _writing_run(snapshot: "Snapshot") -> str | None:
    return snapshot.summary.additional_properties.get(RUN_PROPERTY) if snapshot.summary else None


def _foreign_write_error(location: str, why: str) -> RunnelError:
    return RunnelError(
        "PUBLISH_FOREIGN_WRITE",
        f"the table in {location} was changed by another writer while the run wrote to it: {why}",
        fix="run it again; nothing was published",
    )
