"""Read the rows of file tables: which paths a version holds, with which contents, and what changed between two.

Only the columns asked for are read, and only of row groups that can hold what is sought.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat, ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType

from runnel.errors import Broken, RunnelError
from runnel.lake.diff.file_delta import delta
from runnel.lake.iceberg.file_io import local_path, missing, plain
from runnel.lake.iceberg.manifests import Entry, entries_in, manifests
from runnel.lake.iceberg.table_metadata import load

if TYPE_CHECKING:
    from runnel.lake.store import Store

Span = Callable[[str | None, str | None], bool]
"""Tells whether what is sought may lie between two paths."""


@dataclass(frozen=True)
class Part:
    """A data file of a version, and the positions in it that another engine's deletes removed."""

    entry: Entry
    gone: frozenset[int] = frozenset()


def parts(store: "Store", metadata: TableMetadata, chosen: Iterable[Entry] | None = None) -> list[Part]:
    """Return data files with the deletes of their version; by default all of them."""
    listed = manifests(store, metadata)
    if chosen is None:
        data = [manifest for manifest in listed if manifest.content == ManifestContent.DATA]
        chosen = (entry for manifest in data for entry in entries_in(store, manifest))
    deletes = [manifest for manifest in listed if manifest.content == ManifestContent.DELETES]
    removed = _removed(store, [entry for manifest in deletes for entry in entries_in(store, manifest)])
    found = [entry for entry in chosen if entry.is_data]
    if any(entry.file.file_format != FileFormat.PARQUET for entry in found):
        raise _foreign("files that are not Parquet")
    return [Part(entry, _gone(entry, removed)) for entry in found]


def _removed(store: "Store", deletes: Sequence[Entry]) -> dict[str, list[tuple[int, int]]]:
    """Return for each data file (sequence of the delete, position)."""
    found: dict[str, list[tuple[int, int]]] = {}
    for entry in deletes:
        if entry.is_equality_delete or entry.file.file_format != FileFormat.PARQUET:
            raise _foreign("equality deletes" if entry.is_equality_delete else "deletes that are not Parquet")
        with _parquet(store, entry.path) as file:
            table = file.read(columns=["file_path", "pos"])
        for path, position in zip(values(table, "file_path"), values(table, "pos"), strict=True):
            found.setdefault(plain(path), []).append((entry.sequence, position))
    return found


def _gone(entry: Entry, removed: dict[str, list[tuple[int, int]]]) -> frozenset[int]:
    found = removed.get(plain(entry.path), ()) if removed else ()
    return frozenset(position for sequence, position in found if sequence >= entry.sequence)


def bounds(metadata: TableMetadata, entry: Entry) -> tuple[str | None, str | None]:
    """Return the lowest and highest path of a data file; None where its writer did not say."""
    field = metadata.schema().find_field("path").field_id
    ends = ((entry.file.lower_bounds or {}).get(field), (entry.file.upper_bounds or {}).get(field))
    low, high = (None if end is None else str(from_bytes(StringType(), end)) for end in ends)
    return low, high


