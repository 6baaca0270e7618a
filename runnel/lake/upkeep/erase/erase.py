"""Erase rows from all retained versions of a table: branches, tags, commits, slots, and the append logs of streams.

Data files that hold such rows are rewritten without them, then every version that lists one of these files, and one
transaction replaces the old versions by the new ones. History keeps its commits, and each branch gets a commit that
records the erasure. The old files are deleted at once, unless an open write may rely on them.

The inbox of the table's source is erased first, so that no run ingests the rows again, and the quarantine and stored
answers of the service last. Tables computed from this table, and places that can't be searched, are reported and left
unchanged.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_table_of
from runnel.errors import RunnelError
from runnel.lake import failpoints
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.leases import expiry
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import retry_on_conflict
from runnel.lake.upkeep.erase.change_log_check import refuse_rows_in_log
from runnel.lake.upkeep.erase.condition import parse_condition
from runnel.lake.upkeep.erase.derived_tables import DerivedTable, find_derived_tables, find_sinks
from runnel.lake.upkeep.erase.erase_answers import ErasedAnswers, erase_answers
from runnel.lake.upkeep.erase.erase_inbox import erase_from_inbox
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.upkeep.erase.publish_erasure import (
    PublishedErasure,
    delete_listed_files,
    publish_erasure,
    remove_blobs,
)
from runnel.lake.upkeep.erase.raw_records import find_matching_records
from runnel.lake.upkeep.erase.unsearched_places import UnsearchedPlace, find_unsearched_places
from runnel.lake.upkeep.erase.version_references import NewVersionAppeared
from runnel.lake.upkeep.gc import retained_results
from runnel.lake.upkeep.gc.retained_commits import iter_version_uses, read_catalog_rows, read_unexpired_commits
from runnel.lake.warehouse_owner import confirm_owner
from runnel.lake.work_runner import IN_PROCESS, WorkContext
from runnel.model.work_place import WorkPlace

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store
    from runnel.names import TableName

_ATTEMPTS = 20


@dataclass(frozen=True)
class ErasedBranch:
    """What an erasure did to the newest version on a branch."""

    branch: str
    rows: int
    commit: str | None = None


@dataclass(frozen=True)
class ErasedQuarantine:
    """What an erasure did to the table's quarantine; `untold` records can't be tested, so a person has to look."""

    table: str
    rows: int
    untold: int
    fix: str | None = None


@dataclass(frozen=True)
class ErasureResult:
    """What an erasure did, or would do.

    `rows` counts rows of the newest versions of branches, a row that branches share once; `copies` counts all rows in
    files, also of old versions. `downstream` tables were computed from this table and may hold data from the rows.
    """

    table: str
    columns: tuple[str, ...]
    rows: int
    copies: int
    files: int
    versions: int
    branches: tuple[ErasedBranch, ...] = ()
    deleted: int = 0  # files deleted from the warehouse: old data files and metadata
    blobs: int = 0
    left: int = 0  # files that gc deletes after the writes that are open now have ended
    streams: tuple[str, ...] = ()  # whose append logs lost rows, already read or not
    events: int = 0  # of the inbox of its source
    quarantine: ErasedQuarantine | None = None
    downstream: tuple[DerivedTable, ...] = ()
    sinks: tuple[str, ...] = ()  # they have delivered these tables out of the lake
    answers: ErasedAnswers = field(default_factory=ErasedAnswers)  # of the service, whichever tables they are about
    unsearched: tuple[UnsearchedPlace, ...] = ()  # they may quote the rows
    dry_run: bool = False
    place: WorkPlace | None = None  # where files were searched and rewritten


def erase(
    store: "Store", table: "TableName", where: str, *, dry_run: bool = False, work: WorkContext = IN_PROCESS
) -> ErasureResult:
    """Remove the rows that match a condition from every retained version of a table.

    `where` is a condition in a safe subset of Spark SQL over the table's columns. Raises ERASE_OUTSIDE_FILE, having
    changed nothing, if a file that was registered in place holds such rows, and ERASE_LOG if the table is computed from
    a change log that still has them. `work` says where files are searched and rewritten.
    """
    condition = parse_condition(where)
    if not dry_run:
        confirm_owner(store)
        expiry.remove_expired(store.db, store.db.read(store.db.now))  # a writer that died does not count as open
        delete_listed_files(store)
    with acquire_pin(store.db, "write") as pin:
        refuse_rows_in_log(store, table, condition, work)
        erasure = Erasure(store, table, condition, work)
        erasure.find_affected_versions()  # raises before anything changes
        events = erase_from_inbox(store, table, condition, erasure.newest_metadata, dry_run=dry_run)
        result = _run_erasure(store, erasure, pin, dry_run=dry_run)
    quarantine = _erase_quarantine(store, erasure, work, dry_run=dry_run)
    downstream = store.db.read(lambda connection: find_derived_tables(connection, table))
    names = {str(table), *(derived_table.table for derived_table in downstream)}
    sinks = store.db.read(lambda connection: find_sinks(connection, names))
    answers = erase_answers(store, dry_run=dry_run)  # last: queries that were answered meanwhile may have the rows
    unsearched = store.db.read(lambda connection: find_unsearched_places(connection, table))
    result = replace(result, events=events, quarantine=quarantine, answers=answers, unsearched=unsearched)
    return replace(result, downstream=downstream, sinks=sinks)


def _run_erasure(store: "Store", erasure: Erasure, pin: str, *, dry_run: bool) -> ErasureResult:
    def erase_once() -> ErasureResult:
        erasure.find_affected_versions()
        if dry_run or erasure.is_empty:
            return _build_result(erasure, dry_run=dry_run)
        erasure.stage_versions()
        failpoints.reach(failpoints.ERASE_STAGED)
        published = publish_erasure(store, erasure, pin)
        return _build_result(erasure, published=_delete_old_files(store, erasure, published))

    try:
        return retry_on_conflict(erase_once, _ATTEMPTS, NewVersionAppeared)
    except NewVersionAppeared:
        what = f"`{erasure.table}` is written to so often that the erasure could not keep up with its new versions"
        raise RunnelError("ERASE_BUSY", what, fix="try again") from None


def _erase_quarantine(store: "Store", erasure: Erasure, work: WorkContext, *, dry_run: bool) -> ErasedQuarantine | None:
    """Erase the matching records of the table's quarantine from all versions; return None if it has no quarantine."""
    table, name, rows = erasure.table, quarantine_table_of(erasure.table), 0
    locations = store.db.read(lambda connection: _list_retained_versions(connection, str(name)))
    if not locations:
        return None
    record_condition, untestable_count = find_matching_records(
        store, locations, erasure.condition, erasure.newest_metadata, work
    )
    if record_condition is not None:
        with acquire_pin(store.db, "write") as pin:
            rows = _run_erasure(store, Erasure(store, name, record_condition, work), pin, dry_run=dry_run).copies
    fix = f"inspect them with runnel quarantine {table} --raw, then runnel erase {name} --where \"raw like '...'\""
    return ErasedQuarantine(str(name), rows, untestable_count, fix if untestable_count else None)


