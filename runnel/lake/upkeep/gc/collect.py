"""Collect garbage: let commits go whose retention has ended, then delete the files that nothing needs any more.

Commits of streams, of which there are very many, also leave the history, a grace period after they have expired.

Two looks with a grace period between them: the first lists unneeded files as candidates, a later one deletes those
that are still unneeded. Without a grace period the second look follows at once. A crash at any step leaves the lake
whole; the next run goes on. Only one gc runs at a time.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import Broken
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.catalog.lock import lock
from runnel.lake.leases import expiry
from runnel.lake.leases.pins import pinned
from runnel.lake.upkeep.gc import inbox_expiry, retained_code, retained_results, sweep
from runnel.lake.upkeep.gc.mark import Mark, Progress
from runnel.lake.upkeep.gc.retained_commits import Registered, open_writes, outlived, registered, unexpired, uses
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.gc.squash import squash
from runnel.lake.upkeep.gc.squashable_commits import surplus
from runnel.lake.warehouse_owner import confirm_owner

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Swept:
    """What a gc did, or would do. Counts are of files unless they say otherwise."""

    expired_commits: int = 0
    squashed_commits: int = 0  # of streams, which left the history
    expired_results: int = 0
    expired_codes: int = 0  # versions of the project's code that nothing names any more
    ended_leases: int = 0
    pruned_events: int = 0  # that were pushed, and taken in long ago
    candidates: int = 0  # newly found, to be deleted by a later gc
    candidate_bytes: int = 0
    waiting: int = 0  # found before, their grace or an older write not yet over
    forgotten: int = 0  # found before, needed again
    deleted: int = 0
    deleted_bytes: int = 0
    kept: int = 0
    dry_run: bool = False


@dataclass(frozen=True)
class _Gone:
    """How much has expired."""

    commits: int
    results: int
    codes: int


@dataclass(frozen=True)
class _Roots:
    """What the catalog database needs at one moment, and the writes that are open then."""

    now: str
    versions: frozenset[str]
    results: frozenset[str]
    inputs: frozenset[str]  # of current results
    registered: tuple[Registered, ...]
    open_writes: tuple[str, ...]
    candidates: tuple[sweep.Candidate, ...]


def gc(
    store: "Store",
    retention: Retention,
    *,
    dry_run: bool = False,
    now: datetime | None = None,
    progress: Progress | None = None,
) -> Swept:
    """Let commits go and sweep files as `retention` says; `dry_run` changes nothing and tells what would happen.

    `now` stands in for the clock. Raises GC_RUNNING where another gc is under way, and Broken, having deleted nothing,
    where a kept version can't be read: what it needs is then unknown.
    """
    at = stamp(now) if now else None
    confirm_owner(store)
    if dry_run:
        return _foretell(store, retention, at, progress)
    ended = expiry.end(store.db, at or store.db.read(store.db.now))
    failpoints.reach(failpoints.GC_LEASES_ENDED)
    with pinned(store.db, "gc", alone=True) as pin:
        hold = sweep.holding(pin)
        gone, died = _expire(store, retention, at)
        failpoints.reach(failpoints.GC_EXPIRED)
        _list_anew(store, died, hold)
        squashed = squash(store, _before_grace(at or store.db.read(store.db.now), retention), hold)
        swept = _look(store, retention, at, hold, progress)
        if retention.grace_seconds == 0 and swept.candidates:
            second = _look(store, retention, at, hold, progress)
            swept = replace(
                second,
                forgotten=swept.forgotten + second.forgotten,
                deleted=swept.deleted + second.deleted,
                deleted_bytes=swept.deleted_bytes + second.deleted_bytes,
            )
        sweep.remove_empty_folders(store, _written_before(store, retention, at))
    pruned = inbox_expiry.prune(store.db, at or store.db.read(store.db.now))
    return replace(
        swept,
        expired_commits=gone.commits,
        squashed_commits=squashed,
        expired_results=gone.results,
        expired_codes=gone.codes,
        ended_leases=ended,
        pruned_events=pruned,
    )


def _expire(store: "Store", retention: Retention, at: str | None) -> tuple[_Gone, frozenset[str]]:
    """Expire what is over; return how much, and the versions that none but it needed, if a write is open."""

    def work(connection: Connection) -> tuple[_Gone, frozenset[str]]:
        lock(connection)
        now = at or store.db.now(connection)
        gone = outlived(connection, retention, now)
        worn = retained_results.outworn(connection, retention, now, frozenset(gone))
        unused = retained_code.unneeded(connection, retention, now, frozenset(gone), worn)
        died: frozenset[str] = frozenset()
        if (gone or worn) and open_writes(connection):
            died = _needed(connection) - _needed(connection, frozenset(gone), worn)
        retained_results.forget(connection, worn)
        retained_code.drop(connection, unused)
        for start in range(0, len(gone), 500):
            ids = gone[start : start + 500]
            connection.execute(schema.commits.update().where(schema.commits.c.id.in_(ids)).values(expired_at=now))
        failpoints.reach(failpoints.GC_BEFORE_EXPIRE)
        return _Gone(len(gone), len(worn), len(unused)), died

    return store.db.write(work)


def _needed(
    connection: Connection, gone: frozenset[str] = frozenset(), worn: frozenset[retained_results.Key] = frozenset()
) -> frozenset[str]:
    """Return the versions that commits and results need, leaving out those that are about to go."""
    found = {use.location for use in uses(connection, unexpired(connection, gone))}
    found |= {version.location for version in retained_results.kept(connection, worn)}
    return frozenset(found)


def _list_anew(store: "Store", died: frozenset[str], hold: sweep.Hold) -> None:
    """Forget candidates that the versions which have just died needed, so that they are listed anew.

    Such a file was needed again after it was listed, and a write that is open now may have started from there.
    """
    listed = store.db.read(sweep.candidates) if died else []
    if not listed:
        return
    mark = Mark(store)
    for version in died:
        with suppress(Broken):  # it is not promised any more
            mark.version(version)
    sweep.forget(store, [candidate.path for candidate in listed if mark.needs(candidate.path)], hold)


def _look(store: "Store", retention: Retention, at: str | None, hold: sweep.Hold, progress: Progress | None) -> Swept:
    """Mark once, delete the candidates of earlier looks that are still unneeded, and list new ones."""
    roots, mark, lost = _marked(store, at, progress)
    failpoints.reach(failpoints.GC_MARKED)
    if lost:
        _forget(store, lost, hold)
    needed = [candidate.path for candidate in roots.candidates if mark.needs(candidate.path)]
    forgotten = sweep.forget(store, needed, hold)
    failpoints.reach(failpoints.GC_FORGOTTEN)
    doomed, waiting = _ripe(roots, mark, retention)
    deleted = _told(sweep.delete(store, doomed, hold), "delete", len(doomed), progress)
    listed = {candidate.path for candidate in waiting}
    found = sweep.unneeded(store, mark, _oldest(roots, retention))
    new = list(sweep.record(store, (stored for stored in found if stored.path not in listed), at, hold))
    return Swept(
        candidates=len(new),
        candidate_bytes=sum(stored.bytes for stored in new),
        waiting=len(waiting),
        forgotten=forgotten,
        deleted=len(deleted),
        deleted_bytes=sum(candidate.bytes for candidate in deleted),
        kept=len(mark.files),
    )


def _forget(store: "Store", lost: list[str], hold: sweep.Hold) -> None:
    """Forget results whose versions can't be read."""

    def work(connection: Connection) -> None:
        hold(connection)
        retained_results.forget_at(connection, lost)

    store.db.write(work)