class PartReader:
    """An open data file, read a row group at a time, its columns found by field id and named as the table's now."""

    def __init__(self, store: "Store", metadata: TableMetadata, part: Part, file: pq.ParquetFile) -> None:
        self.location = part.entry.path
        self.gone = part.gone
        self.file = file
        self.schema: pa.Schema = schema_to_pyarrow(metadata.schema())
        by_id = {(field.metadata or {}).get(b"PARQUET:field_id"): field.name for field in file.schema_arrow}
        present = set(file.schema_arrow.names)
        self.names: dict[str, str | None] = {}
        for field in metadata.schema().fields:
            same = field.name if field.name in present and set(by_id) == {None} else None
            self.names[field.name] = by_id.get(str(field.field_id).encode(), same)

    def groups(self, span: Span) -> list[int]:
        """Return the row groups whose paths may be among those sought."""
        column = self.file.schema_arrow.names.index(self.names["path"] or "")
        found = []
        for group in range(self.file.metadata.num_row_groups):
            statistics = self.file.metadata.row_group(group).column(column).statistics
            if statistics is None or not statistics.has_min_max or span(statistics.min, statistics.max):
                found.append(group)
        return found

    def read(self, group: int, columns: Sequence[str], batch_rows: int = 65536) -> Iterator[pa.Table]:
        """Yield the live rows of a row group, in batches."""
        wanted = {name: self.names[name] for name in columns}
        position = sum(self.file.metadata.row_group(before).num_rows for before in range(group))
        # A column that is absent must not make the rows uncountable, so that there is always one to read.
        stored = [name for name in wanted.values() if name is not None] or [str(self.names["path"])]
        with _told(self.location):
            for batch in self.file.iter_batches(batch_rows, row_groups=[group], columns=stored):
                yield self._named(self._live(batch, position), wanted)
                position += batch.num_rows

    def _live(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if not self.gone:
            return batch
        return batch.filter(pa.array([first + row not in self.gone for row in range(batch.num_rows)], pa.bool_()))

    def _named(self, batch: pa.RecordBatch, wanted: dict[str, str | None]) -> pa.Table:
        schema = pa.schema([self.schema.field(name) for name in wanted])
        columns = [
            pa.nulls(batch.num_rows, field.type) if stored is None else batch.column(stored).cast(field.type)
            for field, stored in zip(schema, wanted.values(), strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)


@contextmanager
def reading(store: "Store", metadata: TableMetadata, part: Part) -> Iterator[PartReader]:
    """Open a data file for the time of the block."""
    with _parquet(store, part.entry.path) as file:
        yield PartReader(store, metadata, part, file)


def scan(
    store: "Store", metadata: TableMetadata, found: Iterable[Part], columns: Sequence[str], span: Span | None = None
) -> Iterator[tuple[Part, int, pa.Table]]:
    """Yield the live rows of data files, with the file and the row group that they stand in."""
    span = span or (lambda lowest, highest: True)
    for part in found:
        if not span(*bounds(metadata, part.entry)):
            continue
        with reading(store, metadata, part) as reader:
            for group in reader.groups(span):
                for table in reader.read(group, columns):
                    yield part, group, table


def values(table: pa.Table, column: str) -> list[Any]:
    """Return a column as Python values; times as microseconds since the epoch, which may be none that Python knows."""
    found = table[column]
    return found.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(found.type) else found.to_pylist()


def changed_paths(store: "Store", before: str | None, after: str | None) -> dict[str, str | None]:
    """Return the paths whose contents differ between two versions, with the newer sha256; None is a path that went.

    Reads the paths of just those data files that only one version has.
    """
    found = delta(store, before, after)
    whole = any(not entry.is_data for entry in (*found.added, *found.removed))
    old = _sums(store, before, None if whole else found.removed)
    new = _sums(store, after, None if whole else found.added)
    changed: dict[str, str | None] = {path: new.get(path) for path, sha256 in old.items() if new.get(path) != sha256}
    changed.update((path, sha256) for path, sha256 in new.items() if path not in old)
    return changed


def _sums(store: "Store", location: str | None, chosen: Iterable[Entry] | None) -> dict[str, str]:
    if location is None:
        return {}
    metadata = load(store, location)
    found: dict[str, str] = {}
    for _, _, table in scan(store, metadata, parts(store, metadata, chosen), ["path", "sha256"]):
        sums = (sha256 or "" for sha256 in values(table, "sha256"))
        found.update(zip(values(table, "path"), sums, strict=True))
    return found


@contextmanager
def _parquet(store: "Store", location: str) -> Iterator[pq.ParquetFile]:
    path = local_path(location)
    with _told(location):
        source: Any = str(path) if path is not None else store.io.new_input(location).open()
        file = pq.ParquetFile(source)
    with file:
        yield file


@contextmanager
def _told(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise missing(location) from error
    except (pa.ArrowException, OSError) as error:
        what = f"the lake's file {plain(location)} is damaged: {str(error).splitlines()[0]}"
        raise Broken("LAKE_FILE_DAMAGED", what, fix="run `runnel fsck`, and restore it from a backup") from error


def _foreign(what: str) -> RunnelError:
    fix = "rewrite the table with the engine that wrote them, for example with Iceberg's rewrite_data_files"
    return RunnelError("FILES_FOREIGN", f"another engine gave this file table {what}", fix=fix)
