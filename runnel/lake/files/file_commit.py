"""Land a change of files on a branch: new rows in, old rows of the same paths out, by copy-on-write.

Only the data files that hold one of the paths are written anew. Writers of different paths don't disturb each other;
two writers of one path conflict.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import Conflict, listed
from runnel.lake import failpoints
from runnel.lake.files.file_rows import Part, Span, changed_paths, parts, reading, scan, values
from runnel.lake.files.file_table import current, opened
from runnel.lake.history.commits import Change, Commit, Version
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.publish import Draft, publish_again

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class Revision:
    """What a write does to the files of a table.

    `base` is the version that it was planned on; None where the table is new, and then `created` is its staged, empty
    version. `ours` gives the sha256 that each path shall have, None to remove it; `rows` are the paths among them,
    sorted, whose rows change; `files` hold their new rows.
    """

    base: Version | None
    ours: Mapping[str, str | None]
    rows: Sequence[str]
    files: Sequence[DataFile] = ()
    created: str | None = None


@dataclass(frozen=True)
class Holder:
    """A data file that holds some of the paths looked for, with their checksums, and how many live rows it has."""

    part: Part
    sums: dict[str, str]
    rows: int


class _Nothing(Exception):
    """What was to be removed is gone already."""


def lookup(store: "Store", metadata: TableMetadata, paths: Sequence[str]) -> list[Holder]:
    """Return the data files that hold any of these paths, which are sorted."""
    wanted, holders = set(paths), []
    for part in parts(store, metadata):
        sums: dict[str, str] = {}
        for _, _, table in scan(store, metadata, [part], ["path", "sha256"], among(paths)):
            for path, sha256 in zip(values(table, "path"), values(table, "sha256"), strict=True):
                if path in wanted:
                    sums[path] = sha256 or ""
        if sums:
            holders.append(Holder(part, sums, part.entry.file.record_count - len(part.gone)))
    return holders


def among(paths: Sequence[str]) -> Span:
    """Return a test of whether any of these sorted paths lies between two."""

    def span(lowest: str | None, highest: str | None) -> bool:
        first = 0 if lowest is None else bisect_left(paths, lowest)
        return first < len(paths) and (highest is None or paths[first] <= highest)

    return span


def land(store: "Store", branch: str, table: "TableName", revision: Revision, message: str, pin: str) -> Commit | None:
    """Publish a revision, on the newest version each time that somebody else was faster; None if nothing is left to do.

    Raises Conflict where somebody gave one of its paths other contents since its base.
    """
    copied: dict[Part, Sequence[DataFile]] = {}

    def draft() -> Draft:
        version = current(store, table, branch)
        if version is None and revision.base is not None:
            raise _replaced(table, branch)
        if version is not None and (revision.base is None or version.location != revision.base.location):
            _compare(store, branch, table, revision, version)
        start = version.location if version is not None else revision.created
        assert start is not None
        staged = stage(store, start, _edit(store, load(store, start), revision, copied))
        failpoints.reach(failpoints.FILES_BEFORE_PUBLISH)
        change = Change(table, version.location if version else None, staged)
        return Draft(branch, message, store.author, (change,), pin=pin)

    try:
        return publish_again(store.db, draft)
    except _Nothing:
        return None


def _compare(store: "Store", branch: str, table: "TableName", revision: Revision, version: Version) -> None:
    """Raise where the version that is there by now speaks against the revision."""
    before = revision.base.location if revision.base else None
    planned, there = load(store, before or str(revision.created)), opened(store, table, version)
    if there.schema().fields != planned.schema().fields or (before and there.table_uuid != planned.table_uuid):
        raise _replaced(table, branch)
    changed = changed_paths(store, before, version.location)
    against = sorted(path for path in changed.keys() & revision.ours.keys() if changed[path] != revision.ours[path])
    if against:
        raise Conflict(
            "FILES_CONFLICT",
            f"somebody else changed {listed(against)} in `{table}` on branch `{branch}` meanwhile; nothing was written",
            fix="look at theirs with `runnel get`, then repeat the command to replace it",
        )


def _edit(store: "Store", metadata: TableMetadata, revision: Revision, copied: dict[Part, Sequence[DataFile]]) -> Edit:
    holders = lookup(store, metadata, revision.rows)
    if not holders and not revision.files:
        raise _Nothing
    added = list(revision.files)
    for holder in holders:
        if holder.part not in copied:  # the same for every attempt to publish
            copied[holder.part] = _copy(store, metadata, holder)
        added += copied[holder.part]
    return Edit(added=added, removed=[holder.part.entry for holder in holders])


def _copy(store: "Store", metadata: TableMetadata, holder: Holder) -> list[DataFile]:
    """Write a data file anew without the paths that it is to lose."""
    if len(holder.sums) == holder.rows:
        return []
    writer = RowWriter(store, metadata)
    columns = [field.name for field in metadata.schema().fields]
    lost = pa.array(sorted(holder.sums), pa.large_string())
    with reading(store, metadata, holder.part) as reader:
        for group in range(reader.file.metadata.num_row_groups):
            for rows in reader.read(group, columns, batch_rows=1024):
                paths = rows["path"].cast(pa.large_string())
                writer.write(rows.filter(pc.invert(pc.is_in(paths, value_set=lost))))
    return writer.close()


def known_sums(holders: Iterable[Holder]) -> dict[str, str]:
    """Return the checksums of the paths that were found."""
    return {path: sha256 for holder in holders for path, sha256 in holder.sums.items()}


def _replaced(table: "TableName", branch: str) -> Conflict:
    what = f"`{table}` was dropped, created anew or given other columns on branch `{branch}` meanwhile"
    return Conflict("WRITE_TABLE_REPLACED", what, fix="repeat the command: it writes to the table that is there now")
