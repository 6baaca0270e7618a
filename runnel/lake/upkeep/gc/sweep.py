"""Sweep: list unneeded files as candidates, and delete those that a later look still finds unneeded.

A file in the list of candidates may vanish at any time: a writer that would like to rely on one makes a copy. A file
that is not in it outlasts every write that is open. So a candidate is deleted only if it was listed before each write
that is open now began. Files outside the warehouse are never touched.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.lock import lock
from runnel.lake.flow_state.streams import checkpoints
from runnel.lake.iceberg.file_io import Stored, listing, local_path
from runnel.lake.leases.pins import LEASE_SECONDS
from runnel.lake.upkeep.gc.mark import Mark, key
from runnel.lake.upkeep.gc.retained_commits import open_writes
from runnel.lake.warehouse_owner import confirm_owner, is_catalog, owner_file

if TYPE_CHECKING:
    from runnel.lake.store import Store

T = TypeVar("T")
BATCH = 200
Hold = Callable[[Connection], None]


@dataclass(frozen=True)
class Candidate:
    """A file that was found unneeded."""

    path: str
    bytes: int
    found_at: str


def holding(pin: str) -> Hold:
    """Return what makes sure, within a transaction, that this gc still has its lease."""

    def hold(connection: Connection) -> None:
        lock(connection)
        if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == pin)).first() is None:
            what = "this gc was stopped for so long that its lease ended; what it has not deleted is still there"
            raise RunnelError("GC_LEASE_LOST", what, fix="run it again")

    return hold


def candidates(connection: Connection) -> list[Candidate]:
    """Return every candidate."""
    columns = schema.garbage.c
    rows = connection.execute(sa.select(columns.path, columns.bytes, columns.found_at))
    return [Candidate(row.path, row.bytes, row.found_at) for row in rows]


def is_ripe(candidate: Candidate, limit: str, open_writes: Sequence[str]) -> bool:
    """Tell whether a candidate that is still unneeded may be deleted: its grace is over, and no open write is older."""
    return candidate.found_at <= limit and all(candidate.found_at < started for started in open_writes)


def forget(store: "Store", paths: Iterable[str], hold: Hold) -> int:
    """Take files off the list of candidates and return how many."""
    count = 0
    for batch in _batches(paths):

        def work(connection: Connection, batch: Sequence[str] = batch) -> None:
            hold(connection)
            connection.execute(schema.garbage.delete().where(schema.garbage.c.path.in_(batch)))

        store.db.write(work)
        count += len(batch)
    return count


def delete(store: "Store", doomed: Iterable[Candidate], hold: Hold) -> Iterator[Candidate]:
    """Delete files, in small batches, and yield each; a crash leaves at most candidates without a file."""
    for batch in _batches(doomed):
        confirm_owner(store)
        store.db.write(hold)
        started = time.time()
        failpoints.reach(failpoints.GC_BEFORE_DELETE)
        for candidate in batch:
            if time.time() - started > LEASE_SECONDS / 2:  # the lease was checked too long ago
                store.db.write(hold)
                started = time.time()
            _unlink(store, candidate.path)
            failpoints.reach(failpoints.GC_DELETED)
        failpoints.reach(failpoints.GC_BATCH)
        forget(store, [candidate.path for candidate in batch], hold)
        yield from batch


def _unlink(store: "Store", path: str) -> None:
    try:
        store.io.delete(path)
    except FileNotFoundError:
        pass  # an earlier gc crashed between deleting it and taking it off the list
    except OSError as error:
        what = f"{path} can't be deleted: {error.strerror or error}"
        raise RunnelError("GC_CANT_DELETE", what, fix="check who owns the warehouse, then run it again") from error


def unneeded(store: "Store", mark: Mark, older_than: float) -> Iterator[Stored]:
    """Yield the warehouse's files that are not needed and were written before a moment, in seconds since the epoch."""
    kept = checkpoints(store.db, key(store.warehouse))
    for stored in listing(store.io, store.warehouse):
        path = key(stored.path)
        is_old = stored.modified_at <= older_than
        if is_old and not mark.needs(path) and not is_own(store, path) and not path.startswith(kept):
            yield Stored(path, stored.bytes, stored.modified_at)


def is_own(store: "Store", path: str) -> bool:
    """Tell whether a file belongs to the lake itself: the one that names its owner, and the catalog database."""
    return path == key(owner_file(store.warehouse)) or is_catalog(store, path)


def record(store: "Store", found: Iterable[Stored], now: str | None, hold: Hold) -> Iterator[Stored]:
    """List files as candidates, and yield each."""
    for batch in _batches(found):

        def work(connection: Connection, batch: Sequence[Stored] = batch) -> None:
            hold(connection)
            # Not before the start of an open write, whatever the clock does: what it uses would be swept.
            at = max([now or store.db.now(connection), *open_writes(connection)])
            connection.execute(schema.garbage.delete().where(schema.garbage.c.path.in_([s.path for s in batch])))
            rows = [{"path": stored.path, "bytes": stored.bytes, "found_at": at} for stored in batch]
            connection.execute(schema.garbage.insert(), rows)

        store.db.write(work)
        failpoints.reach(failpoints.GC_CANDIDATES)
        yield from batch


def remove_empty_folders(store: "Store", older_than: float) -> int:
    """Remove the warehouse's folders that have been empty since before a moment, and return how many."""
    top = local_path(store.warehouse)
    count = 0
    for folder, _, _ in os.walk(top, topdown=False) if top is not None else ():
        path = Path(folder)
        if path != top and _removed(path, older_than):
            count += 1
            failpoints.reach(failpoints.GC_FOLDERS)
    return count


def _removed(folder: Path, older_than: float) -> bool:
    """Remove a folder; one that is not empty, or that a writer has just made, stays."""
    with suppress(OSError):
        if folder.stat().st_mtime <= older_than:
            folder.rmdir()
            return True
    return False


def _batches(found: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in found:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
