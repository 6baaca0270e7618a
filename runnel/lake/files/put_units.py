"""Put files in work units: each reads some files, stores their large contents as blobs, and writes their rows.

Executors do not connect to the catalog database. So the caller, which holds a pin, reads once which blobs are garbage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadata

from runnel.lake.files.blobs import BlobUploads
from runnel.lake.files.changed_file_writer import ChangedFileWriter, WrittenFileRows
from runnel.lake.files.disk_paths import DiskFile
from runnel.lake.scan.scan_units import pack_files
from runnel.lake.warehouse_files import WarehouseFiles

UNIT_BYTES = 64 << 20
_FILE_BYTES = 64 << 10  # what opening a file costs, as if it had that many more bytes


@dataclass(frozen=True)
class PutUnit:
    """Some files on disk, and the checksums that the table has of their paths."""

    files: tuple[DiskFile, ...]
    existing_checksums: Mapping[str, str]


@dataclass(frozen=True)
class UnitPutter:
    """Puts the files of a unit. `garbage` are the locations of blobs that must not be used again."""

    files: WarehouseFiles
    metadata: TableMetadata
    garbage: frozenset[str] = field(repr=False)

    def __call__(self, unit: PutUnit) -> WrittenFileRows:
        """Return what was written."""
        uploads = BlobUploads(self.files, lambda locations: not self.garbage.isdisjoint(locations))
        return ChangedFileWriter(self.files, self.metadata, uploads, unit.existing_checksums).write(unit.files)


def divide_into_put_units(
    disk_files: Sequence[DiskFile], existing_checksums: Mapping[str, str], parallel_units: int
) -> list[PutUnit]:
    """Return units of about the same size for each of the parallel tasks, in the order of the files."""
    groups = pack_files(disk_files, lambda file: file.size + _FILE_BYTES, parallel_units, unit_bytes=UNIT_BYTES)
    return [
        PutUnit(
            tuple(group),
            {file.path: existing_checksums[file.path] for file in group if file.path in existing_checksums},
        )
        for group in groups
    ]
