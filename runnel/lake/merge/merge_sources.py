"""What two branches have read of a table's source since they parted: each file is taken once, though both read it.

Compares ingest positions. Reads the catalog database only, and never a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake.diff.content_id import is_sum, of_files
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.flow_state.ingest_positions import position

if TYPE_CHECKING:
    from runnel.lake.history.commits import Commit
    from runnel.lake.store import Store
    from runnel.names import TableName

Position = Mapping[str, Seen]


@dataclass(frozen=True)
class Sources:
    """The positions of both sides and of what they started from."""

    base: Position
    ours: Position
    theirs: Position

    @property
    def owners(self) -> dict[str, str]:
        """Return the file of the source that each data file holds rows of."""
        found = (self.base, self.ours, self.theirs)
        return {file: path for at in found for path, one in at.items() for file in one.files}

    @property
    def same(self) -> frozenset[str]:
        """Return the files that both sides read, or both let go, with the same outcome."""
        return frozenset(path for path in self._both() if _rows(self.ours, path) == _rows(self.theirs, path))

    @property
    def apart(self) -> frozenset[str]:
        """Return the files that both sides read with different contents."""
        return self._both() - self.same

    @property
    def paths(self) -> dict[str, str]:
        """Return the path of each owner of data files, see `Seen.owned`."""
        found = (self.base, self.ours, self.theirs)
        return {owner: path for at in found for path, seen in at.items() for owner in seen.owned}

    def renamed_apart(self) -> str | None:
        """Return why the positions can't be merged: two paths would claim the rows of one file, or nobody; else None.

        That is so where one side renamed a file that the other side renamed otherwise, changed or removed.
        """
        base, ours, theirs = (_places(at) for at in (self.base, self.ours, self.theirs))
        for owner in sorted({*ours, *theirs, *base}):
            before, mine, other = base.get(owner), ours.get(owner), theirs.get(owner)
            paths = {place[0] for place in (before, mine, other) if place}
            if mine != other and before not in (mine, other) and len(paths) > 1:
                return _renamed(paths)
        for path in sorted(_moved(self.base, self.ours) & _moved(self.base, self.theirs)):
            here, there = self.ours[path], self.theirs[path]
            if not here.is_gone and not there.is_gone and here.owned[0] != there.owned[0]:
                return _renamed({path})
        return None

    def taken(self, *, whole: bool = False) -> tuple[Seen, ...]:
        """Return what our position gains by a merge.

        Files that we have read since stay as they are here, also those that they only saw with another time. If our
        table becomes theirs as a `whole`, files that both have read are as they are there.
        """
        news = [path for path in self.theirs if self.theirs[path] != self.base.get(path)]
        kept = _moved(self.base, self.ours)
        kept -= _moved(self.base, self.theirs) if whole else set()
        return tuple(self.theirs[path] for path in sorted(news) if path not in kept)

    def content(self, ours: str, theirs: str) -> str | None:
        """Return the content of our table once it has taken their files; None where it is not the sum of its files."""
        if not (is_sum(ours) and is_sum(theirs)):
            return None
        paths = [one.path for one in self.taken()]
        came, went = ([_rows(at, path) for path in paths] for at in (self.theirs, self.ours))
        return of_files(ours, [text for text in came if text], [text for text in went if text])

    def _both(self) -> frozenset[str]:
        return frozenset(_moved(self.base, self.ours) & _moved(self.base, self.theirs))


def sources(store: "Store", base: "Commit", ours: "Commit", theirs: "Commit", table: "TableName") -> Sources:
    """Return what both sides have read for a table."""
    return store.db.read(
        lambda connection: Sources(*(position(connection, commit, table) for commit in (base, ours, theirs)))
    )


def _moved(base: Position, now: Position) -> set[str]:
    return {path for path in now if _rows(now, path) != _rows(base, path)}


def _places(at: Position) -> dict[str, tuple[str, str]]:
    """Return the path and the contents of the file that each owner of data files stands for, of those that are read."""
    return {owner: (path, seen.identity) for path, seen in at.items() if not seen.is_gone for owner in seen.owned}


def _renamed(paths: set[str]) -> str:
    named = " and ".join(sorted(paths))
    return f"{named}: a file was renamed on one side and read otherwise on the other; run both branches, then merge"


def _rows(at: Position, path: str) -> str | None:
    """Return what rows a file of the source has in the table; None where it has none."""
    one = at.get(path)
    return None if one is None or one.is_gone else one.identity
