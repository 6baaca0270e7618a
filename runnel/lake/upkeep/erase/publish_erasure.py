"""Publish an erasure: one transaction that swaps versions, records commits and lists the old files for deletion.

Then delete them. A crash in between leaves them listed; the next erasure, or gc, goes on.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.lock import lock
from runnel.lake.files import blobs as blob_files
from runnel.lake.history.adopt import adopted, record
from runnel.lake.history.branches import Branch, branch, branches, head_state
from runnel.lake.history.commits import Change, find
from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.upkeep.erase.version_references import Appeared, forget_results, rename_files, swap, trail
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.mark import key
from runnel.lake.upkeep.gc.retained_commits import open_writes, registered, unexpired, uses
from runnel.lake.warehouse_owner import confirm_owner
from runnel.names import new_commit_id

if TYPE_CHECKING:
    from runnel.lake.store import Store

ERASED_AT = "1970-01-01T00:00:00.000000Z"
"""When files of an erasure were found to be garbage: long ago, so no grace applies; also what tells them apart."""
_ROWS_AT_ONCE = 200


@dataclass(frozen=True)
class Done:
    """What was published: commits by branch. `waits` says that the old files stay until open writes have ended."""

    commits: Mapping[str, str]
    waits: bool
    deleted: int = 0
    blobs: int = 0
    listed: int = 0


def publish(store: "Store", erasure: Erasure, pin: str) -> Done:
    """Put the new versions in the place of the old ones, or raise Appeared, having changed nothing."""
    sizes = {path: _bytes(store, path) for path in erasure.doomed()}
    blobs = {
        key(blob_files.location(store, blob)): _bytes(store, blob_files.location(store, blob)) for blob in erasure.blobs
    }
    ids = {known.name: new_commit_id() for known in store.db.read(branches)}

    def work(connection: Connection) -> Done:
        lock(connection)
        if made := {name: known for name, known in ids.items() if find(connection, known)}:
            return Done(made, waits=True)  # an earlier attempt took effect, and its acknowledgement was lost
        _hold(connection, pin)
        found = trail(connection, erasure.names)
        known = {known.name: known for known in branches(connection)}
        if not found.locations <= erasure.treated or not known.keys() <= ids.keys():
            raise Appeared
        lines = swap(connection, found, erasure.swap())
        forget_results(connection, found, erasure.unchanged)
        rename_files(connection, erasure.names, erasure.renamed())
        heads = {head.branch for head in found.heads}
        commits = {}
        for name, target in known.items():
            if name in heads or target.line in lines:
                commits[name] = _record(store, connection, target, ids[name], erasure)
        waits = _has_open_writes(connection, pin)
        now = max([store.db.now(connection), *open_writes(connection)])  # not before them, whatever the clock does
        _list(connection, sizes, now if waits else ERASED_AT)
        _list(connection, blobs, now)
        failpoints.reach(failpoints.ERASE_SWAPPED)
        return Done(commits, waits)

    return store.db.write(work)


def finish(store: "Store") -> int:
    """Delete the files that erasures have listed and return how many."""
    columns = schema.garbage.c
    query = sa.select(columns.path).where(columns.found_at == ERASED_AT).order_by(columns.path)
    paths = store.db.read(lambda connection: list(connection.execute(query).scalars()))
    return _delete(store, paths)


def remove_blobs(store: "Store", names: Iterable[str]) -> int:
    """Delete the blobs that no row of any version refers to any more, and return how many.

    They are listed as garbage already, so a write that wants one of them makes a copy of its own.
    """
    wanted = {key(blob_files.location(store, name)) for name in names}
    if not wanted:
        return 0
    seen: set[str] = set()
    needed: set[str] = set()
    for location in store.db.read(_all_versions):
        metadata = load(store, location)
        if is_file_table(metadata):
            needed |= {key(found) for found in blob_files.referenced(store, metadata, seen)}
    _unlist(store, sorted(wanted & needed))
    return _delete(store, sorted(wanted - needed))


def _all_versions(connection: Connection) -> list[str]:
    kept = {use.location for use in uses(connection, unexpired(connection))}
    kept |= {version.location for version in retained_results.kept(connection)}
    return sorted(kept | {row.location for row in registered(connection) if row.is_table and row.is_ours})


def _record(store: "Store", connection: Connection, target: Branch, commit_id: str, erasure: Erasure) -> str:
    """Record on a branch what was done. The condition may name a person, so only its hash is kept."""
    adopted(store.db, connection, target)
    rows = erasure.rows_by_branch.get(target.name, 0)
    detail = {
        "erase": {
            "condition_sha256": erasure.condition.sha256,
            "columns": list(erasure.condition.columns),
            "rows": rows,
            "copies": erasure.copies,
            "files": erasure.files,
            "versions": len(erasure.affected),
        }
    }
    new = set(erasure.swap().locations.values())
    state = head_state(connection, target.name)
    changes = tuple(
        Change(table, version.location, version.location, version.content, detail)
        for table, version in sorted(state.items())
        if str(table) in erasure.names and version.location in new
    )
    values = {"kind": "erase", "author": store.author, "message": f"erase {rows} rows of {erasure.table}"}
    return record(store.db, connection, branch(connection, target.name), commit_id, values, changes).id


def _hold(connection: Connection, pin: str) -> None:
    if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == pin)).first() is None:
        what = "this erasure was stopped for so long that its lease ended; nothing was erased"
        raise RunnelError("ERASE_LEASE_LOST", what, fix="run it again")


def _has_open_writes(connection: Connection, pin: str) -> bool:
    pins, slots = schema.pins.c, schema.slots.c
    other = sa.select(pins.id).where(pins.id != pin, pins.kind.not_in(["read", "gc"]))
    return any(connection.execute(query).first() for query in (other, sa.select(slots.name)))


def _list(connection: Connection, sizes: Mapping[str, int], found_at: str) -> None:
    garbage = schema.garbage
    paths = list(sizes)
    for start in range(0, len(paths), _ROWS_AT_ONCE):
        part = paths[start : start + _ROWS_AT_ONCE]
        connection.execute(garbage.delete().where(garbage.c.path.in_(part)))
        rows: list[dict[str, Any]] = [{"path": path, "bytes": sizes[path], "found_at": found_at} for path in part]
        connection.execute(garbage.insert(), rows)


def _delete(store: "Store", paths: list[str]) -> int:
    for start in range(0, len(paths), _ROWS_AT_ONCE):
        part = paths[start : start + _ROWS_AT_ONCE]
        confirm_owner(store)
        for path in part:
            failpoints.reach(failpoints.ERASE_DELETE)
            try:
                with suppress(FileNotFoundError):  # a crash came between its deletion and this list
                    store.io.delete(path)
            except OSError as error:
                what = (
                    f"{plain(path)} holds erased rows or tells of them, but can't be deleted: {error.strerror or error}"
                )
                raise RunnelError(
                    "ERASE_CANT_DELETE", what, fix="check who owns the warehouse, then erase again"
                ) from error
        _unlist(store, part)
    return len(paths)


def _unlist(store: "Store", paths: list[str]) -> None:
    garbage = schema.garbage

    def work(connection: Connection) -> None:
        for start in range(0, len(paths), _ROWS_AT_ONCE):
            part = paths[start : start + _ROWS_AT_ONCE]
            connection.execute(garbage.delete().where(garbage.c.path.in_(part)))

    store.db.write(work)


def _bytes(store: "Store", path: str) -> int:
    try:
        return len(store.io.new_input(path))
    except FileNotFoundError:
        return 0
