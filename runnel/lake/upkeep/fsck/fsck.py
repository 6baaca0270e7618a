"""Check the whole lake: its history, every kept version and the files behind it, and what is left over.

Reads everything and changes nothing; others may go on working meanwhile. What is read comes from the disk, not from
memory.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.lake.flow_state.streams import checkpoints
from runnel.lake.history.adopt import outside_changes
from runnel.lake.history.branches import branches
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.iceberg.file_io import Stored
from runnel.lake.leases import expiry
from runnel.lake.upkeep.fsck import history_check
from runnel.lake.upkeep.fsck.content_check import Contents
from runnel.lake.upkeep.fsck.findings import Finding, Report, sorted_findings
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.mark import Progress, key
from runnel.lake.upkeep.gc.retained_commits import Kept, Registered, Use, registered, unexpired, uses
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.gc.sweep import is_own

if TYPE_CHECKING:
    from runnel.lake.store import Store

_NO_COMMIT = Kept("", "", 0)


@dataclass(frozen=True)
class _Facts:
    """What the catalog database says at one moment."""

    commits: int
    uses: tuple[Use, ...]
    inputs: tuple[Use, ...]  # that current results were made of: kept, not promised
    registered: tuple[Registered, ...]
    problems: tuple[Finding, ...]


def fsck(
    store: "Store", *, deep: bool = False, retention: Retention | None = None, progress: Progress | None = None
) -> Report:
    """Return everything that is wrong with a lake, with the files and commits concerned.

    `deep` also opens every Parquet file and reads every blob. A file that nobody needs is an orphan only after the
    grace period of `retention`.
    """
    table_metadata.forget()
    manifests.forget()
    facts = store.db.read(lambda connection: _facts(store, connection))
    contents = Contents(store, deep=deep)
    contents.survey()
    for done, use in enumerate(facts.uses, 1):
        contents.check(use)
        if progress:
            progress("check", done, len(facts.uses))
    for use in facts.inputs:
        contents.check(use)
    contents.attribute_blobs()
    orphans = list(_orphans(store, contents, (retention or Retention()).grace_seconds))
    gone = _gone(store, facts.registered)
    # What others let go of while we looked, they may also have removed: only what is needed still is a problem.
    uses, rows = store.db.read(lambda connection: (set(_places(connection)), set(registered(connection))))
    found = [*facts.problems, *(_dangling(row) for row in gone if row in rows), *_orphaned(orphans)]
    found += contents.findings(lambda use: (use.table, use.location) in uses)
    return Report(
        sorted_findings(found),
        commits=facts.commits,
        versions=len({use.location for use in facts.uses}),
        files=len(contents.seen),
        bytes=sum(stored.bytes for path, stored in contents.stored.items() if path in contents.seen),
        deep=deep,
        orphans=tuple(stored.path for stored in orphans),
    )


def _facts(store: "Store", connection: Connection) -> _Facts:
    problems = [*history_check.problems(connection), *_outside(connection), *_left_over(store, connection)]
    inputs = tuple(
        Use(kept.table, kept.location, _NO_COMMIT, _NO_COMMIT) for kept in retained_results.inputs(connection)
    )
    rows = tuple(registered(connection))
    return _Facts(len(unexpired(connection)), tuple(_uses(connection)), inputs, rows, tuple(problems))


def _uses(connection: Connection) -> Iterator[Use]:
    """Yield the versions that kept commits and results need, and those that other engines have put in the catalog."""
    told = set()
    for use in uses(connection, unexpired(connection)):
        told.add(use.location)
        yield use
    ours = [(row.table, row.location) for row in registered(connection) if row.is_table and row.is_ours]
    for table, location in [*ours, *((kept.table, kept.location) for kept in retained_results.kept(connection))]:
        if location not in told:
            told.add(location)
            yield Use(table, location, _NO_COMMIT, _NO_COMMIT)


def _places(connection: Connection) -> Iterator[tuple[str, str]]:
    return ((use.table, use.location) for use in _uses(connection))


def _gone(store: "Store", rows: tuple[Registered, ...]) -> list[Registered]:
    """Return the catalog's rows whose metadata file is not there."""
    there = {location: store.io.new_input(location).exists() for location in {row.location for row in rows}}
    return [row for row in rows if not there[row.location]]


def _dangling(row: Registered) -> Finding:
    return Finding(
        "error" if row.is_ours else "warning",
        "FSCK_DANGLING_ROW",
        f"the catalog has `{row.table}` on `{row.catalog}` at a file that is gone",
        key(row.location),
        (row.table,),
        fix="restore the file from a backup, or revert the table to a commit that can be read",
    )


def _outside(connection: Connection) -> Iterator[Finding]:
    for branch in branches(connection):
        for change in outside_changes(connection, branch.name):
            what = f"another engine changed `{change.table}` on branch `{branch.name}`; no commit holds it yet"
            fix = "any command that reads the branch adopts it as a commit, such as: runnel log"
            yield Finding("info", "FSCK_OUTSIDE", what, None, (str(change.table),), (branch.head,), fix)


def _left_over(store: "Store", connection: Connection) -> Iterator[Finding]:
    pins, slots = expiry.ended(store.db, connection, store.db.now(connection))
    for kind, names in (("pin", pins), ("slot", slots)):
        if names:
            what = f"{len(names)} {kind}{'s' if len(names) > 1 else ''} of processes that have ended: {names[0]}"
            yield Finding("info", "FSCK_LEASES", what, fix="`runnel gc` removes them")


def _orphans(store: "Store", contents: Contents, grace_seconds: float) -> Iterator[Stored]:
    """Yield files that nobody needs; those that are young may belong to a write that is under way."""
    limit, kept = time.time() - grace_seconds, checkpoints(store.db, key(store.warehouse))
    for path, stored in contents.stored.items():
        folder, _, name = path.rpartition("/")
        beside = f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path
        is_old = stored.modified_at <= limit
        if is_old and beside not in contents.seen and not is_own(store, path) and not path.startswith(kept):
            yield stored


def _orphaned(orphans: list[Stored]) -> Iterator[Finding]:
    if orphans:
        size = sum(stored.bytes for stored in orphans)
        what = f"{len(orphans):,} files with {size:,} bytes are needed by nothing, such as {orphans[0].path}"
        yield Finding(
            "info", "FSCK_ORPHANS", what, orphans[0].path, fix="`runnel gc` removes them after its grace period"
        )
