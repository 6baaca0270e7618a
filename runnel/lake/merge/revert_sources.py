"""What a revert has to know of sources: which file each data file belongs to, and what their position becomes.

A revert takes rows back and keeps the position. So the table of a source stays, though without rows, where the commit
that created it is undone; and rows that come back belong to the file that they were read from, whatever its name is.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.declare.model.flow import quarantine_of
from runnel.lake.diff.file_delta import delta
from runnel.lake.flow_state.ingest_position import STATE, Seen
from runnel.lake.flow_state.ingest_positions import has_ingested, position
from runnel.lake.history.commits import Commit, Version, version_at
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.data_file_owners import prefix_of
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import load
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store

_QUARANTINE = "quarantine"
Position = Mapping[str, Seen]


@dataclass(frozen=True)
class ReadFiles:
    """The position of a source of files before the commit that is undone, after it, and now."""

    source: TableName
    before: Position
    after: Position
    now: Position
    versions: tuple[tuple[Version | None, Version | None, Version | None], ...]  # of its table and its quarantine

    def read_since(self, store: "Store") -> str | None:
        """Return a file that the commit read and that was read again, or its rows released, since; None if none was.

        Its table and its quarantine are looked at together: a row that left one may have come to the other.
        """
        by_commit, since = set[str](), set[str]()
        for before, after, now in self.versions:
            by_commit |= _owners_apart(store, before, after)
            since |= _owners_apart(store, after, now)
        return min((self.paths.get(owner, owner) for owner in by_commit & since), default=None)

    @property
    def paths(self) -> dict[str, str]:
        """Return the path of each owner of data files, the newest that is known."""
        found = (self.before, self.after, self.now)
        return {owner: path for at in found for path, seen in at.items() for owner in seen.owned}

    @property
    def is_same(self) -> bool:
        """Tell whether each file counts as read now with what it had after the commit."""
        return _contents(self.after) == _contents(self.now)

    def inherited(self, back: Collection[str]) -> tuple[Seen, ...]:
        """Return what is recorded so that the rows of every owner that come `back` belong to a path of the position.

        Their path is another file's by now, or one that counts as never read: it inherits them.
        """
        owned = {owner for seen in self.now.values() for owner in seen.owned}
        found: dict[str, Seen] = {}
        for path, seen in self.before.items():
            lost = tuple(owner for owner in seen.owned if owner in back and owner not in owned)
            if lost and path in self.now:
                now = self.now[path]
                found[path] = replace(now, owners=(*now.owned, *lost))
        return tuple(found.values())


def read_files(
    connection: Connection, source: TableName, parent: Commit, undone: Commit, tip: Commit
) -> ReadFiles | None:
    """Return the positions of a source of files; None for any other table."""
    if not has_ingested(connection, tip, source, files=True):
        return None
    found = (position(connection, commit, source) for commit in (parent, undone, tip))
    before, after, now = ({path: seen for path, seen in at.items() if path != STATE or not seen.state} for at in found)
    versions = tuple(
        (
            version_at(connection, parent, table),
            version_at(connection, undone, table),
            version_at(connection, tip, table),
        )
        for table in (source, quarantine_of(source))
    )
    return ReadFiles(source, before, after, now, versions)


def source_of(store: "Store", table: TableName, versions: Iterable[Version | None]) -> TableName:
    """Return the table that a source fills: the table itself, or the one that a quarantine table is of."""
    if table.layer != _QUARANTINE:
        return table
    location = next((version.location for version in versions if version is not None), None)
    of = load(store, location).properties.get(table_properties.QUARANTINE_OF) if location is not None else None
    return TableName.stored(of) if of else table


def _owners_apart(store: "Store", before: Version | None, after: Version | None) -> set[str]:
    if before == after:
        return set()
    found = delta(store, before.location if before else None, after.location if after else None)
    named = (prefix_of(entry.path) for entry in (*found.added, *found.removed) if entry.is_data)
    return {owner for owner in named if owner}


def owners_back(store: "Store", before: str | None, after: str | None) -> set[str]:
    """Return the owners of the data files that a change brings to a table."""
    if after is None:
        return set()
    found = delta(store, before, after).added
    return {owner for entry in found if entry.is_data and (owner := prefix_of(entry.path))}


def emptied(store: "Store", version: Version) -> Version:
    """Return a version without rows, staged where there are any."""
    live = list(entries(store, load(store, version.location)))
    if not live:
        return version
    location = stage(store, version.location, Edit(removed=live))
    return Version(location, location)


def _contents(at: Position) -> dict[str, str]:
    return {owner: seen.identity for seen in at.values() if not seen.is_gone for owner in seen.owned}
