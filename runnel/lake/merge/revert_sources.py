"""Relate a revert to sources: which source file each data file belongs to, and the resulting position.

A revert removes or restores rows but keeps the position. So if the commit that created a source's table is undone, the
table stays, without rows; and restored rows belong to the source file that they were read from, whatever its name is
now.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.declare.model.flow import quarantine_table_of
from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.flow_state.ingest_position import STATE_PATH, ProcessedFile
from runnel.lake.flow_state.ingest_positions import has_ingested, read_position
from runnel.lake.history.commits import Commit, find_version
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_parts import compute_part_delta
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store

_QUARANTINE = "quarantine"
Position = Mapping[str, ProcessedFile]


@dataclass(frozen=True)
class RevertPositions:
    """The position of a file source before the commit that is undone, after it, and now."""

    source: TableName
    before: Position
    after: Position
    current: Position
    versions: tuple[
        tuple[TableVersion | None, TableVersion | None, TableVersion | None], ...
    ]  # of its table and its quarantine

    def find_file_read_since(self, store: "Store") -> str | None:
        """Return a file that the commit read and that was read again or released since; None if there is none.

        Examines the table and its quarantine together: a row may have moved from one to the other.
        """
        owners_by_commit, owners_since = set[str](), set[str]()
        for before, after, current in self.versions:
            owners_by_commit |= _list_changed_owners(store, before, after)
            owners_since |= _list_changed_owners(store, after, current)
        return min((self.paths.get(owner, owner) for owner in owners_by_commit & owners_since), default=None)

    @property
    def paths(self) -> dict[str, str]:
        """Return the newest known path of each owner of data files."""
        positions = (self.before, self.after, self.current)
        return {
            owner: path
            for file_position in positions
            for path, processed_file in file_position.items()
            for owner in processed_file.all_owners
        }

    @property
    def is_unchanged(self) -> bool:
        """Return whether each file is still recorded with the contents that it had after the commit."""
        return _map_identities(self.after) == _map_identities(self.current)

    def find_inherited_files(self, returning_owners: Collection[str]) -> tuple[ProcessedFile, ...]:
        """Return the position entries by which the rows of all returning owners belong to a path again.

        Their path now belongs to another file, or to one that counts as never read: that file inherits the rows.
        """
        current_owners = {owner for processed_file in self.current.values() for owner in processed_file.all_owners}
        inheriting: dict[str, ProcessedFile] = {}
        for path, processed_file in self.before.items():
            lost_owners = tuple(
                owner
                for owner in processed_file.all_owners
                if owner in returning_owners and owner not in current_owners
            )
            if lost_owners and path in self.current:
                current_file = self.current[path]
                inheriting[path] = replace(current_file, owners=(*current_file.all_owners, *lost_owners))
        return tuple(inheriting.values())


def read_source_positions(
    connection: Connection, source: TableName, parent: Commit, undone: Commit, tip: Commit
) -> RevertPositions | None:
    """Return the positions of a file source; None for any other table."""
    if not has_ingested(connection, tip, source, files=True):
        return None
    positions = (read_position(connection, commit, source) for commit in (parent, undone, tip))
    before, after, current = (
        {
            path: processed_file
            for path, processed_file in file_position.items()
            if path != STATE_PATH or not processed_file.state
        }
        for file_position in positions
    )
    versions = tuple(
        (
            find_version(connection, parent, table),
            find_version(connection, undone, table),
            find_version(connection, tip, table),
        )
        for table in (source, quarantine_table_of(source))
    )
    return RevertPositions(source, before, after, current, versions)


def find_source_table(store: "Store", table: TableName, versions: Iterable[TableVersion | None]) -> TableName:
    """Return the table that a source fills: the table itself, or the table that a quarantine table belongs to."""
    if table.layer != _QUARANTINE:
        return table
    location = next((version.location for version in versions if version is not None), None)
    source_name = (
        load_metadata(store, location).properties.get(table_properties.QUARANTINE_OF) if location is not None else None
    )
    return TableName.parse_unchecked(source_name) if source_name else table


def _list_changed_owners(store: "Store", before: TableVersion | None, after: TableVersion | None) -> set[str]:
    if before == after:
        return set()
    file_changes = compute_file_delta(store, before.location if before else None, after.location if after else None)
    return compute_part_delta(store, file_changes.added, file_changes.removed).owners


def list_returning_owners(store: "Store", before: str | None, after: str | None) -> set[str]:
    """Return the owners of the rows that a change adds to a table."""
    if after is None:
        return set()
    file_changes = compute_file_delta(store, before, after)
    added_parts = compute_part_delta(store, file_changes.added, file_changes.removed).added
    return {part.owner for part in added_parts.values() if part.owner is not None}


def stage_empty_version(store: "Store", version: TableVersion) -> TableVersion:
    """Return a version without rows; stage one if the version has rows."""
    live_entries = list(read_entries(store, load_metadata(store, version.location)))
    if not live_entries:
        return version
    location = stage_version(store, version.location, VersionEdit(removed=live_entries))
    return TableVersion(location, location)


def _map_identities(file_position: Position) -> dict[str, str]:
    return {
        owner: processed_file.identity
        for processed_file in file_position.values()
        if not processed_file.is_removed
        for owner in processed_file.all_owners
    }
