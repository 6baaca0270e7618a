"""Check the whole lake: its history, every retained version with its files, and orphaned files.

Reads everything and changes nothing; other processes may keep working. Reads from disk, not from caches.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import plural
from runnel.lake.flow_state.streams import list_checkpoint_folders
from runnel.lake.history.adopt import find_outside_changes
from runnel.lake.history.branches import list_branches
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.iceberg.file_io import StoredFile
from runnel.lake.leases import expiry
from runnel.lake.upkeep.fsck import history_check
from runnel.lake.upkeep.fsck.content_check import ContentChecker
from runnel.lake.upkeep.fsck.findings import FsckFinding, FsckReport, sort_findings
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.mark import normalize_path
from runnel.lake.upkeep.gc.retained_commits import (
    CatalogRow,
    RetainedCommit,
    VersionUse,
    iter_version_uses,
    read_catalog_rows,
    read_unexpired_commits,
)
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.gc.sweep import is_lake_file
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from runnel.lake.store import Store

_NO_COMMIT = RetainedCommit("", "", 0)


@dataclass(frozen=True)
class _CatalogFacts:
    """The facts of the catalog database at one moment."""

    commits: int
    uses: tuple[VersionUse, ...]
    inputs: tuple[VersionUse, ...]  # inputs of current results: kept, but not guaranteed
    registered: tuple[CatalogRow, ...]
    problems: tuple[FsckFinding, ...]


def fsck(
    store: "Store", *, deep: bool = False, retention: Retention | None = None, report_progress: Progress | None = None
) -> FsckReport:
    """Return everything that is wrong with a lake, with the files and commits concerned.

    `deep` also opens every Parquet file and reads every blob. A file that nothing needs is an orphan only after the
    grace period of `retention`.
    """
    table_metadata.clear_cache()
    manifests.clear_cache()
    facts = store.db.read(lambda connection: _read_facts(store, connection))
    checker = ContentChecker(store, deep=deep)
    checker.list_warehouse()
    for done, use in enumerate(facts.uses, 1):
        checker.check_version(use)
        if report_progress:
            report_progress("check", done, len(facts.uses))
    for use in facts.inputs:
        checker.check_version(use)
    checker.attribute_blobs()
    orphans = list(_find_orphans(store, checker, (retention or Retention()).grace_seconds))
    missing_rows = _find_missing_rows(store, facts.registered)
    # Others may have expired versions and deleted their files meanwhile: only what is still needed is a problem.
    current_uses, current_rows = store.db.read(
        lambda connection: (set(_iter_used_locations(connection)), set(read_catalog_rows(connection)))
    )
    findings = [
        *facts.problems,
        *(_build_dangling_finding(row) for row in missing_rows if row in current_rows),
        *_iter_orphan_findings(orphans),
    ]
    findings += checker.findings(lambda use: (use.table, use.location) in current_uses)
    return FsckReport(
        sort_findings(findings),
        commits=facts.commits,
        versions=len({use.location for use in facts.uses}),
        files=len(checker.checked_paths),
        bytes=sum(stored.bytes for path, stored in checker.files_by_path.items() if path in checker.checked_paths),
        deep=deep,
        orphans=tuple(stored.path for stored in orphans),
    )


def _read_facts(store: "Store", connection: Connection) -> _CatalogFacts:
    problems = [
        *history_check.find_problems(connection),
        *_find_outside_changes(connection),
        *_find_ended_leases(store, connection),
    ]
    inputs = tuple(
        VersionUse(version.table, version.location, _NO_COMMIT, _NO_COMMIT)
        for version in retained_results.iter_inputs(connection)
    )
    rows = tuple(read_catalog_rows(connection))
    return _CatalogFacts(
        len(read_unexpired_commits(connection)), tuple(_iter_uses(connection)), inputs, rows, tuple(problems)
    )


def _iter_uses(connection: Connection) -> Iterator[VersionUse]:
    """Yield the versions that retained commits and results need, and those that other engines put in the catalog."""
    yielded_locations = set()
    for use in iter_version_uses(connection, read_unexpired_commits(connection)):
        yielded_locations.add(use.location)
        yield use
    own_tables = [(row.table, row.location) for row in read_catalog_rows(connection) if row.is_table and row.is_ours]
    for table, location in [
        *own_tables,
        *((version.table, version.location) for version in retained_results.iter_versions(connection)),
    ]:
        if location not in yielded_locations:
            yielded_locations.add(location)
            yield VersionUse(table, location, _NO_COMMIT, _NO_COMMIT)


def _iter_used_locations(connection: Connection) -> Iterator[tuple[str, str]]:
    return ((use.table, use.location) for use in _iter_uses(connection))


def _find_missing_rows(store: "Store", rows: tuple[CatalogRow, ...]) -> list[CatalogRow]:
    """Return the catalog's rows whose metadata file is missing."""
    exists_by_location = {
        location: store.io.new_input(location).exists() for location in {row.location for row in rows}
    }
    return [row for row in rows if not exists_by_location[row.location]]


def _build_dangling_finding(row: CatalogRow) -> FsckFinding:
    return FsckFinding(
        "error" if row.is_ours else "warning",
        "FSCK_DANGLING_ROW",
        f"the catalog points `{row.table}` on `{row.catalog}` to a file that is gone",
        normalize_path(row.location),
        (row.table,),
        fix="restore the file from a backup, or revert the table to a commit that can be read",
    )


def _find_outside_changes(connection: Connection) -> Iterator[FsckFinding]:
    for branch in list_branches(connection):
        for change in find_outside_changes(connection, branch.name):
            what = f"another engine changed `{change.table}` on branch `{branch.name}`; no commit holds it yet"
            fix = "any command that reads the branch adopts it as a commit, such as: runnel log"
            yield FsckFinding("info", "FSCK_OUTSIDE", what, None, (str(change.table),), (branch.head,), fix)


def _find_ended_leases(store: "Store", connection: Connection) -> Iterator[FsckFinding]:
    pins, slots = expiry.find_expired(store.db, connection, store.db.now(connection))
    for kind, names in (("pin", pins), ("slot", slots)):
        if names:
            what = f"{plural(len(names), kind)} of processes that have ended: {names[0]}"
            yield FsckFinding("info", "FSCK_LEASES", what, fix="`runnel gc` removes them")


def _find_orphans(store: "Store", checker: ContentChecker, grace_seconds: float) -> Iterator[StoredFile]:
    """Yield files that nothing needs; young files are skipped, since they may belong to an open write."""
    limit, checkpoint_paths = (
        time.time() - grace_seconds,
        list_checkpoint_folders(store.db, normalize_path(store.warehouse)),
    )
    for path, stored in checker.files_by_path.items():
        folder, _, name = path.rpartition("/")
        checked_path = f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path
        is_old = stored.modified_at <= limit
        if (
            is_old
            and checked_path not in checker.checked_paths
            and not is_lake_file(store, path)
            and not path.startswith(checkpoint_paths)
        ):
            yield stored


def _iter_orphan_findings(orphans: list[StoredFile]) -> Iterator[FsckFinding]:
    if orphans:
        size = sum(stored.bytes for stored in orphans)
        what = f"{len(orphans):,} files with {size:,} bytes are not in use, such as {orphans[0].path}"
        yield FsckFinding(
            "info", "FSCK_ORPHANS", what, orphans[0].path, fix="`runnel gc` removes them after its grace period"
        )
