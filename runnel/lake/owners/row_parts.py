"""Compare and combine versions by parts of rows: the pieces of source files, wherever their rows are stored.

A part is what was written at once for one source file, or a data file whose rows no source file owns. A piece that was
moved to another data file, by a compaction or because other rows of its file were replaced, is the same part.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile

from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_runs import list_runs, load_footers

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class RowPart:
    """Rows that versions have or lack as a whole, and the files of one version that store them.

    Without an owner it is one file; its `key` is then the file's path, otherwise the piece.
    """

    key: str
    owner: str | None
    entries: tuple[FileEntry, ...]

    @property
    def is_data(self) -> bool:
        """Return whether it is rows, and not a delete file."""
        return self.entries[0].is_data


@dataclass(frozen=True)
class PartDelta:
    """The parts that only the newer of two versions has (`added`), or only the older one (`removed`), by key."""

    added: Mapping[str, RowPart]
    removed: Mapping[str, RowPart]

    @property
    def owners(self) -> set[str]:
        """Return the owners of rows that were added or removed."""
        return {part.owner for part in (*self.added.values(), *self.removed.values()) if part.owner is not None}


@dataclass(frozen=True)
class FileExcerpt:
    """The rows of some pieces of a shared data file of a version, which become a data file of their own."""

    location: str  # of the version
    entry: FileEntry
    pieces: frozenset[str]

    def write(self, store: "Store") -> DataFile | None:
        """Write the data file; None if no row is left."""
        from runnel.lake.owners.file_stripper import strip_pieces  # imports Arrow, which plans don't need

        return strip_pieces(store, load_metadata(store, self.location), self.entry, self.pieces)


@dataclass(frozen=True)
class FileEdit:
    """How the files of a version change: whole files of other versions, files to remove, and excerpts to write."""

    added: tuple[FileEntry, ...] = ()
    removed: tuple[FileEntry, ...] = ()
    excerpts: tuple[FileExcerpt, ...] = ()


def split_into_parts(store: "Store", entries: Iterable[FileEntry]) -> dict[str, RowPart]:
    """Return the parts that files consist of, by key."""
    all_entries = list(entries)
    load_footers(store, (entry for entry in all_entries if entry.is_data))
    parts: dict[str, RowPart] = {}
    for entry in all_entries:
        owners = {run.piece: run.owner for run in list_runs(store, entry)} if entry.is_data else {}
        if not owners:
            parts[entry.path] = RowPart(entry.path, None, (entry,))
        for piece, owner in owners.items():
            entries_before = parts[piece].entries if piece in parts else ()
            parts[piece] = RowPart(piece, owner, (*entries_before, entry))
    return parts


def compute_part_delta(store: "Store", added: Iterable[FileEntry], removed: Iterable[FileEntry]) -> PartDelta:
    """Return the parts in which versions differ, given their files that differ; moved pieces cancel out."""
    added_parts, removed_parts = split_into_parts(store, added), split_into_parts(store, removed)
    return PartDelta(
        {key: part for key, part in added_parts.items() if key not in removed_parts},
        {key: part for key, part in removed_parts.items() if key not in added_parts},
    )


def plan_part_edit(
    store: "Store", location: str, other_location: str, added: Iterable[RowPart], removed: Iterable[RowPart]
) -> FileEdit:
    """Return how a version gains parts of another version and loses some of its own.

    Parts that it has already are not added again, and parts that it lacks need not be removed.
    """
    added_parts, removed_parts = list(added), list(removed)
    unowned_added = [part.entries[0] for part in added_parts if part.owner is None]
    unowned_removed = [part.entries[0] for part in removed_parts if part.owner is None]
    added_pieces = {part.key for part in added_parts if part.owner is not None}
    removed_pieces = {part.key for part in removed_parts if part.owner is not None}
    if not added_pieces and not removed_pieces:
        return FileEdit(tuple(unowned_added), tuple(unowned_removed))
    live_parts = split_into_parts(
        store, (entry for entry in read_entries(store, load_metadata(store, location)) if entry.is_data)
    )
    added_pieces -= live_parts.keys() - removed_pieces
    removal = plan_piece_removal(
        store, location, _collect_entries(live_parts[key] for key in removed_pieces & live_parts.keys()), removed_pieces
    )
    source_entries = _collect_entries(part for part in added_parts if part.key in added_pieces)
    pieces_by_path = {entry.path: frozenset(run.piece for run in list_runs(store, entry)) for entry in source_entries}
    whole_entries = [entry for entry in source_entries if pieces_by_path[entry.path] <= added_pieces]
    excerpts = [
        FileExcerpt(other_location, entry, pieces_by_path[entry.path] & added_pieces)
        for entry in source_entries
        if not pieces_by_path[entry.path] <= added_pieces
    ]
    return FileEdit(
        (*unowned_added, *whole_entries), (*unowned_removed, *removal.removed), (*removal.excerpts, *excerpts)
    )


def plan_piece_removal(
    store: "Store", location: str, entries: Iterable[FileEntry], removed_pieces: Iterable[str]
) -> FileEdit:
    """Return how a version loses pieces that are stored in some of its files."""
    removed, excerpts, piece_set = list[FileEntry](), list[FileExcerpt](), frozenset(removed_pieces)
    for entry in entries:
        pieces = frozenset(run.piece for run in list_runs(store, entry))
        if pieces & piece_set:
            removed.append(entry)
            if pieces - piece_set:
                excerpts.append(FileExcerpt(location, entry, pieces - piece_set))
    return FileEdit((), tuple(removed), tuple(excerpts))


def plan_owner_removal(
    store: "Store", location: str, entries: Iterable[FileEntry], removed_owners: Iterable[str]
) -> FileEdit:
    """Return how a version loses all rows of owners that are stored in some of its data files."""
    owner_set, all_entries = frozenset(removed_owners), list(entries)
    load_footers(store, all_entries)
    pieces = {run.piece for entry in all_entries for run in list_runs(store, entry) if run.owner in owner_set}
    return plan_piece_removal(store, location, all_entries, pieces)


def write_excerpts(store: "Store", excerpts: Iterable[FileExcerpt]) -> list[DataFile]:
    """Write the excerpts of shared data files as data files."""
    return [file for excerpt in excerpts if (file := excerpt.write(store)) is not None]


def _collect_entries(parts: Iterable[RowPart]) -> list[FileEntry]:
    return list({entry.path: entry for part in parts for entry in part.entries}.values())
