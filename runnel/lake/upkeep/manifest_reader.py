"""Read manifest lists and manifests for upkeep, and raise if one is truncated.

A truncated Avro file can read as a file with fewer records. Since upkeep deletes files that are not listed, sizes and
counts are compared with what was recorded.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from runnel.errors import CorruptData, RunnelError
from runnel.lake.iceberg.file_io import missing_file_error, normalize_location

if TYPE_CHECKING:
    from runnel.lake.store import Store


def _find_position(struct: StructType, name: str) -> int:
    return next(position for position, field in enumerate(struct.fields) if field.name == name)


_LIST_SCHEMA, _ENTRY_SCHEMA = (
    MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION],
    MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
)
_STATUS = _find_position(_ENTRY_SCHEMA.as_struct(), "status")
_FILE = _find_position(_ENTRY_SCHEMA.as_struct(), "data_file")
_CONTENT, _PATH, _FORMAT, _RECORDS, _BYTES = (
    _find_position(DATA_FILE_TYPE[DEFAULT_READ_VERSION], name)
    for name in ("content", "file_path", "file_format", "record_count", "file_size_in_bytes")
)


class _CachedSchemaAvroFile(AvroFile[Any]):
    """An Avro file whose reader is cached by schema; resolving a schema takes longer than reading the records."""

    def __enter__(self) -> "_CachedSchemaAvroFile":
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = _HEADER_READER.read(self.decoder)
        self.reader = _build_reader(self.header.meta["avro.schema"], self.read_schema is _LIST_SCHEMA)
        return self


_HEADER_READER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@lru_cache(maxsize=256)
def _build_reader(schema: str, is_list: bool) -> Reader:
    written_schema = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    if is_list:
        return resolve_reader(
            written_schema, _LIST_SCHEMA, {-1: ManifestFile, 508: PartitionFieldSummary}, {517: ManifestContent}
        )
    return resolve_reader(written_schema, _ENTRY_SCHEMA)


@dataclass(frozen=True)
class ListedFile:
    """A file that a manifest lists, with its recorded size and row count."""

    path: str
    bytes: int
    records: int
    is_data: bool
    is_parquet: bool


def find_readable_snapshots(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of a version that must be readable: the current one, and those with a ref.

    Other snapshots are leftovers of Iceberg's own history; the lake's history is its commits.
    """
    snapshot_ids = {metadata.current_snapshot_id} | {ref.snapshot_id for ref in metadata.refs.values()}
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in snapshot_ids]


def list_statistics_files(metadata: TableMetadata, snapshots: Sequence[Snapshot]) -> list[str]:
    """Return the statistics files of snapshots."""
    snapshot_ids = {snapshot.snapshot_id for snapshot in snapshots}
    paths = [entry.statistics_path for entry in metadata.statistics if entry.snapshot_id in snapshot_ids]
    return paths + [
        entry.statistics_path for entry in metadata.partition_statistics if entry.snapshot_id in snapshot_ids
    ]


def ended_cleanly(reader: AvroFile[Any], *, may_be_empty: bool) -> bool:
    """Return whether a file that was read to its end is complete: a truncated one ends without a block, or within one.

    For no records Java writes no block at all, and PyIceberg an empty block, whose end is not read.
    """
    bytes_left = len(reader.input_file) - reader.decoder.tell()
    if reader.block is None:
        return may_be_empty and bytes_left == 0
    return bytes_left == (0 if reader.block.block_records else SYNC_SIZE)


def has_no_files(summary: Mapping[str, str] | None) -> bool:
    """Return whether a snapshot's summary says that it has no files, so that its manifest list may be empty."""
    totals = ("total-data-files", "total-delete-files")
    return summary is not None and all(summary.get(name) == "0" for name in totals)


def read_manifest_list(store: "Store", snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot's manifest list, or raise CorruptData."""
    manifest_list = snapshot.manifest_list
    try:
        source = store.io.new_input(manifest_list)
        with _CachedSchemaAvroFile(source, _LIST_SCHEMA) as reader:
            manifests = tuple(reader)
            is_complete = ended_cleanly(reader, may_be_empty=has_no_files(snapshot.summary))
    except FileNotFoundError as error:
        raise missing_file_error(manifest_list) from error
    except Exception as error:  # whatever a damaged Avro file makes of the decoder
        raise damaged_file_error(manifest_list, "it can't be read as a manifest list") from error
    if not is_complete:
        raise damaged_file_error(manifest_list, "it is cut off")
    return manifests


def read_manifest_files(store: "Store", manifest: ManifestFile) -> Iterator[ListedFile]:
    """Yield the live files of a manifest, or raise CorruptData."""
    path = manifest.manifest_path
    try:
        source = store.io.new_input(path)
        size = len(source)
        if size != manifest.manifest_length:
            raise damaged_file_error(path, f"it has {size:,} bytes, not {manifest.manifest_length:,}")
        with _CachedSchemaAvroFile(source, _ENTRY_SCHEMA) as reader:
            entries = list(reader)
    except FileNotFoundError as error:
        raise missing_file_error(path) from error
    except RunnelError:
        raise
    except Exception as error:  # whatever a damaged Avro file makes of the decoder
        raise damaged_file_error(path, "it can't be read as a manifest") from error
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    if None not in counts and sum(count or 0 for count in counts) != len(entries):
        raise damaged_file_error(path, f"it lists {len(entries):,} files, not {sum(count or 0 for count in counts):,}")
    for entry in entries:
        if entry[_STATUS] != int(ManifestEntryStatus.DELETED):
            file = entry[_FILE]
            is_data = file[_CONTENT] in (None, int(DataFileContent.DATA))
            yield ListedFile(file[_PATH], file[_BYTES], file[_RECORDS], is_data, file[_FORMAT].upper() == "PARQUET")


def damaged_file_error(location: str, reason: str) -> CorruptData:
    """Return the error for a file of the lake that is damaged."""
    fix = "run `runnel fsck` to see which commits need it, and restore it from a backup"
    return CorruptData(
        "LAKE_FILE_DAMAGED", f"the lake's file {normalize_location(location)} is damaged: {reason}", fix=fix
    )
