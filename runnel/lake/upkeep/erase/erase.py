"""Erase rows from a table through all retained versions: branches, tags, commits, slots, and the tapes of streams.

Data files that hold such rows are written anew without them, then every version that lists one of them, and one
transaction puts the new versions in the place of the old ones. History keeps its commits, and each branch gets one
that says what was done. The old files are deleted at once, unless a write is open that may rely on them.

The inbox of the table's source comes first, so that a run takes nothing in again, and its quarantine last. What was
computed from the table is named, and left as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_of
from runnel.errors import RunnelError
from runnel.lake import failpoints
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.leases import expiry
from runnel.lake.leases.pins import pinned
from runnel.lake.upkeep.erase.change_log_check import refuse_rows_in_log
from runnel.lake.upkeep.erase.condition import parsed
from runnel.lake.upkeep.erase.derived_tables import Derived, derived_tables, sinks_of
from runnel.lake.upkeep.erase.erase_inbox import erase_from_inbox
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.upkeep.erase.publish_erasure import Done, finish, publish, remove_blobs
from runnel.lake.upkeep.erase.raw_records import matching_records
from runnel.lake.upkeep.erase.version_references import Appeared
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.retained_commits import registered, unexpired, uses
from runnel.lake.warehouse_owner import confirm_owner

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store
    from runnel.names import TableName

Progress = Callable[[str, int, int | None], None]
ATTEMPTS = 20


@dataclass(frozen=True)
class ErasedBranch:
    """What an erasure did to the newest version on a branch."""

    branch: str
    rows: int
    commit: str | None = None


@dataclass(frozen=True)
class ErasedQuarantine:
    """What an erasure did to the table's quarantine; `untold` records are no JSON, so that only a person can tell."""

    table: str
    rows: int
    untold: int
    fix: str | None = None


@dataclass(frozen=True)
class Erased:
    """What an erasure did, or would do.

    `rows` are those of the newest versions of branches, one that branches share counted once; `copies` all that were in
    files, of old versions too. `downstream` was computed from the table and may still hold what came from the rows.
    """

    table: str
    columns: tuple[str, ...]
    rows: int
    copies: int
    files: int
    versions: int
    branches: tuple[ErasedBranch, ...] = ()
    deleted: int = 0  # files that are gone from the warehouse: old data files and metadata
    blobs: int = 0
    left: int = 0  # files that gc deletes once the writes that are open now have ended
    streams: tuple[str, ...] = ()  # whose tapes lost rows that they had read, or had still to read
    events: int = 0  # of the inbox of its source
    quarantine: ErasedQuarantine | None = None
    downstream: tuple[Derived, ...] = ()
    sinks: tuple[str, ...] = ()  # what they delivered of these tables is outside the lake
    dry_run: bool = False


def erase(
    store: "Store", table: "TableName", where: str, *, dry_run: bool = False, progress: Progress | None = None
) -> Erased:
    """Remove the rows that match a condition from every version of a table that is retained.

    `where` is a condition in Spark SQL over the table's columns, of a small safe kind. Raises ERASE_OUTSIDE_FILE,
    having changed nothing, where a file that was registered in place holds such rows, and ERASE_LOG where the table
    follows from a log of changes that still has them.
    """
    condition = parsed(where)
    if not dry_run:
        confirm_owner(store)
        expiry.end(store.db, store.db.read(store.db.now))  # a writer that died does not count as open
        finish(store)
    with pinned(store.db, "write") as pin:
        refuse_rows_in_log(store, table, condition)
        erasure = Erasure(store, table, condition, progress)
        erasure.look()  # raises before anything changes
        events = erase_from_inbox(store, table, condition, erasure.newest, dry_run=dry_run)
        erased = _carried_out(store, erasure, pin, dry_run=dry_run)
    quarantine = _erase_quarantine(store, erasure, dry_run=dry_run, progress=progress)
    downstream = store.db.read(lambda connection: derived_tables(connection, table))
    names = {str(table), *(found.table for found in downstream)}
    sinks = store.db.read(lambda connection: sinks_of(connection, names))
    return replace(erased, events=events, quarantine=quarantine, downstream=downstream, sinks=sinks)


def _carried_out(store: "Store", erasure: Erasure, pin: str, *, dry_run: bool) -> Erased:
    for _ in range(ATTEMPTS):
        erasure.look()
        if dry_run or erasure.is_empty:
            return _told(erasure, dry_run=dry_run)
        erasure.stage()
        failpoints.reach(failpoints.ERASE_STAGED)
        try:
            done = publish(store, erasure, pin)
        except Appeared:
            continue
        return _told(erasure, done=_clean(store, erasure, done))
    what = f"`{erasure.table}` is written so often that its versions could not be caught up with"
    raise RunnelError("ERASE_BUSY", what, fix="try again")


def _erase_quarantine(
    store: "Store", erasure: Erasure, *, dry_run: bool, progress: Progress | None
) -> ErasedQuarantine | None:
    """Erase the matching records of the table's quarantine from all versions; None where there is none."""
    table, name, rows = erasure.table, quarantine_of(erasure.table), 0
    locations = store.db.read(lambda connection: _retained(connection, str(name)))
    if not locations:
        return None
    found, untold = matching_records(store, locations, erasure.condition, erasure.newest)
    if found is not None:
        with pinned(store.db, "write") as pin:
            rows = _carried_out(store, Erasure(store, name, found, progress), pin, dry_run=dry_run).copies
    fix = f"look with runnel quarantine {table} --raw, then runnel erase {name} --where \"raw like '...'\""
    return ErasedQuarantine(str(name), rows, untold, fix if untold else None)


def _retained(connection: "Connection", table: str) -> list[str]:
    found = {use.location for use in uses(connection, unexpired(connection)) if use.table == table}
    found |= {row.location for row in registered(connection) if row.table == table and row.is_table and row.is_ours}
    found |= {kept.location for kept in retained_results.kept(connection) if kept.table == table}
    return sorted(found)


def _clean(store: "Store", erasure: Erasure, done: Done) -> Done:
    failpoints.reach(failpoints.ERASE_AFTER_COMMIT)
    table_metadata.forget()
    manifests.forget()
    deleted = finish(store)
    blobs = 0 if done.waits else remove_blobs(store, erasure.blobs)
    return Done(done.commits, done.waits, deleted, blobs, len(erasure.doomed()) + len(erasure.blobs))


def _told(erasure: Erasure, *, dry_run: bool = False, done: Done | None = None) -> Erased:
    commits = done.commits if done else {}
    rows = erasure.rows_by_branch
    return Erased(
        str(erasure.table),
        erasure.condition.columns,
        rows=erasure.rows,
        copies=erasure.copies,
        files=erasure.files,
        versions=len(erasure.affected),
        branches=tuple(
            ErasedBranch(branch, rows.get(branch, 0), commits.get(branch)) for branch in sorted({*rows, *commits})
        ),
        deleted=done.deleted if done else 0,
        blobs=done.blobs if done else len(erasure.blobs),
        left=max(done.listed - done.deleted, 0) if done and done.waits else 0,
        streams=tuple(erasure.streams),
        dry_run=dry_run,
    )