def _foretell(store: "Store", retention: Retention, at: str | None, progress: Progress | None) -> Swept:
    """Return what a gc would do now; without a grace period it would delete what it finds."""

    def work(connection: Connection) -> tuple[frozenset[str], frozenset[retained_results.Key], int, int, int]:
        now = at or store.db.now(connection)
        pins, slots = expiry.ended(store.db, connection, now)
        gone = frozenset(outlived(connection, retention, now))
        worn = retained_results.outworn(connection, retention, now, gone)
        unused = retained_code.unneeded(connection, retention, now, gone, worn)
        at_once = gone if retention.grace_seconds == 0 else frozenset()
        squashed = surplus(connection, _before_grace(now, retention), at_once)
        return gone, worn, len(unused), len(pins) + len(slots), len(squashed)

    gone, worn, unused, ended, squashed = store.db.read(work)
    pruned = store.db.read(lambda connection: inbox_expiry.count(connection, at or store.db.now(connection)))
    roots, mark, _ = _marked(store, at, progress, gone, worn)
    doomed, waiting = _ripe(roots, mark, retention)
    listed = {candidate.path for candidate in roots.candidates}
    found = sweep.unneeded(store, mark, _oldest(roots, retention))
    new = [stored for stored in found if stored.path not in listed]
    at_once = retention.grace_seconds == 0 and not roots.open_writes
    sizes = [candidate.bytes for candidate in doomed] + ([stored.bytes for stored in new] if at_once else [])
    return Swept(
        expired_commits=len(gone),
        squashed_commits=squashed,
        expired_results=len(worn),
        expired_codes=unused,
        ended_leases=ended,
        pruned_events=pruned,
        candidates=0 if at_once else len(new),
        candidate_bytes=0 if at_once else sum(stored.bytes for stored in new),
        waiting=len(waiting),
        forgotten=len(roots.candidates) - len(doomed) - len(waiting),
        deleted=len(sizes),
        deleted_bytes=sum(sizes),
        kept=len(mark.files),
        dry_run=True,
    )


