"""Sweep: list unneeded files as candidates, and delete those that a later pass still finds unneeded.

A candidate may be deleted at any time: a writer that needs its contents makes a copy. A file that is no candidate
exists until every open write has ended. So a candidate is deleted only if it was listed before each open write began.
Files outside the warehouse are never touched.
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
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.flow_state.streams import list_checkpoint_folders
from runnel.lake.iceberg.file_io import StoredFile, list_files, local_path
from runnel.lake.leases.pins import LEASE_SECONDS
from runnel.lake.upkeep.gc.mark import MarkedFiles, normalize_path
from runnel.lake.upkeep.gc.retained_commits import read_open_writes
from runnel.lake.warehouse_owner import confirm_owner, is_catalog_file, owner_file_location

if TYPE_CHECKING:
    from runnel.lake.store import Store

T = TypeVar("T")
BATCH = 200
LeaseCheck = Callable[[Connection], None]


@dataclass(frozen=True)
class Candidate:
    """A file that was found to be unneeded."""

    path: str
    bytes: int
    found_at: str


def make_lease_check(pin: str) -> LeaseCheck:
    """Return a function that raises, within a transaction, if this gc has lost its lease."""

    def check_lease(connection: Connection) -> None:
        lock_lake(connection)
        if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == pin)).first() is None:
            what = "this gc was paused for so long that its lease expired; the files that it has not deleted yet remain"
            raise RunnelError("GC_LEASE_LOST", what, fix="run it again")

    return check_lease


def read_candidates(connection: Connection) -> list[Candidate]:
    """Return every candidate."""
    columns = schema.garbage.c
    rows = connection.execute(sa.select(columns.path, columns.bytes, columns.found_at))
    return [Candidate(row.path, row.bytes, row.found_at) for row in rows]


def is_deletable(candidate: Candidate, limit: str, open_writes: Sequence[str]) -> bool:
    """Return whether an unneeded candidate may be deleted: its grace period is over, and no open write is older."""
    return candidate.found_at <= limit and all(candidate.found_at < started for started in open_writes)


def forget_candidates(store: "Store", paths: Iterable[str], check_lease: LeaseCheck) -> int:
    """Remove files from the list of candidates and return how many."""
    count = 0
    for batch in _split_batches(paths):

        def work(connection: Connection, batch: Sequence[str] = batch) -> None:
            check_lease(connection)
            connection.execute(schema.garbage.delete().where(schema.garbage.c.path.in_(batch)))

        store.db.write(work)
        count += len(batch)
    return count


def delete_candidates(store: "Store", to_delete: Iterable[Candidate], check_lease: LeaseCheck) -> Iterator[Candidate]:
    """Delete files, in small batches, and yield each; a crash leaves at worst candidates without a file."""
    for batch in _split_batches(to_delete):
        confirm_owner(store)
        store.db.write(check_lease)
        started = time.time()
        failpoints.reach(failpoints.GC_BEFORE_DELETE)
        for candidate in batch:
            if time.time() - started > LEASE_SECONDS / 2:  # the lease was checked too long ago
                store.db.write(check_lease)
                started = time.time()
            _delete_file(store, candidate.path)
            failpoints.reach(failpoints.GC_DELETED)
        failpoints.reach(failpoints.GC_BATCH)
        forget_candidates(store, [candidate.path for candidate in batch], check_lease)
        yield from batch


def _delete_file(store: "Store", path: str) -> None:
    try:
        store.io.delete(path)
    except FileNotFoundError:
        pass  # an earlier gc crashed between deleting and unlisting it
    except OSError as error:
        what = f"{path} can't be deleted: {error.strerror or error}"
        raise RunnelError("GC_CANT_DELETE", what, fix="check who owns the warehouse, then run it again") from error


def find_unneeded(store: "Store", mark: MarkedFiles, older_than: float) -> Iterator[StoredFile]:
    """Yield the warehouse's unneeded files that were written before `older_than`, in seconds since the epoch."""
    checkpoint_paths = list_checkpoint_folders(store.db, normalize_path(store.warehouse))
    for stored in list_files(store.io, store.warehouse):
        path = normalize_path(stored.path)
        is_old = stored.modified_at <= older_than
        if (
            is_old
            and not mark.is_needed(path)
            and not is_lake_file(store, path)
            and not path.startswith(checkpoint_paths)
        ):
            yield StoredFile(path, stored.bytes, stored.modified_at)


def is_lake_file(store: "Store", path: str) -> bool:
    """Return whether a file belongs to the lake itself: the file that names its owner, or the catalog database."""
    return path == normalize_path(owner_file_location(store.warehouse)) or is_catalog_file(store, path)


def record_candidates(
    store: "Store", files: Iterable[StoredFile], now: str | None, check_lease: LeaseCheck
) -> Iterator[StoredFile]:
    """List files as candidates, and yield each."""
    for batch in _split_batches(files):

        def work(connection: Connection, batch: Sequence[StoredFile] = batch) -> None:
            check_lease(connection)
            # Not before the start of an open write, even if the clock is wrong: files that it uses would be deleted.
            found_at = max([now or store.db.now(connection), *read_open_writes(connection)])
            connection.execute(schema.garbage.delete().where(schema.garbage.c.path.in_([s.path for s in batch])))
            rows = [{"path": stored.path, "bytes": stored.bytes, "found_at": found_at} for stored in batch]
            connection.execute(schema.garbage.insert(), rows)

        store.db.write(work)
        failpoints.reach(failpoints.GC_CANDIDATES)
        yield from batch


def remove_empty_folders(store: "Store", older_than: float) -> int:
    """Remove the warehouse's folders that have been empty since before `older_than`, and return how many."""
    top = local_path(store.warehouse)
    count = 0
    for folder, _, _ in os.walk(top, topdown=False) if top is not None else ():
        path = Path(folder)
        if path != top and _remove_if_old(path, older_than):
            count += 1
            failpoints.reach(failpoints.GC_FOLDERS)
    return count


def _remove_if_old(folder: Path, older_than: float) -> bool:
    """Remove a folder and return whether it was removed; one that is not empty, or was just created, stays."""
    with suppress(OSError):
        if folder.stat().st_mtime <= older_than:
            folder.rmdir()
            return True
    return False


def _split_batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
