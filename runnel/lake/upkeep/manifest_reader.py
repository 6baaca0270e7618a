"""Read manifest lists and manifests for upkeep, and never half of one.

An Avro file that was cut off can read as one with fewer records. Whoever deletes files by what is not listed must not
fall for that, so sizes and counts are compared with what was recorded.
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

from runnel.errors import Broken, RunnelError
from runnel.lake.iceberg.file_io import missing, plain

if TYPE_CHECKING:
    from runnel.lake.store import Store


def _place(struct: StructType, name: str) -> int:
    return next(place for place, field in enumerate(struct.fields) if field.name == name)


_LIST, _ENTRY = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION], MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
_STATUS = _place(_ENTRY.as_struct(), "status")
_FILE = _place(_ENTRY.as_struct(), "data_file")
_CONTENT, _PATH, _FORMAT, _RECORDS, _BYTES = (
    _place(DATA_FILE_TYPE[DEFAULT_READ_VERSION], name)
    for name in ("content", "file_path", "file_format", "record_count", "file_size_in_bytes")
)


class _Quick(AvroFile[Any]):
    """An Avro file whose schema was met before, as nearly all were; working it out takes longer than the records."""

    def __enter__(self) -> "_Quick":
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = _HEADER.read(self.decoder)
        self.reader = _reader(self.header.meta["avro.schema"], self.read_schema is _LIST)
        return self


_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@lru_cache(maxsize=256)
def _reader(schema: str, is_list: bool) -> Reader:
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    if is_list:
        return resolve_reader(written, _LIST, {-1: ManifestFile, 508: PartitionFieldSummary}, {517: ManifestContent})
    return resolve_reader(written, _ENTRY)


@dataclass(frozen=True)
class Listed:
    """A file that a manifest lists, with what it promises."""

    path: str
    bytes: int
    records: int
    is_data: bool
    is_parquet: bool


def promised_snapshots(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of a version that can be read: the current one, and those with a name.

    Others that it still lists are leftovers of Iceberg's own history; the lake's history is its commits.
    """
    wanted = {metadata.current_snapshot_id} | {ref.snapshot_id for ref in metadata.refs.values()}
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in wanted]


def statistics_of(metadata: TableMetadata, snapshots: Sequence[Snapshot]) -> list[str]:
    """Return the statistics files of snapshots."""
    wanted = {snapshot.snapshot_id for snapshot in snapshots}
    found = [entry.statistics_path for entry in metadata.statistics if entry.snapshot_id in wanted]
    return found + [entry.statistics_path for entry in metadata.partition_statistics if entry.snapshot_id in wanted]


def is_whole(reader: AvroFile[Any], *, may_be_empty: bool) -> bool:
    """Tell whether a file that was read to its end is all there: cut off, it ends without a block, or within one.

    Without records Java writes no block at all, and PyIceberg an empty one, of which the end is left unread.
    """
    left = len(reader.input_file) - reader.decoder.tell()
    if reader.block is None:
        return may_be_empty and left == 0
    return left == (0 if reader.block.block_records else SYNC_SIZE)


def has_no_files(summary: Mapping[str, str] | None) -> bool:
    """Tell whether a snapshot's summary says that it has no files, so that its manifest list may be empty."""
    totals = ("total-data-files", "total-delete-files")
    return summary is not None and all(summary.get(name) == "0" for name in totals)


def manifests_in(store: "Store", snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests that a snapshot's list names, or raise Broken."""
    manifest_list = snapshot.manifest_list
    try:
        source = store.io.new_input(manifest_list)
        with _Quick(source, _LIST) as reader:
            found = tuple(reader)
            whole = is_whole(reader, may_be_empty=has_no_files(snapshot.summary))
    except FileNotFoundError as error:
        raise missing(manifest_list) from error
    except Exception as error:  # whatever a damaged Avro file makes of the decoder
        raise damaged(manifest_list, "it can't be read as a manifest list") from error
    if not whole:
        raise damaged(manifest_list, "it is cut off")
    return found


def files_in(store: "Store", manifest: ManifestFile) -> Iterator[Listed]:
    """Yield the live files of a manifest, or raise Broken."""
    path = manifest.manifest_path
    try:
        source = store.io.new_input(path)
        size = len(source)
        if size != manifest.manifest_length:
            raise damaged(path, f"it has {size:,} bytes, not {manifest.manifest_length:,}")
        with _Quick(source, _ENTRY) as reader:
            entries = list(reader)
    except FileNotFoundError as error:
        raise missing(path) from error
    except RunnelError:
        raise
    except Exception as error:  # whatever a damaged Avro file makes of the decoder
        raise damaged(path, "it can't be read as a manifest") from error
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    if None not in counts and sum(count or 0 for count in counts) != len(entries):
        raise damaged(path, f"it lists {len(entries):,} files, not {sum(count or 0 for count in counts):,}")
    for entry in entries:
        if entry[_STATUS] != int(ManifestEntryStatus.DELETED):
            file = entry[_FILE]
            is_data = file[_CONTENT] in (None, int(DataFileContent.DATA))
            yield Listed(file[_PATH], file[_BYTES], file[_RECORDS], is_data, file[_FORMAT].upper() == "PARQUET")


def damaged(location: str, why: str) -> Broken:
    """Return the error that says that a file of the lake is not what was written."""
    fix = "run `runnel fsck` to see which commits need it, and restore it from a backup"
    return Broken("LAKE_FILE_DAMAGED", f"the lake's file {plain(location)} is damaged: {why}", fix=fix)
