"""Publish an erasure: one transaction swaps versions, records commits and lists the old files for deletion.

Then the files are deleted. A crash in between leaves them listed; the next erasure, or gc, deletes them.
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
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.files import blobs as blob_files
from runnel.lake.history.adopt import adopt_in_transaction, record_commit
from runnel.lake.history.branches import Branch, get_branch, list_branches, read_head_state
from runnel.lake.history.commits import CommitChange, find_commit
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.upkeep.erase.version_references import (
    NewVersionAppeared,
    forget_results,
    read_references,
    rename_files,
    swap_versions,
)
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.mark import normalize_path
from runnel.lake.upkeep.gc.retained_commits import (
    iter_version_uses,
    read_catalog_rows,
    read_open_writes,
    read_unexpired_commits,
)
from runnel.lake.warehouse_owner import confirm_owner
from runnel.names import new_commit_id

if TYPE_CHECKING:
    from runnel.lake.store import Store

ERASED_AT = "1970-01-01T00:00:00.000000Z"
"""The `found_at` of files listed by an erasure: so old that no grace period applies. It also identifies them."""
_ROWS_AT_ONCE = 200


@dataclass(frozen=True)
class PublishedErasure:
    """A published erasure: commits by branch. With `waits_for_writes`, old files stay until open writes have ended."""

    commits: Mapping[str, str]
    waits_for_writes: bool
    deleted: int = 0
    blobs: int = 0
    listed_count: int = 0


def publish_erasure(store: "Store", erasure: Erasure, pin: str) -> PublishedErasure:
    """Replace the old versions by the new ones, or raise NewVersionAppeared, having changed nothing."""
    sizes = {path: _read_size(store, path) for path in erasure.list_files_to_delete()}
    blobs = {
        normalize_path(blob_files.blob_location(store, blob)): _read_size(store, blob_files.blob_location(store, blob))
        for blob in erasure.blobs
    }
    ids = {target.name: new_commit_id() for target in store.db.read(list_branches)}

    def work(connection: Connection) -> PublishedErasure:
        lock_lake(connection)
        if published_ids := {name: current for name, current in ids.items() if find_commit(connection, current)}:
            return PublishedErasure(
                published_ids, waits_for_writes=True
            )  # an earlier attempt was committed, and its acknowledgement was lost
        _check_pin(connection, pin)
        references = read_references(connection, erasure.names)
        current = {current.name: current for current in list_branches(connection)}
        if not references.locations <= erasure.examined_locations or not current.keys() <= ids.keys():
            raise NewVersionAppeared
        changed_lines = swap_versions(connection, references, erasure.build_swap())
        forget_results(connection, references, erasure.unchanged_locations)
        rename_files(connection, erasure.names, erasure.map_renamed_files())
        heads = {head.branch for head in references.heads}
        commits = {}
        for name, target in current.items():
            if name in heads or target.line in changed_lines:
                commits[name] = _record_commit(store, connection, target, ids[name], erasure)
        waits_for_writes = _has_open_writes(connection, pin)
        now = max([store.db.now(connection), *read_open_writes(connection)])  # never before an open write
        _list_garbage(connection, sizes, now if waits_for_writes else ERASED_AT)
        _list_garbage(connection, blobs, now)
        failpoints.reach(failpoints.ERASE_SWAPPED)
        return PublishedErasure(commits, waits_for_writes)

    return store.db.write(work)


def delete_listed_files(store: "Store") -> int:
    """Delete the files that erasures have listed and return how many."""
    columns = schema.garbage.c
    query = sa.select(columns.path).where(columns.found_at == ERASED_AT).order_by(columns.path)
    paths = store.db.read(lambda connection: list(connection.execute(query).scalars()))
    return _delete_files(store, paths)


def remove_blobs(store: "Store", names: Iterable[str]) -> int:
    """Delete the blobs that no row of any version refers to any more, and return how many.

    They are already listed as garbage, so a write that needs one of them makes its own copy.
    """
    blob_paths = {normalize_path(blob_files.blob_location(store, name)) for name in names}
    if not blob_paths:
        return 0
    seen: set[str] = set()
    needed: set[str] = set()
    for location in store.db.read(_list_all_versions):
        metadata = load_metadata(store, location)
        if is_file_table(metadata):
            needed |= {normalize_path(path) for path in blob_files.find_referenced(store, metadata, seen)}
    _unlist_garbage(store, sorted(blob_paths & needed))
    return _delete_files(store, sorted(blob_paths - needed))


def _list_all_versions(connection: Connection) -> list[str]:
    locations = {use.location for use in iter_version_uses(connection, read_unexpired_commits(connection))}
    locations |= {version.location for version in retained_results.iter_versions(connection)}
    return sorted(locations | {row.location for row in read_catalog_rows(connection) if row.is_table and row.is_ours})


def _record_commit(store: "Store", connection: Connection, target: Branch, commit_id: str, erasure: Erasure) -> str:
    """Record the erasure as a commit on a branch. The condition may name a person, so only its hash is stored."""
    adopt_in_transaction(store.db, connection, target)
    rows = erasure.rows_by_branch.get(target.name, 0)
    detail = {
        "erase": {
            "condition_sha256": erasure.condition.sha256,
            "columns": list(erasure.condition.columns),
            "rows": rows,
            "copies": erasure.copies,
            "files": erasure.files,
            "versions": len(erasure.affected_locations),
        }
    }
    new_locations = set(erasure.build_swap().locations.values())
    state = read_head_state(connection, target.name)
    changes = tuple(
        CommitChange(table, version.location, version.location, version.content, detail)
        for table, version in sorted(state.items())
        if str(table) in erasure.names and version.location in new_locations
    )
    values = {"kind": "erase", "author": store.author, "message": f"erase {rows} rows of {erasure.table}"}
    branch = get_branch(connection, target.name)
    return record_commit(store.db, connection, branch, commit_id=commit_id, values=values, changes=changes).id


def _check_pin(connection: Connection, pin: str) -> None:
    if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == pin)).first() is None:
        what = "this erasure was paused for so long that its lease expired; nothing was erased"
        raise RunnelError("ERASE_LEASE_LOST", what, fix="run it again")


def _has_open_writes(connection: Connection, pin: str) -> bool:
    pins, slots = schema.pins.c, schema.slots.c
    other_pins = sa.select(pins.id).where(pins.id != pin, pins.kind.not_in(["read", "gc"]))
    return any(connection.execute(query).first() for query in (other_pins, sa.select(slots.name)))


def _list_garbage(connection: Connection, sizes: Mapping[str, int], found_at: str) -> None:
    garbage = schema.garbage
    paths = list(sizes)
    for start in range(0, len(paths), _ROWS_AT_ONCE):
        batch = paths[start : start + _ROWS_AT_ONCE]
        connection.execute(garbage.delete().where(garbage.c.path.in_(batch)))
        rows: list[dict[str, Any]] = [{"path": path, "bytes": sizes[path], "found_at": found_at} for path in batch]
        connection.execute(garbage.insert(), rows)


def _delete_files(store: "Store", paths: list[str]) -> int:
    for start in range(0, len(paths), _ROWS_AT_ONCE):
        batch = paths[start : start + _ROWS_AT_ONCE]
        confirm_owner(store)
        for path in batch:
            failpoints.reach(failpoints.ERASE_DELETE)
            try:
                with suppress(FileNotFoundError):  # a crash came after it was deleted and before it was unlisted
                    store.io.delete(path)
            except OSError as error:
                what = (
                    f"{normalize_location(path)} holds erased rows or their metadata, "
                    f"but can't be deleted: {error.strerror or error}"
                )
                raise RunnelError(
                    "ERASE_CANT_DELETE", what, fix="check who owns the warehouse, then erase again"
                ) from error
        _unlist_garbage(store, batch)
    return len(paths)


def _unlist_garbage(store: "Store", paths: list[str]) -> None:
    garbage = schema.garbage

    def work(connection: Connection) -> None:
        for start in range(0, len(paths), _ROWS_AT_ONCE):
            batch = paths[start : start + _ROWS_AT_ONCE]
            connection.execute(garbage.delete().where(garbage.c.path.in_(batch)))

    store.db.write(work)


def _read_size(store: "Store", path: str) -> int:
    try:
        return len(store.io.new_input(path))
    except FileNotFoundError:
        return 0
