"""Repair a lake whose folder was moved or copied: Iceberg's paths are absolute.

The metadata of every retained version is rewritten for the new warehouse, next to the old files, which stay unchanged;
then one transaction points the whole history at the new files. Until then the lake is unchanged and can be moved back;
gc deletes the old files later. Data is not copied, and registered files outside the warehouse stay where they are.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import CorruptData, VersionConflict
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.location_columns import LocationMapper, move_locations
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.leases import expiry
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.retained_commits import (
    iter_version_uses,
    read_append_log_locations,
    read_catalog_rows,
    read_unexpired_commits,
)
from runnel.lake.upkeep.relocate.metadata_rewrite import MetadataRewriter, WarehouseMove
from runnel.lake.warehouse_owner import check_new_location, claim_warehouse
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class RelocationResult:
    """The old and the new warehouse of a relocation, and how many versions and files were rewritten."""

    old: str
    new: str
    versions: int = 0
    files: int = 0


def relocate(store: "Store", *, adopt: bool = False, report_progress: Progress | None = None) -> RelocationResult:
    """Rewrite a lake's metadata for `store.warehouse`; do nothing if it already is the recorded warehouse.

    The store was opened with `moved=True`. Raises CorruptData, having changed nothing, if a file is not in the new
    warehouse, and LAKE_FOREIGN if the warehouse belongs to another lake or catalog, unless `adopt` is set. A
    relocation that crashed is repeated from its beginning.
    """
    expiry.remove_expired(store.db, store.db.read(store.db.now))
    with acquire_pin(store.db, "relocate", exclusive=True):
        old = store.read_recorded_warehouse()
        if not adopt:
            check_new_location(store)
        if old == store.warehouse:
            claim_warehouse(store)
            return RelocationResult(old, old)
        move = WarehouseMove(old, store.warehouse)
        versions = [location for location in store.db.read(_list_versions) if move.applies_to(location)]
        rewriter = MetadataRewriter(store, move)
        append_logs = frozenset(store.db.read(read_append_log_locations))
        for done, version in enumerate(versions, 1):
            rewriter.rewrite_manifest_lists(version, with_older=version in append_logs)
            _report_step(report_progress, done, 2 * len(versions))
        versions += _rewrite_readable_lists(
            rewriter,
            [
                candidate
                for candidate in store.db.read(_list_result_versions)
                if move.applies_to(candidate) and candidate not in versions
            ],
        )
        find_new_location = _make_location_finder(move, frozenset(versions))
        for done, version in enumerate(versions, 1):
            rewriter.rewrite_metadata(version, find_new_location)
            _report_step(report_progress, len(versions) + done, 2 * len(versions))
        failpoints.reach(failpoints.RELOCATE_WRITTEN)
        store.db.write(lambda connection: _update_catalog(connection, move, find_new_location, frozenset(versions)))
        failpoints.reach(failpoints.RELOCATE_AFTER_COMMIT)
        claim_warehouse(store)
        table_metadata.clear_cache()
        manifests.clear_cache()
        return RelocationResult(old, store.warehouse, len(versions), rewriter.file_count)


def _list_versions(connection: Connection) -> list[str]:
    """Return the versions that commits, branches and slots need."""
    locations = {use.location for use in iter_version_uses(connection, read_unexpired_commits(connection))}
    return sorted(locations | {row.location for row in read_catalog_rows(connection) if row.is_table})


def _list_result_versions(connection: Connection) -> list[str]:
    """Return the versions of results, and the input versions of current results."""
    return sorted(
        {
            version.location
            for read_versions in (retained_results.iter_versions, retained_results.iter_inputs)
            for version in read_versions(connection)
        }
    )


def _rewrite_readable_lists(rewriter: MetadataRewriter, candidates: list[str]) -> list[str]:
    """Rewrite the manifest lists of versions that can be read, and return these versions; skip the others."""
    readable = []
    for version in candidates:
        with suppress(CorruptData):
            rewriter.rewrite_manifest_lists(version)
            readable.append(version)
    return readable


def _make_location_finder(move: WarehouseMove, versions: frozenset[str]) -> LocationMapper:
    """Return a function that maps an old location to its new one; versions have new names, other files only moved."""
    return lambda location: move.choose_new_path(location) if location in versions else move(location)


def _report_step(report_progress: Progress | None, done: int, total: int) -> None:
    if report_progress:
        report_progress("relocate", done, total)


def _update_catalog(
    connection: Connection, move: WarehouseMove, find_new_location: LocationMapper, versions: frozenset[str]
) -> None:
    """Point every row of the catalog at the new warehouse, in one transaction."""
    lock_lake(connection)
    if connection.execute(sa.select(schema.lake.c.warehouse)).scalar_one() == move.new:
        return  # an earlier attempt took effect
    missed_locations = [
        location for location in _list_versions(connection) if move.applies_to(location) and location not in versions
    ]
    if missed_locations:
        raise VersionConflict("main", [f"the table at {missed_locations[0]}"])
    retained_results.forget_by_location(
        connection,
        [
            version.location
            for version in retained_results.iter_versions(connection)
            if move.applies_to(version.location) and version.location not in versions
        ],
    )
    move_locations(connection, find_new_location)
    connection.execute(schema.lake.update().values(warehouse=move.new))
    failpoints.reach(failpoints.RELOCATE_BEFORE_COMMIT)
