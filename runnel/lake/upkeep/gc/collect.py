"""Collect garbage: expire commits whose retention has ended, then delete the files that nothing needs any more.

Commits of streams, of which there are very many, are also removed from the history, a grace period after they expired.

There are two passes with a grace period between them: the first lists unneeded files as candidates, a later one deletes
those that are still unneeded. Without a grace period the second pass follows at once. A crash at any step leaves the
lake consistent; the next gc continues. Only one gc runs at a time.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import CorruptData
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.leases import expiry
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.upkeep.gc import inbox_expiry, retained_code, retained_results, sweep
from runnel.lake.upkeep.gc.mark import MarkedFiles
from runnel.lake.upkeep.gc.retained_commits import (
    CatalogRow,
    find_expired_commits,
    iter_version_uses,
    read_catalog_rows,
    read_open_writes,
    read_unexpired_commits,
)
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.gc.squash import squash
from runnel.lake.upkeep.gc.squashable_commits import find_squashable
from runnel.lake.warehouse_owner import confirm_owner
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class GcResult:
    """What a gc did, or would do. Counts are of files unless they say otherwise."""

    expired_commits: int = 0
    squashed_commits: int = 0  # of streams, removed from the history
    expired_results: int = 0
    expired_codes: int = 0  # versions of the project's code that nothing refers to any more
    ended_leases: int = 0
    pruned_events: int = 0  # pushed events that were ingested long ago
    candidates: int = 0  # newly listed, to be deleted by a later gc
    candidate_bytes: int = 0
    waiting: int = 0  # listed before; their grace period or an older write has not ended
    forgotten: int = 0  # listed before, needed again
    deleted: int = 0
    deleted_bytes: int = 0
    kept: int = 0
    dry_run: bool = False


@dataclass(frozen=True)
class _ExpiredCounts:
    """How many commits, results and versions of code have expired."""

    commits: int
    results: int
    codes: int


@dataclass(frozen=True)
class _GcRoots:
    """What the catalog database refers to at one moment, and the writes that are open then."""

    now: str
    versions: frozenset[str]
    results: frozenset[str]
    inputs: frozenset[str]  # of current results
    registered: tuple[CatalogRow, ...]
    open_writes: tuple[str, ...]
    candidates: tuple[sweep.Candidate, ...]


def gc(
    store: "Store",
    retention: Retention,
    *,
    dry_run: bool = False,
    now: datetime | None = None,
    report_progress: Progress | None = None,
) -> GcResult:
    """Expire commits and delete files as `retention` says; `dry_run` changes nothing and returns what would happen.

    `now` replaces the clock. Raises GC_RUNNING if another gc is running, and CorruptData, having deleted nothing, if a
    retained version can't be read: the files that it needs are then unknown.
    """
    fixed_now = format_time(now) if now else None
    confirm_owner(store)
    if dry_run:
        return _preview_gc(store, retention, fixed_now, report_progress)
    ended_leases = expiry.remove_expired(store.db, fixed_now or store.db.read(store.db.now))
    failpoints.reach(failpoints.GC_LEASES_ENDED)
    with acquire_pin(store.db, "gc", exclusive=True) as pin:
        check_lease = sweep.make_lease_check(pin)
        expired, unneeded_versions = _expire_commits(store, retention, fixed_now)
        failpoints.reach(failpoints.GC_EXPIRED)
        _relist_candidates(store, unneeded_versions, check_lease)
        squashed_count = squash(
            store, _compute_grace_limit(fixed_now or store.db.read(store.db.now), retention), check_lease
        )
        result = _mark_and_sweep(store, retention, fixed_now, check_lease, report_progress)
        if retention.grace_seconds == 0 and result.candidates:
            second_result = _mark_and_sweep(store, retention, fixed_now, check_lease, report_progress)
            result = replace(
                second_result,
                forgotten=result.forgotten + second_result.forgotten,
                deleted=result.deleted + second_result.deleted,
                deleted_bytes=result.deleted_bytes + second_result.deleted_bytes,
            )
        sweep.remove_empty_folders(store, _compute_folder_cutoff(store, retention, fixed_now))
    pruned_events = inbox_expiry.prune(store.db, fixed_now or store.db.read(store.db.now))
    return replace(
        result,
        expired_commits=expired.commits,
        squashed_commits=squashed_count,
        expired_results=expired.results,
        expired_codes=expired.codes,
        ended_leases=ended_leases,
        pruned_events=pruned_events,
    )


def _expire_commits(
    store: "Store", retention: Retention, fixed_now: str | None
) -> tuple[_ExpiredCounts, frozenset[str]]:
    """Expire commits, results and code; return how many, and the versions that only they needed if a write is open."""

    def work(connection: Connection) -> tuple[_ExpiredCounts, frozenset[str]]:
        lock_lake(connection)
        now = fixed_now or store.db.now(connection)
        expired_commits = find_expired_commits(connection, retention, now)
        expired_results = retained_results.find_expired(connection, retention, now, frozenset(expired_commits))
        unused_code = retained_code.find_unneeded(
            connection, retention, now, frozenset(expired_commits), expired_results
        )
        unneeded_versions: frozenset[str] = frozenset()
        if (expired_commits or expired_results) and read_open_writes(connection):
            unneeded_versions = _find_needed_versions(connection) - _find_needed_versions(
                connection, frozenset(expired_commits), expired_results
            )
        retained_results.forget(connection, expired_results)
        retained_code.drop_manifests(connection, unused_code)
        for start in range(0, len(expired_commits), 500):
            ids = expired_commits[start : start + 500]
            connection.execute(schema.commits.update().where(schema.commits.c.id.in_(ids)).values(expired_at=now))
        failpoints.reach(failpoints.GC_BEFORE_EXPIRE)
        return _ExpiredCounts(len(expired_commits), len(expired_results), len(unused_code)), unneeded_versions

    return store.db.write(work)


def _find_needed_versions(
    connection: Connection,
    expiring_commits: frozenset[str] = frozenset(),
    expiring_results: frozenset[retained_results.ResultKey] = frozenset(),
) -> frozenset[str]:
    """Return the versions that commits and results need, ignoring those that are about to expire."""
    locations = {
        use.location for use in iter_version_uses(connection, read_unexpired_commits(connection, expiring_commits))
    }
    locations |= {version.location for version in retained_results.iter_versions(connection, expiring_results)}
    return frozenset(locations)


def _relist_candidates(store: "Store", unneeded_versions: frozenset[str], check_lease: sweep.LeaseCheck) -> None:
    """Unlist candidates that the versions which have just expired needed, so that their grace period starts again.

    Such a file was needed again after it was listed, and a write that is open now may have started from it.
    """
    candidates = store.db.read(sweep.read_candidates) if unneeded_versions else []
    if not candidates:
        return
    mark = MarkedFiles(store)
    for version in unneeded_versions:
        with suppress(CorruptData):  # it need not be readable any more
            mark.mark_version(version)
    sweep.forget_candidates(
        store, [candidate.path for candidate in candidates if mark.is_needed(candidate.path)], check_lease
    )


def _mark_and_sweep(
    store: "Store",
    retention: Retention,
    fixed_now: str | None,
    check_lease: sweep.LeaseCheck,
    report_progress: Progress | None,
) -> GcResult:
    """Mark the needed files, delete the candidates of earlier passes that are still unneeded, and list new ones."""
    roots, mark, unreadable_results = _mark_needed_files(store, fixed_now, report_progress)
    failpoints.reach(failpoints.GC_MARKED)
    if unreadable_results:
        _forget_results(store, unreadable_results, check_lease)
    needed_paths = [candidate.path for candidate in roots.candidates if mark.is_needed(candidate.path)]
    forgotten = sweep.forget_candidates(store, needed_paths, check_lease)
    failpoints.reach(failpoints.GC_FORGOTTEN)
    deletable, waiting = _split_candidates(roots, mark, retention)
    deleted = _collect_with_progress(
        sweep.delete_candidates(store, deletable, check_lease), "delete", len(deletable), report_progress
    )
    waiting_paths = {candidate.path for candidate in waiting}
    unneeded_files = sweep.find_unneeded(store, mark, _compute_candidate_cutoff(roots, retention))
    new_candidates = list(
        sweep.record_candidates(
            store, (stored for stored in unneeded_files if stored.path not in waiting_paths), fixed_now, check_lease
        )
    )
    return GcResult(
        candidates=len(new_candidates),
        candidate_bytes=sum(stored.bytes for stored in new_candidates),
        waiting=len(waiting),
        forgotten=forgotten,
        deleted=len(deleted),
        deleted_bytes=sum(candidate.bytes for candidate in deleted),
        kept=len(mark.files),
    )


def _forget_results(store: "Store", locations: list[str], check_lease: sweep.LeaseCheck) -> None:
    """Forget results whose versions can't be read."""

    def work(connection: Connection) -> None:
        check_lease(connection)
        retained_results.forget_by_location(connection, locations)

    store.db.write(work)