def _list_retained_versions(connection: "Connection", table: str) -> list[str]:
    locations = {
        use.location for use in iter_version_uses(connection, read_unexpired_commits(connection)) if use.table == table
    }
    locations |= {
        row.location for row in read_catalog_rows(connection) if row.table == table and row.is_table and row.is_ours
    }
    locations |= {version.location for version in retained_results.iter_versions(connection) if version.table == table}
    return sorted(locations)


def _delete_old_files(store: "Store", erasure: Erasure, published: PublishedErasure) -> PublishedErasure:
    failpoints.reach(failpoints.ERASE_AFTER_COMMIT)
    table_metadata.clear_cache()
    manifests.clear_cache()
    deleted = delete_listed_files(store)
    blobs = 0 if published.waits_for_writes else remove_blobs(store, erasure.blobs)
    return PublishedErasure(
        published.commits,
        published.waits_for_writes,
        deleted,
        blobs,
        len(erasure.list_files_to_delete()) + len(erasure.blobs),
    )


def _build_result(
    erasure: Erasure, *, dry_run: bool = False, published: PublishedErasure | None = None
) -> ErasureResult:
    commits = published.commits if published else {}
    rows = erasure.rows_by_branch
    return ErasureResult(
        str(erasure.table),
        erasure.condition.columns,
        rows=erasure.rows,
        copies=erasure.copies,
        files=erasure.files,
        versions=len(erasure.affected_locations),
        branches=tuple(
            ErasedBranch(branch, rows.get(branch, 0), commits.get(branch)) for branch in sorted({*rows, *commits})
        ),
        deleted=published.deleted if published else 0,
        blobs=published.blobs if published else len(erasure.blobs),
        left=max(published.listed_count - published.deleted, 0) if published and published.waits_for_writes else 0,
        streams=tuple(erasure.streams),
        dry_run=dry_run,
        place=erasure.runner.place,
    )
