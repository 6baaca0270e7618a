"""Combine two changes of a table of files, path by path: their new rows are copied, what they removed is removed.

Two sides that gave one path different contents clash.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import TableUpdate

from runnel.errors import listed
from runnel.lake.diff.file_delta import delta
from runnel.lake.files.file_commit import among, lookup
from runnel.lake.files.file_rows import Part, changed_paths, parts, reading
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_definition import Clash, combined_properties, definition
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.merge.three_way import Side

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store


@dataclass(frozen=True)
class FileReplay:
    """Paths whose rows are to become what they are in `theirs`, in the version `onto`."""

    onto: str
    base: str
    theirs: str
    paths: tuple[str, ...]
    updates: tuple[TableUpdate, ...]

    @property
    def is_empty(self) -> bool:
        """Tell whether the version to start from has everything already."""
        return not (self.paths or self.updates)

    @property
    def result(self) -> tuple[object, ...]:
        """Return what two replays share if they make the same version."""
        return (self.onto, self.theirs, self.paths, str(self.updates))

    def stage(self, store: "Store") -> str:
        """Write the version and return its location; nothing points at it yet."""
        here, there = load(store, self.onto), load(store, self.theirs)
        came = [entry for entry in delta(store, self.base, self.theirs).added if entry.is_data]
        added = _rows(store, here, there, parts(store, there, came), self.paths, keep=True)
        holders = lookup(store, here, self.paths)
        for holder in holders:
            added += _rows(store, here, here, [holder.part], self.paths, keep=False)
        gone = [holder.part.entry for holder in holders]
        return stage(store, self.onto, Edit(added=added, removed=gone, updates=self.updates))


def replay_files(store: "Store", base: str, ours: Side, theirs: Side) -> FileReplay:
    """Return how to bring the paths that `theirs` changed since `base` to `ours`, or raise Clash."""
    was, here, there = (load(store, location) for location in (base, ours.location, theirs.location))
    if not definition(was) == definition(here) == definition(there):
        raise Clash("its columns or its layout were changed")
    mine, news = changed_paths(store, base, ours.location), changed_paths(store, base, theirs.location)
    against = sorted(path for path in mine.keys() & news.keys() if mine[path] != news[path])
    if against:
        raise Clash(f"both sides changed {listed(against)}")
    updates = combined_properties(was.properties, here.properties, there.properties)
    return FileReplay(ours.location, base, theirs.location, tuple(sorted(news.keys() - mine.keys())), updates)


def _rows(
    store: "Store",
    target: "TableMetadata",
    source: "TableMetadata",
    found: Sequence[Part],
    paths: Sequence[str],
    *,
    keep: bool,
) -> list[DataFile]:
    """Write the rows of data files anew: just those of `paths`, or all others."""
    writer = RowWriter(store, target)
    columns = [field.name for field in target.schema().fields]
    chosen = pa.array(paths, pa.large_string())
    for rows in _batches(store, source, found, columns, paths if keep else None):
        named = pc.is_in(rows["path"].cast(pa.large_string()), value_set=chosen)
        writer.write(rows.filter(named if keep else pc.invert(named)))
    return writer.close()


def _batches(
    store: "Store", metadata: "TableMetadata", found: Sequence[Part], columns: list[str], paths: Sequence[str] | None
) -> Iterator[pa.Table]:
    span = among(paths) if paths is not None else None
    for part in found:
        with reading(store, metadata, part) as reader:
            for group in range(reader.file.metadata.num_row_groups) if span is None else reader.groups(span):
                yield from reader.read(group, columns, batch_rows=1024)  # contents are inline, so a batch is large
