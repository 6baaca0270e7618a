"""Erase rows from a table through all retained versions: branches, tags, commits and slots.

Data files that hold such rows are written anew without them, then every version that lists one of them, and one
transaction puts the new versions in the place of the old ones. History keeps its commits, and each branch gets one
that says what was done. The old files are deleted at once, unless a write is open that may rely on them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake import failpoints, manifests, tables
from runnel.lake.pins import pinned
from runnel.lake.upkeep import leases
from runnel.lake.upkeep.condition import Condition, parsed
from runnel.lake.upkeep.erasure import Erasure
from runnel.lake.upkeep.log_rows import refuse_rows_in_log
from runnel.lake.upkeep.swap import Done, finish, publish, remove_blobs
from runnel.lake.upkeep.trail import Appeared

if TYPE_CHECKING:
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
class Erased:
    """What an erasure did, or would do. `rows` and `files` are those of all versions, each counted once."""

    table: str
    columns: tuple[str, ...]
    rows: int
    files: int
    versions: int
    branches: tuple[ErasedBranch, ...] = ()
    deleted: int = 0  # files that are gone from the warehouse: old data files and metadata
    blobs: int = 0
    left: int = 0  # files that gc deletes once the writes that are open now have ended
    downstream: tuple[str, ...] = ()
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
        leases.end(store.db, store.db.read(store.db.now))  # a writer that died does not count as open
        finish(store)
    with pinned(store.db, "write") as pin:
        refuse_rows_in_log(store, table, condition)
        erasure = Erasure(store, table, condition, progress)
        for _ in range(ATTEMPTS):
            erasure.look()
            if dry_run or erasure.is_empty:
                return _told(erasure, condition, dry_run=dry_run)
            erasure.stage()
            failpoints.reach(failpoints.ERASE_STAGED)
            try:
                done = publish(store, erasure, pin)
            except Appeared:
                continue
            return _told(erasure, condition, done=_clean(store, erasure, done))
    raise RunnelError(
        "ERASE_BUSY", f"`{table}` is written so often that its versions could not be caught up with", fix="try again"
    )


def _clean(store: "Store", erasure: Erasure, done: Done) -> Done:
    failpoints.reach(failpoints.ERASE_AFTER_COMMIT)
    tables.forget()
    manifests.forget()
    deleted = finish(store)
    blobs = 0 if done.waits else remove_blobs(store, erasure.blobs)
    return Done(done.commits, done.waits, deleted, blobs, len(erasure.doomed()) + len(erasure.blobs))


def _told(erasure: Erasure, condition: Condition, *, dry_run: bool = False, done: Done | None = None) -> Erased:
    commits = done.commits if done else {}
    rows = erasure.rows_by_branch
    return Erased(
        str(erasure.table),
        condition.columns,
        rows=erasure.rows,
        files=erasure.files,
        versions=len(erasure.affected),
        branches=tuple(
            ErasedBranch(branch, rows.get(branch, 0), commits.get(branch)) for branch in sorted({*rows, *commits})
        ),
        deleted=done.deleted if done else 0,
        blobs=done.blobs if done else len(erasure.blobs),
        left=max(done.listed - done.deleted, 0) if done and done.waits else 0,
        dry_run=dry_run,
    )
