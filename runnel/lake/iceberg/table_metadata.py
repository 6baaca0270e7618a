"""Read and write Iceberg table metadata: load a version, create a table, write a new version.

A version is one metadata file. A new version need not list the old ones: it retains only recent snapshots, so that a
long history slows nothing down.
"""

import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cachetools import LRUCache
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableUpdate, update_table_metadata

from runnel.errors import CorruptData, Mistake
from runnel.lake import failpoints
from runnel.lake.iceberg.file_io import missing_file_error

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store
    from runnel.lake.warehouse_files import FileAccess
    from runnel.names import TableName

RETAINED_SNAPSHOTS = 10
MAX_FORMAT_VERSION = 2  # Iceberg format version that Runnel writes
DEFAULT_PROPERTIES = {
    "format-version": "2",
    "gc.enabled": "false",  # only Runnel removes files
    "write.parquet.compression-codec": "zstd",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "commit.manifest.target-size-bytes": "1048576",
    "write.metadata.previous-versions-max": "10",
}
MAX_CACHED_PARTS = 40_000  # snapshots and columns of all cached versions: at most about 100 MB
_guard = threading.Lock()


def _count_parts(metadata: TableMetadata) -> int:
    """Return the number of snapshots and columns in metadata, an estimate of its memory use."""
    parts = 8 + len(metadata.snapshots) + sum(len(schema.fields) for schema in metadata.schemas)
    return min(parts, MAX_CACHED_PARTS)  # the cache holds even the largest version, though nothing else then


_cache: LRUCache[str, TableMetadata] = LRUCache(MAX_CACHED_PARTS, getsizeof=_count_parts)


class UnwritableTable(Mistake):
    """A table has a format version that Runnel can read but not write."""

    def __init__(self, metadata: TableMetadata) -> None:
        super().__init__(
            "TABLE_FORMAT",
            f"the table in {metadata.location} has Iceberg's format version {metadata.format_version}; "
            f"Runnel reads it, but writes up to version {MAX_FORMAT_VERSION}",
            fix="change it with Spark, or copy its rows into a new table",
        )


def check_writable(metadata: TableMetadata) -> None:
    """Raise if Runnel can't write a new version of a table."""
    if metadata.format_version > MAX_FORMAT_VERSION:
        raise UnwritableTable(metadata)


def load_metadata(store: "FileAccess", location: str) -> TableMetadata:
    """Return the metadata of a version; it is cached, because versions never change."""
    with _guard:
        cached_metadata = _cache.get(location)
    if cached_metadata is not None:
        return cached_metadata
    try:
        metadata = FromInputFile.table_metadata(store.io.new_input(location))
    except FileNotFoundError as error:
        raise missing_file_error(location) from error
    except (ValueError, ValidationError) as error:
        raise CorruptData("LAKE_FILE_DAMAGED", f"the lake's file {location} is damaged: not table metadata") from error
    cache_metadata(location, metadata)
    return metadata


def cache_metadata(location: str, metadata: TableMetadata) -> None:
    """Cache the metadata of a version in memory."""
    with _guard:
        _cache[location] = metadata


def clear_cache() -> None:
    """Clear the cache, because files were rewritten in place or a test must read them again."""
    with _guard:
        _cache.clear()


def open_table(store: "Store", name: "TableName", location: str) -> Table:
    """Return a version as a read-only PyIceberg table."""
    from pyiceberg.catalog.noop import NoopCatalog

    return Table((name.layer, name.name), load_metadata(store, location), location, store.io, NoopCatalog("runnel"))


def create_table(
    store: "Store",
    name: "TableName",
    schema: "Schema",
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    sort: SortOrder = UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
) -> tuple[str, TableMetadata]:
    """Stage a new, empty table and return its first version; nothing points at it yet.

    Its folder has a unique name, so that two branches can each create the table.
    """
    metadata = build_metadata(store, name, schema, spec=spec, sort=sort, properties=properties)
    return write_metadata(store, metadata, None), metadata


def build_metadata(
    store: "FileAccess",
    name: "TableName",
    schema: "Schema",
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    sort: SortOrder = UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
) -> TableMetadata:
    """Return the first version of a new table, which is not written yet."""
    return new_table_metadata(
        schema=schema,
        partition_spec=spec,
        sort_order=sort,
        location=f"{store.warehouse}/{name.layer}/{name.name}-{uuid.uuid4().hex[:8]}",
        properties={**DEFAULT_PROPERTIES, **(properties or {})},
    )


def stage_update(
    store: "Store", base: TableMetadata, base_location: str | None, updates: Iterable[TableUpdate]
) -> tuple[str, TableMetadata]:
    """Stage a version that differs from `base` by Iceberg updates, and return it."""
    check_writable(base)
    changed = update_table_metadata(base, tuple(updates), metadata_location=base_location)
    changed = trim_snapshots(changed)
    return write_metadata(store, changed, base_location), changed


def trim_snapshots(metadata: TableMetadata, retained: int = RETAINED_SNAPSHOTS) -> TableMetadata:
    """Return metadata that lists only recent snapshots, and those that an Iceberg ref points at."""
    if len(metadata.snapshots) <= retained:
        return metadata
    newest = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)[-retained:]
    ids = {snapshot.snapshot_id for snapshot in newest} | {ref.snapshot_id for ref in metadata.refs.values()}
    if metadata.current_snapshot_id is not None:
        ids.add(metadata.current_snapshot_id)
    return metadata.model_copy(
        update={
            "snapshots": [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in ids],
            "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id in ids],
            "statistics": [entry for entry in metadata.statistics if entry.snapshot_id in ids],
        }
    )


def drop_history(metadata: TableMetadata) -> TableMetadata:
    """Return metadata without snapshots and logs: small enough to be sent with work units."""
    return metadata.model_copy(update={"snapshots": [], "snapshot_log": [], "metadata_log": []})


def write_metadata(store: "Store", metadata: TableMetadata, base_location: str | None) -> str:
    """Write a metadata file under a fresh name and return its location."""
    number = MetastoreCatalog._parse_metadata_version(base_location) + 1 if base_location else 0
    provider = load_location_provider(metadata.location, metadata.properties)
    location = provider.new_table_metadata_file_location(max(number, 0))
    ToOutputFile.table_metadata(metadata, store.io.new_output(location))
    cache_metadata(location, metadata)
    failpoints.reach(failpoints.WRITE_METADATA)
    return location
