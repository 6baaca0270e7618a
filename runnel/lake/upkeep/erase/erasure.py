"""The work of one erasure: which versions and files it touches, and what stands in their place.

Reads the lake and stages new files; nothing points at them until they are published. Asked again after the table has
moved, it treats only what is new.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import Broken, RunnelError, listed
from runnel.lake import failpoints
from runnel.lake.diff.content_id import is_location
from runnel.lake.flow_state.append_log import TAPE_LAYER
from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import Entry
from runnel.lake.iceberg.table_metadata import check_writable
from runnel.lake.scan.scan_sql import Unscannable, spelled
from runnel.lake.upkeep import position_deletes
from runnel.lake.upkeep.append_log_rewrite import TapeRewriter
from runnel.lake.upkeep.compact.file_selection import is_inside
from runnel.lake.upkeep.erase import row_matches
from runnel.lake.upkeep.erase.condition import Condition
from runnel.lake.upkeep.erase.file_stripper import stripped
from runnel.lake.upkeep.erase.version_references import Swap, Trail, sharing, trail
from runnel.lake.upkeep.erase.version_rewriter import Held, Library, Rewriter
from runnel.lake.upkeep.gc.mark import Mark, key
from runnel.lake.upkeep.gc.retained_commits import unexpired, uses

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store
    from runnel.names import TableName

Progress = Callable[[str, int, int | None], None]
Replaced = Mapping[str, DataFile | None]


class Erasure:
    """One erasure of rows from a table."""

    def __init__(self, store: "Store", table: "TableName", condition: Condition, progress: Progress | None) -> None:
        self.store = store
        self.table = table
        self.condition = condition
        self.names: set[str] = {str(table)}
        self.held: dict[str, Held] = {}
        self.gone: set[str] = set()  # versions of expired commits that were swept
        self.affected: list[str] = []
        self._progress = progress
        self._trail = Trail((), (), (), ())
        self._needed: set[str] = set()  # versions that must be readable
        self._absent: set[str] = set()  # files that only swept versions list
        self._doomed: list[str] = []
        self.rows_by_branch: dict[str, int] = {}  # how many rows the newest version of each branch loses
        self._current: dict[str, np.ndarray[Any, Any]] = {}  # their places, by file
        self._matches = row_matches.Matches()
        self._delete_names: dict[str, frozenset[str]] = {}
        self._touched: set[str] = set()  # data files to be written anew or dropped
        self._staged_for: set[str] = set()
        self._untold: set[str] = set()  # data files that only manifests remember, with the bounds of their values
        self._made: dict[tuple[str, frozenset[str]], DataFile | None] = {}
        self._emptied: dict[tuple[str, frozenset[str]], DataFile] = {}  # files without rows, for tapes
        self._replaced: dict[str, dict[str, DataFile | None]] = {}
        self._swapped: dict[str, str] = {}
        self._library, self._rewriter = Library(store), Rewriter(store)

    @property
    def newest(self) -> TableMetadata:
        """Return the newest version of the table, main's first; one of its old ones where no branch has it."""
        newest = [location for location in self._trail.newest if location in self.held]
        return self.held[(newest or sorted(self.held))[0]].metadata

    @property
    def is_empty(self) -> bool:
        """Tell whether no row matches."""
        return not self._matches.places

    @property
    def rows(self) -> int:
        """Return how many rows match in the newest versions of branches; one that branches share counts once."""
        return sum(len(found) for found in self._current.values())

    @property
    def copies(self) -> int:
        """Return how many rows match in all files of all versions: each file that a row was copied to counts."""
        return sum(len(found) for found in self._matches.places.values())

    @property
    def files(self) -> int:
        """Return how many data files hold such rows."""
        return len(self._matches.places)

    @property
    def blobs(self) -> set[str]:
        """Return the blobs that erased rows refer to, as names below the warehouse."""
        return self._matches.blobs

    @property
    def treated(self) -> frozenset[str]:
        """Return every version that was looked at."""
        return frozenset(self.held) | frozenset(self.gone)

    def look(self) -> None:
        """Find the versions that are named now, the rows that match, and the versions that have to change."""
        self._read_versions()
        newest = [self.held[location] for location in self._trail.newest if location in self.held]
        columns = row_matches.Columns(self.condition, newest, self.held.values())
        try:
            row_matches.find(self.store, self.condition, columns, self.held.values(), self._matches, self._told("look"))
        except Unscannable as error:
            raise _needs_spark(error.what) from error
        outside = [path for path in self._matches.places if not is_inside(self.store, path)]
        if outside:
            raise RunnelError(
                "ERASE_OUTSIDE_FILE",
                f"{listed([plain(path) for path in sorted(outside)])} hold rows to be erased, but were registered in "
                "place and are not Runnel's to change",
                fix="bring them in with `runnel compact --force`, let gc expire the commits that hold them, then erase",
            )
        if not self.is_empty:
            self._spread()
        self._count_rows()
        self.affected = [location for location, held in self.held.items() if self._is_touched(held)]

    def stage(self) -> None:
        """Write the files and versions that are missing yet."""
        told = self._told("write")
        if self._staged_for != self._touched:  # a version that came up brought more files into it
            self._swapped, self._replaced, self._staged_for = {}, {}, set(self._touched)
        wanted = [location for location in self.affected if location not in self._swapped]
        for location in wanted:
            self._replaced[location] = self._replacement(self.held[location])
        failpoints.reach(failpoints.ERASE_FILES)
        for done, location in enumerate(wanted, 1):
            held, replaced = self.held[location], self._replaced[location]
            if location in self._tapes:
                self._swapped[location] = TapeRewriter(self.store, held, replaced).rewritten()
            else:
                self._swapped[location] = self._rewriter.rewritten(held, replaced)
            told(done, len(wanted))
        self._doomed = self._unneeded()

    def swap(self) -> Swap:
        """Return what stands for what once this is published."""
        contents = dict(self._swapped)
        for step in self._trail.steps:
            # The version that a compaction kept as its content may be swept; its rows still have to get a new name.
            # So have rows that are known by a sum over them or over the files that they came from.
            if step.content and step.after in self._swapped and not self._is_held(step.content):
                contents.setdefault(step.content, self._swapped[step.after])
        files = {
            location: {path: file.file_path if file else None for path, file in replaced.items()}
            for location, replaced in self._replaced.items()
        }
        return Swap(self._swapped, contents, files)

    def renamed(self) -> dict[str, list[str]]:
        """Return the files that stand for each data file that had to change, in any version."""
        found: dict[str, list[str]] = {}
        for replaced in self._replaced.values():
            for path, file in replaced.items():
                known = found.setdefault(path, [])
                if file is not None and file.file_path not in known:
                    known.append(file.file_path)
        return found

    @property
    def unchanged(self) -> frozenset[str]:
        """Return the versions that were looked at and have no such rows."""
        return frozenset(self.held) - frozenset(self._swapped)

    def doomed(self) -> list[str]:
        """Return the files that hold erased rows or tell of them, and that no version needs any more."""
        return self._doomed

    @property
    def streams(self) -> list[str]:
        """Return the streams whose tapes hold files that have to change."""
        return sorted({row.stream for row in self._trail.tapes if row.tape.location in self.affected})

    @property
    def _tapes(self) -> frozenset[str]:
        """Return the versions that are tapes, those of streams and those that slots still have."""
        return self._trail.tape_locations | {
            place.location for place in self._trail.places if place.layer == TAPE_LAYER
        }

    def _is_held(self, content: str) -> bool:
        return is_location(content) and content not in self.gone

    def _unneeded(self) -> list[str]:
        mark = Mark(self.store)
        # What only results name is forgotten with them.
        named = self._needed | {place.location for place in self._trail.places}
        dying = {location for made in self._trail.results for location in made.own} - named
        kept = {self._swapped.get(location, location): location for location in self.held if location not in dying}
        lost = mark.readable(kept)
        for location in kept:
            if kept[location] in self._tapes and location not in lost:
                mark.older_snapshots(location)
        if lost:  # swept since they were read, which is no harm to versions that nobody needs any more
            _, needed = self.store.db.read(self._named)
            mark.versions(location for location in lost if kept[location] in needed)
        found = {path for path in self._touched if is_inside(self.store, path)}
        for location in self.affected:
            held = self.held[location]
            found |= {location} | held.lists() | set(self._replaced[location])
            found |= {entry.statistics_path for entry in held.metadata.statistics}
            found |= {entry.statistics_path for entry in held.metadata.partition_statistics}
            found |= {at.manifest.manifest_path for at in (*held.current, *held.older)}
        inside = {key(path) for path in found if is_inside(self.store, path)}
        return sorted(path for path in inside if not mark.needs(path))

    def _read_versions(self) -> None:
        self._trail, self._needed = self.store.db.read(self._named)
        wanted = sorted(self._trail.locations - self.treated)
        if not self._trail.locations:
            raise self.store.unknown(self.table, self.store.commit())
        told = self._told("read")
        for done, location in enumerate(wanted, 1):
            try:
                self.held[location] = self._library.held(location)
            except Broken:
                if location in self._needed:
                    raise
                self.gone.add(location)  # its commits have expired, and gc has swept it
            told(done, len(wanted))
        folders = {held.metadata.location for held in self.held.values()}
        names = self.store.db.read(lambda connection: sharing(connection, folders))
        if not names <= self.names:
            self.names |= names
            self._read_versions()
        self._note_absent()

    def _note_absent(self) -> None:
        """Note files that are gone, though versions that nobody needs any more still list them."""
        held = [self.held[location] for location in self._needed & self.held.keys()]
        kept = {entry.path for version in held for at in version.current for entry in at.live}
        others = {entry.path for version in self.held.values() for entry in _entries(version)} - kept
        self._absent |= {path for path in others if not self.store.io.new_input(path).exists()}
        self._matches.tested |= self._absent

    def _named(self, connection: "Connection") -> tuple[Trail, set[str]]:
        found = trail(connection, self.names)
        kept = {use.location for use in uses(connection, unexpired(connection)) if use.table in self.names}
        ours = {place.location for place in found.places if place.catalog in found.branches}
        ours |= {location for row in found.tapes for location in (row.tape.location, row.tape.reached)}
        return found, kept | ours | {head.location for head in found.heads}

    def _spread(self) -> None:
        """Note every file that has to change because rows match."""
        for held in self.held.values():
            check_writable(held.metadata)
        entries = {
            entry.path: entry
            for held in self.held.values()
            for entry in _entries(held)
            if entry.path not in self._absent
        }
        deletes = [entry for entry in entries.values() if not entry.is_data]
        if any(entry.is_equality_delete or entry.file.file_format != FileFormat.PARQUET for entry in deletes):
            raise _needs_spark("the table has equality deletes or deletion vectors, written by another engine")
        self._delete_names |= position_deletes.named(
            [entry for entry in deletes if entry.path not in self._delete_names]
        )
        self._touched |= set(self._matches.places)
        spelling = {spelled(path): path for path, entry in entries.items() if entry.is_data}
        self._follow(deletes, spelling)
        removed = {path for held in self.held.values() for at in (*held.current, *held.older) for path in at.removed}
        self._untold = removed - entries.keys() - self._absent

    def _follow(self, deletes: list[Entry], spelling: Mapping[str, str]) -> None:
        """Take in what else a delete file names that keeps copies of rows: it can go only with all of them."""
        grown = True
        while grown:
            before = len(self._touched)
            names = {spelled(path) for path in self._touched}
            for delete in deletes:
                if self._delete_names[delete.path] & names and position_deletes.holds_rows(delete):
                    self._touched |= {spelling[name] for name in self._delete_names[delete.path] if name in spelling}
            grown = len(self._touched) > before

    def _is_touched(self, held: Held) -> bool:
        wanted = self._touched | self._untold
        return any(
            not wanted.isdisjoint(at.removed) or any(entry.path in wanted for entry in at.live)
            for at in (*held.current, *held.older)
        )

    def _replacement(self, held: Held) -> dict[str, DataFile | None]:
        """Return what stands in a version in the place of each file that has to change."""
        live = {entry.path: entry for at in held.current for entry in at.live}
        deletes = [entry for entry in live.values() if not entry.is_data]
        replaced: dict[str, DataFile | None] = dict.fromkeys(self._touched | self._untold)
        for path in self._touched & live.keys():
            applied = [delete for delete in deletes if position_deletes.apply(delete, live[path], self._delete_names)]
            replaced[path] = self._without(held, live[path], applied, keep_empty=held.location in self._tapes)
        names = {spelled(path) for path in self._touched}
        kept = {spelled(path) for path, entry in live.items() if entry.is_data} - names
        for delete in deletes:
            named = self._delete_names.get(delete.path, frozenset())
            if named & names and not named & kept:
                replaced[delete.path] = None
        return replaced

    def _without(self, held: Held, entry: Entry, deletes: list[Entry], *, keep_empty: bool) -> DataFile | None:
        """Return a file without the rows to be erased and those that are deleted, whose places would not fit it."""
        known = (entry.path, frozenset(delete.path for delete in deletes))
        if known not in self._made or (keep_empty and self._made[known] is None and known not in self._emptied):
            found = self._matches.places.get(entry.path, np.empty(0, dtype=np.int64))
            gone = np.union1d(found, position_deletes.positions(deletes, entry))
            made, rows = stripped(self.store, held.metadata, entry, gone, keep_empty=keep_empty)
            self._made[known] = made if rows else None
            if made is not None and not rows:
                self._emptied[known] = made
        return self._emptied.get(known) if keep_empty and self._made[known] is None else self._made[known]

    def _count_rows(self) -> None:
        self.rows_by_branch, self._current = {}, {}
        for head in self._trail.heads:
            if head.location not in self.held:
                continue
            visible = dict(self._visible(self.held[head.location]))
            count = sum(len(found) for found in visible.values())
            self.rows_by_branch[head.branch] = self.rows_by_branch.get(head.branch, 0) + count
            for path, found in visible.items():
                self._current[path] = np.union1d(found, self._current.get(path, found))

    def _visible(self, held: Held) -> Iterator[tuple[str, "np.ndarray[Any, Any]"]]:
        """Yield the places of the rows that each file of a version loses, of those that a reader of it sees."""
        live = {entry.path: entry for at in held.current for entry in at.live}
        deletes = [entry for entry in live.values() if not entry.is_data]
        for path in self._matches.places.keys() & live.keys():
            applied = [delete for delete in deletes if position_deletes.apply(delete, live[path], self._delete_names)]
            found = self._matches.places[path]
            yield path, np.setdiff1d(found, position_deletes.positions(applied, live[path])) if applied else found

    def _told(self, what: str) -> Callable[[int, int], None]:
        def told(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(f"erase {self.table}: {what}", done, total)

        return told


def _entries(held: Held) -> Iterator[Entry]:
    for at in (*held.current, *held.older):
        yield from at.live


def _needs_spark(what: str) -> RunnelError:
    fix = "rewrite the table's files with Spark, let gc remove the versions before, then erase"
    return RunnelError("ERASE_NEEDS_SPARK", f"can't erase: {what}", fix=fix)