def _preview_gc(
    store: "Store", retention: Retention, fixed_now: str | None, report_progress: Progress | None
) -> GcResult:
    """Return what a gc would do now; without a grace period it would delete new candidates at once."""

    def work(connection: Connection) -> tuple[frozenset[str], frozenset[retained_results.ResultKey], int, int, int]:
        now = fixed_now or store.db.now(connection)
        pins, slots = expiry.find_expired(store.db, connection, now)
        outlived_commits = frozenset(find_expired_commits(connection, retention, now))
        outlived_results = retained_results.find_expired(connection, retention, now, outlived_commits)
        unused_code = retained_code.find_unneeded(connection, retention, now, outlived_commits, outlived_results)
        squashable_at_once = outlived_commits if retention.grace_seconds == 0 else frozenset()
        squashable = find_squashable(connection, _compute_grace_limit(now, retention), squashable_at_once)
        return outlived_commits, outlived_results, len(unused_code), len(pins) + len(slots), len(squashable)

    expiring_commits, expiring_results, unused_count, lease_count, squashed_count = store.db.read(work)
    pruned_count = store.db.read(
        lambda connection: inbox_expiry.count_expired(connection, fixed_now or store.db.now(connection))
    )
    roots, mark, _ = _mark_needed_files(store, fixed_now, report_progress, expiring_commits, expiring_results)
    deletable, waiting = _split_candidates(roots, mark, retention)
    listed_paths = {candidate.path for candidate in roots.candidates}
    unneeded_files = sweep.find_unneeded(store, mark, _compute_candidate_cutoff(roots, retention))
    new_candidates = [stored for stored in unneeded_files if stored.path not in listed_paths]
    deletes_at_once = retention.grace_seconds == 0 and not roots.open_writes
    sizes = [candidate.bytes for candidate in deletable] + (
        [stored.bytes for stored in new_candidates] if deletes_at_once else []
    )
    return GcResult(
        expired_commits=len(expiring_commits),
        squashed_commits=squashed_count,
        expired_results=len(expiring_results),
        expired_codes=unused_count,
        ended_leases=lease_count,
        pruned_events=pruned_count,
        candidates=0 if deletes_at_once else len(new_candidates),
        candidate_bytes=0 if deletes_at_once else sum(stored.bytes for stored in new_candidates),
        waiting=len(waiting),
        forgotten=len(roots.candidates) - len(deletable) - len(waiting),
        deleted=len(sizes),
        deleted_bytes=sum(sizes),
        kept=len(mark.files),
        dry_run=True,
    )


