"""Mend a lake whose folder was moved or copied: Iceberg's paths are absolute.

Every kept version is written anew for the new place, beside the old files, which nothing changes; then one
transaction points the whole history at them. Until then the lake is as it was, and can be moved back; the old files
are swept later. Data is not copied, and registered files outside the warehouse stay where they are.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Broken, Moved
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.location_columns import Place, move_locations
from runnel.lake.catalog.lock import lock
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.leases import expiry
from runnel.lake.leases.pins import pinned
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.mark import Progress
from runnel.lake.upkeep.gc.retained_commits import registered, tape_locations, unexpired, uses
from runnel.lake.upkeep.relocate.metadata_rewrite import Rewriting, Swap
from runnel.lake.warehouse_owner import check_new_place, claim

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Relocated:
    """What a relocation did: from where to where, and how many versions and files were written anew."""

    old: str
    new: str
    versions: int = 0
    files: int = 0


def relocate(store: "Store", *, adopt: bool = False, progress: Progress | None = None) -> Relocated:
    """Make a lake's metadata say that its files are at `store.warehouse`; nothing happens where it does.

    The store was opened with `moved=True`. Raises Broken, having changed nothing, where a file is not at the new
    place, and LAKE_FOREIGN where the place belongs to another lake or catalog, unless this one is to `adopt` it. A
    relocation that crashed is repeated from its beginning.
    """
    expiry.end(store.db, store.db.read(store.db.now))
    with pinned(store.db, "relocate", alone=True):
        old = store.recorded_warehouse()
        if not adopt:
            check_new_place(store)
        if old == store.warehouse:
            claim(store)
            return Relocated(old, old)
        swap = Swap(old, store.warehouse)
        versions = [location for location in store.db.read(_versions) if swap.moves(location)]
        rewriting = Rewriting(store, swap)
        tapes = frozenset(store.db.read(tape_locations))
        for done, version in enumerate(versions, 1):
            rewriting.lists(version, with_older=version in tapes)
            _tell(progress, done, 2 * len(versions))
        versions += _readable(
            rewriting, [at for at in store.db.read(_convenient) if swap.moves(at) and at not in versions]
        )
        place = _placing(swap, frozenset(versions))
        for done, version in enumerate(versions, 1):
            rewriting.metadata(version, place)
            _tell(progress, len(versions) + done, 2 * len(versions))
        failpoints.reach(failpoints.RELOCATE_WRITTEN)
        store.db.write(lambda connection: _point(connection, swap, place, frozenset(versions)))
        failpoints.reach(failpoints.RELOCATE_AFTER_COMMIT)
        claim(store)
        table_metadata.forget()
        manifests.forget()
        return Relocated(old, store.warehouse, len(versions), rewriting.files)


def _versions(connection: Connection) -> list[str]:
    """Return the versions that commits, branches and slots need."""
    found = {use.location for use in uses(connection, unexpired(connection))}
    return sorted(found | {row.location for row in registered(connection) if row.is_table})


def _convenient(connection: Connection) -> list[str]:
    """Return the versions of results, and those that current ones were made of."""
    return sorted(
        {
            version.location
            for found in (retained_results.kept, retained_results.inputs)
            for version in found(connection)
        }
    )


def _readable(rewriting: Rewriting, wanted: list[str]) -> list[str]:
    """Return the versions that can be read, their lists written anew; nobody waits for the others."""
    found = []
    for version in wanted:
        with suppress(Broken):
            rewriting.lists(version)
            found.append(version)
    return found


def _placing(swap: Swap, versions: frozenset[str]) -> Place:
    """Return what tells where a location is now; versions have fresh names, the rest has only moved."""
    return lambda location: swap.fresh(location) if location in versions else swap(location)


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress:
        progress("relocate", done, total)


def _point(connection: Connection, swap: Swap, place: Place, versions: frozenset[str]) -> None:
    """Point every row at the new place, in one transaction."""
    lock(connection)
    if connection.execute(sa.select(schema.lake.c.warehouse)).scalar_one() == swap.new:
        return  # an earlier attempt took effect
    missed = [location for location in _versions(connection) if swap.moves(location) and location not in versions]
    if missed:
        raise Moved("main", [f"the table at {missed[0]}"])
    retained_results.forget_at(
        connection,
        [
            at.location
            for at in retained_results.kept(connection)
            if swap.moves(at.location) and at.location not in versions
        ],
    )
    move_locations(connection, place)
    connection.execute(schema.lake.update().values(warehouse=swap.new))
    failpoints.reach(failpoints.RELOCATE_BEFORE_COMMIT)
