"""Merge the ingest positions of two branches: a source file that both branches read is in the merged table once.

Reads the catalog database only, and never a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake.diff.content_id import content_of_files, is_file_sum
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_position

if TYPE_CHECKING:
    from runnel.lake.history.commits import Commit
    from runnel.lake.store import Store
    from runnel.names import TableName

IngestPosition = Mapping[str, ProcessedFile]


@dataclass(frozen=True)
class ThreeWayPositions:
    """The ingest positions of both sides and of their merge base."""

    base: IngestPosition
    ours: IngestPosition
    theirs: IngestPosition

    @property
    def paths_by_file(self) -> dict[str, str]:
        """Return the source file that each data file was recorded for; a shared one is recorded for many."""
        sides = (self.base, self.ours, self.theirs)
        return {file: path for side in sides for path, processed_file in side.items() for file in processed_file.files}

    @property
    def same_paths(self) -> frozenset[str]:
        """Return the paths that both sides read or removed since the base, with the same result."""
        return frozenset(
            path
            for path in self._changed_on_both()
            if _row_identity(self.ours, path) == _row_identity(self.theirs, path)
        )

    @property
    def differing_paths(self) -> frozenset[str]:
        """Return the paths that both sides read or removed since the base, with different results."""
        return self._changed_on_both() - self.same_paths

    @property
    def paths_by_owner(self) -> dict[str, str]:
        """Return the path of each owner of data files, see `Seen.owned`."""
        sides = (self.base, self.ours, self.theirs)
        return {
            owner: path
            for side in sides
            for path, processed_file in side.items()
            for owner in processed_file.all_owners
        }

    def describe_rename_conflict(self) -> str | None:
        """Return why the positions can't be merged, or None: two paths, or none, would own the rows of one file.

        That happens if one side renamed a file that the other side renamed differently, changed or removed.
        """
        base, ours, theirs = (_files_by_owner(side) for side in (self.base, self.ours, self.theirs))
        for owner in sorted({*ours, *theirs, *base}):
            base_place, our_place, their_place = base.get(owner), ours.get(owner), theirs.get(owner)
            paths = {place[0] for place in (base_place, our_place, their_place) if place}
            if our_place != their_place and base_place not in (our_place, their_place) and len(paths) > 1:
                return _describe_renames(paths)
        for path in sorted(_changed_paths(self.base, self.ours) & _changed_paths(self.base, self.theirs)):
            our_file, their_file = self.ours[path], self.theirs[path]
            if (
                not our_file.is_removed
                and not their_file.is_removed
                and our_file.all_owners[0] != their_file.all_owners[0]
            ):
                return _describe_renames({path})
        return None

    def gained_files(self, *, whole: bool = False) -> tuple[ProcessedFile, ...]:
        """Return the entries that a merge adds to our position.

        Files that our side read since the base keep our entry, even if theirs only differs in the modification time.
        If the merge takes their table as a `whole`, files that both sides read get their entry.
        """
        their_changes = [path for path in self.theirs if self.theirs[path] != self.base.get(path)]
        our_changes = _changed_paths(self.base, self.ours)
        our_changes -= _changed_paths(self.base, self.theirs) if whole else set()
        return tuple(self.theirs[path] for path in sorted(their_changes) if path not in our_changes)

    @property
    def has_gained_reads(self) -> bool:
        """Return whether their side read or removed a file that ours did not, even if the file has no rows."""
        paths = [processed_file.path for processed_file in self.gained_files()]
        return any(_row_identity(self.ours, path) != _row_identity(self.theirs, path) for path in paths)

    def content_after_merge(self, ours: str, theirs: str) -> str | None:
        """Return the content of our table after the merge of their files; None if it is not the sum of its files."""
        if not (is_file_sum(ours) and is_file_sum(theirs)):
            return None
        paths = [processed_file.path for processed_file in self.gained_files()]
        added, removed = ([_row_identity(side, path) for path in paths] for side in (self.theirs, self.ours))
        return content_of_files(ours, [text for text in added if text], [text for text in removed if text])

    def _changed_on_both(self) -> frozenset[str]:
        return frozenset(_changed_paths(self.base, self.ours) & _changed_paths(self.base, self.theirs))


def read_three_way_positions(
    store: "Store", base: "Commit", ours: "Commit", theirs: "Commit", table: "TableName"
) -> ThreeWayPositions:
    """Return the ingest positions of a table at the base and on both sides."""
    return store.db.read(
        lambda connection: ThreeWayPositions(
            *(read_position(connection, commit, table) for commit in (base, ours, theirs))
        )
    )


def _changed_paths(base: IngestPosition, current: IngestPosition) -> set[str]:
    return {path for path in current if _row_identity(current, path) != _row_identity(base, path)}


def _files_by_owner(side: IngestPosition) -> dict[str, tuple[str, str]]:
    """Return the path and identity of the source file of each owner of data files, without removed files."""
    return {
        owner: (path, processed_file.identity)
        for path, processed_file in side.items()
        if not processed_file.is_removed
        for owner in processed_file.all_owners
    }


def _describe_renames(paths: set[str]) -> str:
    path_text = " and ".join(sorted(paths))
    return (
        f"{path_text}: a file was renamed on one side and read differently on the other; run both branches, then merge"
    )


def _row_identity(side: IngestPosition, path: str) -> str | None:
    """Return the identity of the rows that a source file has in the table; None if it has none."""
    processed_file = side.get(path)
    return None if processed_file is None or processed_file.is_removed else processed_file.identity