def _marked(
    store: "Store",
    at: str | None,
    progress: Progress | None,
    gone: frozenset[str] = frozenset(),
    worn: frozenset[retained_results.Key] = frozenset(),
) -> tuple[_Roots, Mark, list[str]]:
    """Read from one state of the database what is needed, and mark the files of it; return the results that are lost.

    A commit that can't be read stops it. A result or an input that can't be read is no use to anybody.
    """

    def work(connection: Connection) -> _Roots:
        return _Roots(
            at or store.db.now(connection),
            frozenset(use.location for use in uses(connection, unexpired(connection, gone))),
            frozenset(version.location for version in retained_results.kept(connection, worn)),
            frozenset(version.location for version in retained_results.inputs(connection, worn)),
            tuple(registered(connection)),
            tuple(open_writes(connection)),
            tuple(sweep.candidates(connection)),
        )

    roots = store.db.read(work)
    while True:
        mark = Mark(store)
        try:
            mark.versions(sorted(roots.versions), progress)
            mark.registered(roots.registered)
        except Broken:
            before, roots = roots, store.db.read(work)
            # An erasure may have put other versions in the place of these, and deleted their files.
            if (before.versions, before.registered) == (roots.versions, roots.registered):
                raise
        else:
            mark.readable(sorted(roots.inputs))
            return roots, mark, mark.readable(sorted(roots.results))


def _ripe(roots: _Roots, mark: Mark, retention: Retention) -> tuple[list[sweep.Candidate], list[sweep.Candidate]]:
    """Return the candidates to delete now, and those that are still unneeded but have to wait."""
    limit = _before_grace(roots.now, retention)
    unneeded = [candidate for candidate in roots.candidates if not mark.needs(candidate.path)]
    ripe = [candidate for candidate in unneeded if sweep.is_ripe(candidate, limit, roots.open_writes)]
    chosen = {candidate.path for candidate in ripe}
    return ripe, [candidate for candidate in unneeded if candidate.path not in chosen]


def _before_grace(now: str, retention: Retention) -> str:
    return stamp(moment(now) - timedelta(seconds=retention.grace_seconds))


def _oldest(roots: _Roots, retention: Retention) -> float:
    """Return the moment before which a file must have been written to become a candidate."""
    grace = moment(roots.now) - timedelta(seconds=retention.grace_seconds)
    return min([grace, *map(moment, roots.open_writes)]).timestamp()


def _written_before(store: "Store", retention: Retention, at: str | None) -> float:
    now = moment(at or store.db.read(store.db.now))
    return (now - timedelta(seconds=retention.grace_seconds)).timestamp()


def _told(found: Iterator[sweep.Candidate], what: str, total: int, progress: Progress | None) -> list[sweep.Candidate]:
    done: list[sweep.Candidate] = []
    for candidate in found:
        done.append(candidate)
        if progress:
            progress(what, len(done), total)
    return done
