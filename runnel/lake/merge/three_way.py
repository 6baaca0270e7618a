"""Combine two changes of one table, file by file, without computing anything.

Both start from one version. Partition by partition: what only one side changed is taken from it; where both only
appended, both appends are taken; where one side only compacted, the other one's change is taken; a change that both
made is taken once. Anything else clashes. Position deletes belong to the partition of their rows and go along.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.table.update import TableUpdate

from runnel.lake.diff.file_delta import Delta, delta
from runnel.lake.iceberg.data_file_owners import prefix_of
from runnel.lake.iceberg.manifests import Entry
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_definition import Clash, combined_properties, definition
from runnel.lake.iceberg.table_metadata import Unwritable, check_writable, load
from runnel.lake.scan.scan_sql import partition_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.merge.merge_sources import Sources
    from runnel.lake.store import Store

Key = tuple[int, object] | str | None
"""A partition, by its spec and values; None is the whole table, where partitions can't be compared.

Text is a file of the table's source, whose rows have data files of their own.
"""


@dataclass(frozen=True)
class Step:
    """One change of a table in a history; `rewrites` tells that its rows stayed the same."""

    before: str | None
    after: str | None
    rewrites: bool


@dataclass(frozen=True)
class Side:
    """One of the two versions: what it is called in reasons, and the history that led to it, read when needed."""

    name: str
    location: str
    steps: Callable[[], Sequence[Step]] = field(default=lambda: (), compare=False)


@dataclass(frozen=True)
class Replay:
    """A version to start from and the edit that brings the other side's change to it."""

    onto: str
    taken: tuple[Entry, ...] = ()
    removed: tuple[Entry, ...] = ()
    updates: tuple[TableUpdate, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether the version to start from has everything already."""
        return not (self.taken or self.removed or self.updates)

    @property
    def result(self) -> tuple[object, ...]:
        """Return what two replays share if they make the same version."""
        paths = (frozenset(entry.path for entry in found) for found in (self.taken, self.removed))
        return (self.onto, *paths, str(self.updates))

    def stage(self, store: "Store") -> str:
        """Write the version and return its location; nothing points at it yet."""
        return stage(store, self.onto, Edit(taken=self.taken, removed=self.removed, updates=self.updates))


@dataclass(frozen=True)
class _Part:
    """What one side did to one partition, by path."""

    added: dict[str, Entry] = field(default_factory=dict)
    removed: dict[str, Entry] = field(default_factory=dict)

    @property
    def appends(self) -> bool:
        return not self.removed and all(entry.is_data for entry in self.added.values())

    @property
    def undoes_append(self) -> bool:
        return not self.added and all(entry.is_data for entry in self.removed.values())

    @property
    def paths(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(self.added), frozenset(self.removed)


def replay(
    store: "Store",
    base: str,
    ours: Side,
    theirs: Side,
    *,
    undo: bool = False,
    read: "Sources | None" = None,
    paths: Mapping[str, str] | None = None,
) -> Replay:
    """Return how to bring what `theirs` changed since `base` to `ours`, or raise Clash.

    The result starts from the side that changed columns or partitions, if one did. With `undo` the change is a commit
    turned round: files that it appended go, whatever others did since, as long as they are still there. Rows that
    came from files of a source are told apart by them: `read` says what both sides have read. For an undo `paths` does,
    by the owners of data files: a file that was read again since clashes.
    """
    start, other = _roles(store, base, ours, theirs, undo)
    mine, news = delta(store, base, start.location), delta(store, base, other.location)
    for side, found in ((start, mine), (other, news)):
        if any(entry.is_equality_delete for entry in (*found.added, *found.removed)):
            raise Clash(f"rows were deleted by value on {side.name}, by another engine")
    specs = {entry.file.spec_id for found in (mine, news) for entry in (*found.added, *found.removed)}
    whole = len(specs) > 1
    if not specs <= load(store, start.location).specs().keys():
        raise Clash(f"{start.name} no longer knows a partition spec that {other.name} has files of")
    updates = combined_properties(*(load(store, at).properties for at in (base, start.location, other.location)))
    owners = _owners(read, mine, news) if paths is None else _paths_of(paths, mine, news)
    parts = _Parts(
        store,
        start,
        other,
        _by_partition(mine, whole, owners),
        _by_partition(news, whole, owners),
        whole,
        undo,
        owners,
        read.same if read else frozenset(),
        read.apart if read else frozenset(),
    )
    taken: list[Entry] = []
    removed: list[Entry] = []
    for key in parts.news:
        came, went = parts.resolve(key)
        taken += came
        removed += went
    made = Replay(start.location, tuple(taken), tuple(removed), updates)
    try:
        if not made.is_empty:
            check_writable(load(store, start.location))
    except Unwritable as error:
        raise Clash(error.what) from error
    return made


def _roles(store: "Store", base: str, ours: Side, theirs: Side, undo: bool) -> tuple[Side, Side]:
    """Return the side to start from and the side to bring: who changed the definition of the table stays whole."""
    was, mine, news = (load(store, location) for location in (base, ours.location, theirs.location))
    for side, metadata in ((ours, mine), (theirs, news)):
        if metadata.table_uuid != was.table_uuid:
            raise Clash(f"it was dropped and created anew on {side.name}")
    before, here, there = definition(was), definition(mine), definition(news)
    if there in (before, here):
        return ours, theirs
    if undo:
        # Files written since hold columns under ids that the old schema would give away again.
        raise Clash("the commit changed its columns, partitions or order, and rows were written since")
    if here == before:
        return theirs, ours
    raise Clash("both sides changed its columns, partitions or order")


def _owners(read: "Sources | None", mine: Delta, news: Delta) -> Mapping[str, str]:
    """Return which file of the source each data file belongs to; deletes belong to partitions, so none may be there."""
    if read is None:
        return {}
    if all(entry.is_data for found in (mine, news) for entry in (*found.added, *found.removed)):
        return {**_paths_of(read.paths, mine, news), **read.owners}
    if both := sorted(read.same | read.apart):
        raise Clash(f"both sides read {both[0]}, and rows were deleted by another engine")
    return {}


def _paths_of(paths: Mapping[str, str], mine: Delta, news: Delta) -> dict[str, str]:
    """Return which file of the source each data file belongs to, by how its name starts."""
    found = (entry.path for side in (mine, news) for entry in (*side.added, *side.removed) if entry.is_data)
    return {path: paths[owner] for path in found if (owner := prefix_of(path) or "") in paths}


def _by_partition(found: Delta, whole: bool, owners: Mapping[str, str]) -> dict[Key, _Part]:
    parts: dict[Key, _Part] = {}
    for entry in found.added:
        parts.setdefault(_key(entry, whole, owners), _Part()).added[entry.path] = entry
    for entry in found.removed:
        parts.setdefault(_key(entry, whole, owners), _Part()).removed[entry.path] = entry
    return parts


def _key(entry: Entry, whole: bool, owners: Mapping[str, str]) -> Key:
    return owners.get(entry.path) or (None if whole else partition_of(entry))


@dataclass(frozen=True)
class _Parts:
    """Both sides' changes, by partition."""

    store: "Store"
    start: Side
    other: Side
    mine: Mapping[Key, _Part]
    news: Mapping[Key, _Part]
    whole: bool
    undo: bool
    owners: Mapping[str, str]
    same: frozenset[str]
    apart: frozenset[str]
    _told: dict[str, dict[Key, bool]] = field(default_factory=dict)

    def resolve(self, key: Key) -> tuple[Iterable[Entry], Iterable[Entry]]:
        """Return the files that the start must take and lose in one partition."""
        mine, news = self.mine.get(key, _Part()), self.news[key]
        if mine.paths == news.paths or key in self.same:
            return (), ()
        if key in self.apart:
            raise Clash(f"both sides read {key}, with different contents")
        if not (mine.added or mine.removed):
            return news.added.values(), news.removed.values()
        if self.undo and isinstance(key, str):
            raise Clash(f"{key} was read again since, or its rows were released or taken back")
        if mine.appends and news.appends:
            return _absent(news.added, mine.added), ()
        if self.undo and news.undoes_append and not news.removed.keys() & mine.removed.keys():
            return (), news.removed.values()
        return self._despite_rewrites(key, mine, news)

    def _despite_rewrites(self, key: Key, mine: _Part, news: _Part) -> tuple[Iterable[Entry], Iterable[Entry]]:
        """Resolve a partition in which files went: did rows change, or was it compacted?"""
        we_appended, they_appended = self._appended(self.start, key), self._appended(self.other, key)
        if they_appended is None:
            return (), ()
        if we_appended is None:  # only compacted here: the partition becomes what it is there
            came = [*_absent(news.added, mine.added), *_absent(mine.removed, news.removed)]
            return came, [*_absent(mine.added, news.added), *_absent(news.removed, mine.removed)]
        if we_appended and they_appended:
            if news.appends:
                return _absent(news.added, mine.added), ()
            if mine.appends:
                return _absent(news.added, mine.added), news.removed.values()
            raise Clash(f"both sides appended to and compacted {self._named(key)}")
        raise Clash(f"both sides changed {self._named(key)}")

    def _appended(self, side: Side, key: Key) -> bool | None:
        """Tell whether a side only appended to a partition, compactions left out; None: it did nothing to it."""
        if side.name not in self._told:
            self._told[side.name] = self._history(side)
        return self._told[side.name].get(key)

    def _history(self, side: Side) -> dict[Key, bool]:
        steps = side.steps()
        found: dict[Key, bool] = {}
        several_specs = len(load(self.store, side.location).partition_specs) > 1 and not self.whole
        if several_specs or not any(step.rewrites for step in steps):
            # A compaction may carry rows into another spec, where the steps before it would not be found.
            direct = self.mine if side is self.start else self.news
            return {key: part.appends for key, part in direct.items()}
        for step in steps:
            if not step.rewrites:
                for key, part in self._grouped(step):
                    found[key] = found.get(key, True) and part.appends
        return found

    def _grouped(self, step: Step) -> Iterable[tuple[Key, _Part]]:
        return _by_partition(delta(self.store, step.before, step.after), self.whole, self.owners).items()

    def _named(self, key: Key) -> str:
        metadata: TableMetadata = load(self.store, self.start.location)
        if key is None:
            return "its rows, under different partitions"
        if isinstance(key, str):
            return f"the rows of {key}"
        spec = metadata.specs()[key[0]]
        if spec.is_unpartitioned():
            return "its rows, not only by appending"
        return f"rows of {spec.partition_to_path(key[1], metadata.schema())}"  # type: ignore[arg-type]


def _absent(found: Mapping[str, Entry], present: Mapping[str, Entry]) -> list[Entry]:
    return [entry for path, entry in found.items() if path not in present]
