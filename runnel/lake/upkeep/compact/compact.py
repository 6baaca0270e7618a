"""Compact tables: many small files become few, deleted rows leave their files, manifests are put together.

The rows stay the same, and so does the content version: nothing is computed again because of a compaction. It never
waits for or stops a writer: where somebody else changed the same files meanwhile, the attempt is dropped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile

from runnel.errors import Moved
from runnel.lake import failpoints
from runnel.lake.flow_state.ingest_positions import has_ingested
from runnel.lake.history.branches import branch as branch_of
from runnel.lake.history.commits import Change, Commit, Version, version_at
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.manifests import Entry, entries, manifests
from runnel.lake.iceberg.parquet_writer import TARGET_BYTES
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import Unwritable, check_writable, load
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish
from runnel.lake.scan.scan_sql import Unscannable
from runnel.lake.upkeep.compact.file_selection import Choice, choose
from runnel.lake.upkeep.compact.group_rewriter import pour
from runnel.names import TableName

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

Progress = Callable[[str, int, int | None], None]
ATTEMPTS = 20
_QUARANTINE = "quarantine"
_KEPT_APART = "left alone: its rows are kept apart by the files of its source, each of which replaces its own"


@dataclass(frozen=True)
class Compacted:
    """What a compaction did to a table. Without a `commit` it did nothing, and `note` says why."""

    table: str
    commit: str | None
    files_before: int = 0  # data files that were rewritten
    files_after: int = 0
    deletes_dropped: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    manifests_before: int = 0
    manifests_after: int = 0
    rows: int = 0
    note: str = ""


@dataclass(frozen=True)
class _Made:
    """New files, and which files each of them replaces."""

    files: tuple[DataFile, ...]
    replaces: Mapping[str, list[str]]


def compact(
    store: "Store",
    table: "TableName | None" = None,
    *,
    branch: str = "main",
    target_bytes: int | None = None,
    force: bool = False,
    only_small: bool = False,
    progress: Progress | None = None,
) -> tuple[Compacted, ...]:
    """Compact one table of a branch, or all of them, each in a commit of its own.

    Files become about as large as the table's `write.target-file-size-bytes`, or `target_bytes`. Files that were
    registered in place are left alone unless `force` is given, and large ones that rows are deleted from where it is
    about `only_small` files.
    """
    store.db.read(lambda connection: branch_of(connection, branch))
    commit = store.commit(branch)
    versions = store.versions(commit, [table]) if table is not None else store.state(commit)
    found = []
    for name, version in versions.items():
        if _is_kept_apart(store, commit, name, version):
            found.append(Compacted(str(name), None, note=_KEPT_APART))
            continue
        try:
            found.append(_compact(store, branch, name, version, target_bytes, force, only_small, progress))
        except (Unscannable, Unwritable) as error:
            found.append(Compacted(str(name), None, note=error.what))
    return tuple(found)


def _is_kept_apart(store: "Store", commit: Commit, table: "TableName", version: Version) -> bool:
    """Tell whether each file of a source has data files of its own, which it replaces when it changes.

    So it is with the rows of these files that were set aside.
    """
    if table.layer == _QUARANTINE:
        properties = load(store, version.location).properties
        of = properties.get(table_properties.QUARANTINE_OF)
        return of is not None and store.db.read(
            partial(has_ingested, commit=commit, table=TableName.stored(of), files=True)
        )
    if store.db.read(partial(has_ingested, commit=commit, table=table, files=True)):
        return True
    is_fed = store.db.read(partial(has_ingested, commit=commit, table=table))
    return not is_fed and load(store, version.location).properties.get(table_properties.SOURCE) == "files"


def _compact(
    store: "Store",
    branch: str,
    table: "TableName",
    version: Version,
    target_bytes: int | None,
    force: bool,
    only_small: bool,
    progress: Progress | None,
) -> Compacted:
    with pinned(store.db, "write") as pin:
        metadata = load(store, version.location)
        check_writable(metadata)
        target = target_bytes or int(metadata.properties.get("write.target-file-size-bytes", TARGET_BYTES))
        choice = choose(store, metadata, target, force=force, only_small=only_small)
        if choice.is_empty:
            return Compacted(str(table), None, note="nothing to do")
        made = _pour_all(store, table, metadata, choice, target, progress)
        failpoints.reach(failpoints.COMPACT_FILES)
        return _publish(store, branch, table, metadata, choice, made, pin)


def _pour_all(
    store: "Store",
    table: "TableName",
    metadata: "TableMetadata",
    choice: Choice,
    target: int,
    progress: Progress | None,
) -> _Made:
    files: list[DataFile] = []
    replaces: dict[str, list[str]] = {}
    done, total = 0, sum(group.rows for group in choice.groups)

    def wrote(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(f"compact {table}", done, total)

    for group in choice.groups:
        made = pour(store, metadata, group, target, wrote)
        files += made
        replaces |= {file.file_path: [entry.path for entry in group.data] for file in made}
    return _Made(tuple(files), replaces)


def _publish(
    store: "Store",
    branch: str,
    table: "TableName",
    metadata: "TableMetadata",
    choice: Choice,
    made: _Made,
    pin: str,
) -> Compacted:
    dropped = Compacted(str(table), None, note="somebody else changed the same files meanwhile; try again later")
    for _ in range(ATTEMPTS):
        version = _newest(store, branch, table)
        removed = _still_there(store, metadata, version, choice)
        if version is None or removed is None:
            return dropped
        sequence = max((entry.sequence for entry in choice.replaced), default=None)
        edit = Edit(made.files, removed, rewrites=True, sequence=sequence, gathers=choice.gathers)
        staged = stage(store, version.location, edit)
        failpoints.reach(failpoints.COMPACT_STAGED)
        change = Change(table, version.location, staged, version.content, {"replaces": dict(made.replaces)})
        message = f"compact {table}: {len(choice.replaced)} files into {len(made.files)}"
        try:
            found = publish(store.db, Draft(branch, message, store.author, (change,), kind="compact", pin=pin))
        except Moved:
            continue
        return _told(store, table, found.id, version.location, staged, choice, made)
    return dropped


def _newest(store: "Store", branch: str, table: "TableName") -> Version | None:
    commit = store.commit(branch)
    return store.db.read(lambda connection: version_at(connection, commit, table))


def _still_there(
    store: "Store", planned: "TableMetadata", version: Version | None, choice: Choice
) -> tuple[Entry, ...] | None:
    """Return what a compaction takes out of a version, or None where the rows of those files are others by now.

    New rows matter as little as new columns. But a delete that came may name rows of these files, by place or by
    value, and the new files would bring them back; and a revert may bring back what a dropped delete applied to.
    """
    metadata = load(store, version.location) if version is not None else None
    if metadata is None or metadata.table_uuid != planned.table_uuid:
        return None
    if planned.schema() not in metadata.schemas or not planned.specs().keys() <= metadata.specs().keys():
        return None
    live = {entry.path: entry for entry in entries(store, metadata)}
    known = {entry.path for entry in entries(store, planned)}
    wanted = [*choice.replaced, *choice.dropped]
    needed = [*wanted, *(entry for group in choice.groups for entry in group.deletes)]
    newest = max((entry.sequence for entry in choice.dropped), default=-1)
    came = [entry for path, entry in live.items() if path not in known]
    if any(not entry.is_data or entry.sequence <= newest for entry in came):
        return None
    if any(entry.path not in live for entry in needed):
        return None
    return tuple(live[entry.path] for entry in wanted)


def _told(
    store: "Store", table: "TableName", commit: str, before: str, after: str, choice: Choice, made: _Made
) -> Compacted:
    return Compacted(
        str(table),
        commit,
        files_before=len(choice.replaced),
        files_after=len(made.files),
        deletes_dropped=len(choice.dropped),
        bytes_before=sum(entry.file.file_size_in_bytes for entry in choice.replaced),
        bytes_after=sum(file.file_size_in_bytes for file in made.files),
        manifests_before=len(manifests(store, load(store, before))),
        manifests_after=len(manifests(store, load(store, after))),
        rows=sum(file.record_count for file in made.files),
    )
