"""Choose which files of a version a compaction rewrites.

Small files of a partition are put together, and files with position deletes lose the rows that are deleted. Reads
manifests and delete files; writes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record

from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import MERGE_COUNT, MOST_ENTRIES, Entry, entries, manifests
from runnel.lake.scan.scan_sql import check, spelled
from runnel.lake.upkeep import position_deletes

if TYPE_CHECKING:
    from runnel.lake.store import Store

SMALL_SHARE = 0.5  # of the target: below it a file is worth putting together with others


@dataclass(frozen=True)
class Home:
    """A partition of one spec."""

    spec_id: int
    partition: Record


@dataclass(frozen=True)
class Group:
    """Data files whose rows become new files of one partition, with the deletes that apply to them."""

    home: Home
    data: tuple[Entry, ...]
    deletes: tuple[Entry, ...]
    rows: int  # that are left once the deletes are applied


@dataclass(frozen=True)
class Choice:
    """What a compaction does to a version. `dropped` are delete files that apply to nothing any more."""

    groups: tuple[Group, ...]
    dropped: tuple[Entry, ...]
    gathers: bool  # the manifests are too many

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do."""
        return not self.groups and not self.dropped and not self.gathers

    @property
    def replaced(self) -> tuple[Entry, ...]:
        """Return the data files whose rows are written anew."""
        return tuple(entry for group in self.groups for entry in group.data)


def choose(
    store: "Store", metadata: TableMetadata, target_bytes: int, *, force: bool, only_small: bool = False
) -> Choice:
    """Return what there is to do. Files outside the warehouse are left as they are; if forced, all are brought in.

    Large files keep the rows that are deleted from them where it is about `only_small` ones.

    Raises Unscannable where deletes are of a kind that only Spark can apply.
    """
    live = list(entries(store, metadata))
    data = [entry for entry in live if entry.is_data]
    deletes = [entry for entry in live if not entry.is_data]
    check(metadata, deletes)
    applied = _applied(data, deletes)
    chosen: dict[Home, list[Entry]] = {}
    for entry in data:
        small = entry.file.file_size_in_bytes < SMALL_SHARE * target_bytes
        is_holed = entry.path in applied and not only_small
        worth = small or is_holed if is_inside(store, entry.path) else force
        if worth:
            chosen.setdefault(home(metadata, entry), []).append(entry)
    holed = {} if only_small else applied
    kept = [(at, found) for at, found in chosen.items() if len(found) > 1 or _alone(store, found[0], holed)]
    groups = [_group(at, found, applied) for at, found in kept]
    gone = {entry.path for group in groups for entry in group.data}
    in_use = {delete.path for path, found in applied.items() if path not in gone for delete in found}
    dropped = [entry for entry in deletes if entry.path not in in_use]
    touched = {entry.manifest for entry in [*dropped, *(entry for group in groups for entry in group.data)]}
    return Choice(tuple(groups), tuple(dropped), _gathers(store, metadata, live, len(touched)))


def _alone(store: "Store", entry: Entry, applied: Mapping[str, object]) -> bool:
    """Tell whether a file is rewritten even where there is no other to put it together with."""
    return entry.path in applied or not is_inside(store, entry.path)


def is_inside(store: "Store", path: str) -> bool:
    """Tell whether a file belongs to the warehouse, or was registered in place."""
    return plain(path).startswith(plain(store.warehouse) + "/")


def home(metadata: TableMetadata, entry: Entry) -> Home:
    """Return the partition of the current spec that surely holds all rows of a file, else the file's own partition.

    A file of an old spec moves only where the old spec has every field of the current one, so that its partition
    follows from the one it has.
    """
    file, current = entry.file, metadata.spec()
    own = Home(file.spec_id, file.partition)
    if file.spec_id == current.spec_id:
        return own
    fields = metadata.specs()[file.spec_id].fields
    values = {(field.source_id, str(field.transform)): file.partition[at] for at, field in enumerate(fields)}
    found = []
    for field in current.fields:
        key = (field.source_id, str(field.transform))
        if key not in values and not isinstance(field.transform, VoidTransform):
            return own
        found.append(values.get(key))
    return Home(current.spec_id, Record(*found))


def _applied(data: Sequence[Entry], deletes: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return per data file the deletes that apply to it; files without any are left out."""
    names = position_deletes.named(deletes)
    by_name = {spelled(entry.path): entry for entry in data}
    found: dict[str, list[Entry]] = {}
    for delete in deletes:
        for name in names[delete.path] & by_name.keys():
            if position_deletes.apply(delete, by_name[name], names):
                found.setdefault(by_name[name].path, []).append(delete)
    return found


def _group(at: Home, data: list[Entry], applied: Mapping[str, list[Entry]]) -> Group:
    pairs = [(delete, entry) for entry in data for delete in applied.get(entry.path, ())]
    gone = position_deletes.counts(pairs)
    rows = sum(entry.file.record_count - gone.get(entry.path, 0) for entry in data)
    return Group(at, tuple(data), tuple({delete.path: delete for delete, _ in pairs}.values()), rows)


def _gathers(store: "Store", metadata: TableMetadata, live: Sequence[Entry], touched: int) -> bool:
    """Tell whether the version has far more manifests than its files need, or most are written anew anyway."""
    counts: dict[tuple[int, bool], int] = {}
    for entry in live:
        key = (entry.file.spec_id, entry.is_data)
        counts[key] = counts.get(key, 0) + 1
    needed = sum(-(-count // MOST_ENTRIES) for count in counts.values())
    found = len(manifests(store, metadata))
    return found > 2 * needed + MERGE_COUNT or (touched > 1 and 2 * touched >= found)