def _mark_needed_files(
    store: "Store",
    fixed_now: str | None,
    report_progress: Progress | None,
    expiring_commits: frozenset[str] = frozenset(),
    expiring_results: frozenset[retained_results.ResultKey] = frozenset(),
) -> tuple[_GcRoots, MarkedFiles, list[str]]:
    """Read from one state of the database what is needed, mark its files, and return the results that can't be read.

    A commit that can't be read stops the gc. A result or an input that can't be read is useless and is ignored.
    """

    def work(connection: Connection) -> _GcRoots:
        return _GcRoots(
            fixed_now or store.db.now(connection),
            frozenset(
                use.location
                for use in iter_version_uses(connection, read_unexpired_commits(connection, expiring_commits))
            ),
            frozenset(version.location for version in retained_results.iter_versions(connection, expiring_results)),
            frozenset(version.location for version in retained_results.iter_inputs(connection, expiring_results)),
            tuple(read_catalog_rows(connection)),
            tuple(read_open_writes(connection)),
            tuple(sweep.read_candidates(connection)),
        )

    roots = store.db.read(work)
    while True:
        mark = MarkedFiles(store)
        try:
            mark.mark_versions(sorted(roots.versions), report_progress)
            mark.mark_catalog_rows(roots.registered)
        except CorruptData:
            previous_roots, roots = roots, store.db.read(work)
            # An erasure may have replaced these versions and deleted their files.
            if (previous_roots.versions, previous_roots.registered) == (roots.versions, roots.registered):
                raise
        else:
            mark.mark_readable(sorted(roots.inputs))
            return roots, mark, mark.mark_readable(sorted(roots.results))


def _split_candidates(
    roots: _GcRoots, mark: MarkedFiles, retention: Retention
) -> tuple[list[sweep.Candidate], list[sweep.Candidate]]:
    """Return the candidates to delete now, and the unneeded ones that have to wait."""
    limit = _compute_grace_limit(roots.now, retention)
    unneeded = [candidate for candidate in roots.candidates if not mark.is_needed(candidate.path)]
    deletable = [candidate for candidate in unneeded if sweep.is_deletable(candidate, limit, roots.open_writes)]
    deletable_paths = {candidate.path for candidate in deletable}
    return deletable, [candidate for candidate in unneeded if candidate.path not in deletable_paths]


def _compute_grace_limit(now: str, retention: Retention) -> str:
    return format_time(parse_time(now) - timedelta(seconds=retention.grace_seconds))


def _compute_candidate_cutoff(roots: _GcRoots, retention: Retention) -> float:
    """Return the moment before which a file must have been written to become a candidate."""
    grace = parse_time(roots.now) - timedelta(seconds=retention.grace_seconds)
    return min([grace, *map(parse_time, roots.open_writes)]).timestamp()


def _compute_folder_cutoff(store: "Store", retention: Retention, fixed_now: str | None) -> float:
    now = parse_time(fixed_now or store.db.read(store.db.now))
    return (now - timedelta(seconds=retention.grace_seconds)).timestamp()


def _collect_with_progress(
    candidates: Iterator[sweep.Candidate], phase: str, total: int, report_progress: Progress | None
) -> list[sweep.Candidate]:
    processed: list[sweep.Candidate] = []
    for candidate in candidates:
        processed.append(candidate)
        if report_progress:
            report_progress(phase, len(processed), total)
    return processed
