"""What a source's files mean for its table: which are read, whose rows go, which only moved. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.iceberg.data_file_owners import prefix

Position = Callable[[], Mapping[str, Seen]]
"""Asks for everything that was read of a source, by path."""


@dataclass(frozen=True)
class Arrival:
    """A file that is there, and what its rows are known by.

    `replaces` is what was read before in its place, if anything: its rows go, where the table still has them.
    `owners` say how the names of its data files start, see `Seen.owned`.
    """

    path: str
    size: int
    modified_ns: int
    sha256: str
    identity: str
    replaces: Seen | None = None
    owners: tuple[str, ...] = ()

    @property
    def owned(self) -> tuple[str, ...]:
        """Return how the names of all data files start that hold rows of it; what is written starts with the first."""
        return self.owners or (prefix(self.path),)

    def seen(self, files: tuple[str, ...], *, is_incomplete: bool = False) -> Seen:
        """Return what is recorded of it, its rows being in these data files."""
        return Seen(
            self.path,
            self.size,
            self.modified_ns,
            self.sha256,
            self.identity,
            files,
            owners=self.owned,
            is_incomplete=is_incomplete,
        )


@dataclass(frozen=True)
class Found:
    """What is to be done for a source: read `new` and `changed`, take away the rows of `gone`.

    `renamed` and `touched` files have the rows that are there already; only their position moves. `content` is the
    table's afterwards, None where it can't be said without reading; `before` is its content now. `looked_ns` is the
    time before the first file was looked into. `problem` says why there is nothing at all. `left` are the files
    that are left alone for now, since they are still being written. `forgotten` were read for a table of this name
    that is no more.
    """

    new: tuple[Arrival, ...] = ()
    changed: tuple[Arrival, ...] = ()
    gone: tuple[Seen, ...] = ()
    renamed: tuple[tuple[Seen, Arrival], ...] = ()
    touched: tuple[tuple[Seen, Arrival], ...] = ()
    unchanged: int = 0
    before: str | None = None
    content: str | None = None
    looked_ns: int = 0
    problem: str | None = None
    left: tuple[str, ...] = ()
    forgotten: tuple[Seen, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether the table's rows stay as they are."""
        return not (self.new or self.changed or self.gone)

    @property
    def reads(self) -> tuple[Arrival, ...]:
        """Return the files to read, by path."""
        return tuple(sorted((*self.new, *self.changed), key=lambda arrival: arrival.path))

    @property
    def is_reread(self) -> bool:
        """Tell whether files are read in another way than they were."""
        pairs = [(arrival.replaces, arrival) for arrival in self.reads if arrival.replaces is not None]
        return any(old.identity.partition(":")[2] != now.identity.partition(":")[2] for old, now in pairs)

    @property
    def bytes(self) -> int:
        """Return how much is to be read."""
        return sum(arrival.size for arrival in self.reads)

    @property
    def replaced(self) -> tuple[Seen, ...]:
        """Return what was read before and whose rows go."""
        return (*(arrival.replaces for arrival in self.reads if arrival.replaces is not None), *self.gone)

    @property
    def moved(self) -> tuple[Seen, ...]:
        """Return what has to be recorded though no rows change: files under a new name, or with a new time."""
        there = {arrival.path for arrival in self.reads} | {arrival.path for _, arrival in self.renamed}
        left = [old.removed() for old, _ in self.renamed if old.path not in there]
        kept = [
            arrival.seen(old.files, is_incomplete=old.is_incomplete) for old, arrival in (*self.renamed, *self.touched)
        ]
        return (*left, *kept)

    def without(self, paths: Collection[str]) -> "Found":
        """Return what is to be done where some files are left alone; their rows, if any, stay as they are."""
        return replace(
            self,
            new=tuple(arrival for arrival in self.new if arrival.path not in paths),
            changed=tuple(arrival for arrival in self.changed if arrival.path not in paths),
            gone=tuple(old for old in self.gone if old.path not in paths),
            content=None,
            left=tuple(sorted({*self.left, *paths})),
        )

    def position(self, files: Mapping[str, tuple[str, ...]], incomplete: Collection[str] = ()) -> tuple[Seen, ...]:
        """Return everything to record once the table has the rows, given the data files of each path that was read.

        `incomplete` are the paths of files that were not read whole. Where a version with this content was known and
        nothing was read, the files are not known: give none.
        """
        found = {old.path: old.removed() for old in self.forgotten}
        found |= {old.path: replace(old, is_gone=True, owners=old.owned) for old in self.gone}
        for arrival in self.reads:
            old = arrival.replaces
            if old is not None and old.path != arrival.path:
                found[old.path] = old.removed()
        found |= {seen.path: seen for seen in self.moved}
        for arrival in self.reads:
            rows = files.get(arrival.path, ())
            found[arrival.path] = arrival.seen(rows, is_incomplete=arrival.path in incomplete)
        return tuple(found.values())
