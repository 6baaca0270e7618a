"""Write the rows of the files on disk that a file table does not have yet, or has with other contents."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.files.blobs import BlobUploads
from runnel.lake.files.disk_paths import DiskFile
from runnel.lake.files.disk_reader import DiskReader, LoadedFile
from runnel.lake.files.file_table import SCHEMA, read_inline_limit
from runnel.lake.iceberg.parquet_writer import RowWriter

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import FileAccess


@dataclass(frozen=True)
class WrittenFileRows:
    """The data files with the rows of changed files; `checksums` has all files that were read."""

    files: tuple[DataFile, ...]
    checksums: Mapping[str, str]
    changed_paths: tuple[str, ...]
    changed_bytes: int

    @classmethod
    def combine(cls, parts: Iterable["WrittenFileRows"]) -> "WrittenFileRows":
        """Return all parts as one, in their order."""
        written = list(parts)
        return cls(
            tuple(file for part in written for file in part.files),
            {path: sha256 for part in written for path, sha256 in part.checksums.items()},
            tuple(path for part in written for path in part.changed_paths),
            sum(part.changed_bytes for part in written),
        )

    def count_files(self, existing_checksums: Mapping[str, str]) -> tuple[int, int, int]:
        """Return how many files are new, replaced and unchanged."""
        replaced = sum(1 for path in self.changed_paths if path in existing_checksums)
        return len(self.changed_paths) - replaced, replaced, len(self.checksums) - len(self.changed_paths)


@dataclass(frozen=True)
class ChangedFileWriter:
    """Writes the rows of changed files, in the order of their paths; `existing_checksums` are the table's, by path."""

    files: "FileAccess"
    metadata: TableMetadata
    uploads: BlobUploads
    existing_checksums: Mapping[str, str]

    def write(
        self, disk_files: Sequence[DiskFile], report_done: Callable[[int], None] | None = None
    ) -> WrittenFileRows:
        """Read all files and write the changed ones; the callback gets how many were read."""
        reader = DiskReader(self.uploads, read_inline_limit(self.metadata), self.existing_checksums)
        writer = RowWriter(self.files, self.metadata)
        checksums: dict[str, str] = {}
        changed_paths: list[str] = []
        changed_bytes = 0
        for batch in reader.read(disk_files):
            checksums.update((loaded_file.path, loaded_file.sha256) for loaded_file in batch)
            changed_files = [loaded_file for loaded_file in batch if loaded_file.changed]
            changed_paths += [loaded_file.path for loaded_file in changed_files]
            changed_bytes += sum(loaded_file.size for loaded_file in changed_files)
            if changed_files:
                writer.write(_build_rows(changed_files, writer.arrow_schema))
            if report_done is not None:
                report_done(len(checksums))
        return WrittenFileRows(tuple(writer.close()), checksums, tuple(changed_paths), changed_bytes)


def _build_rows(loaded_files: Sequence[LoadedFile], schema: pa.Schema) -> pa.Table:
    """Return rows in the table's schema; columns that another engine added are null."""
    own_columns = {field.name for field in SCHEMA.fields}
    columns = []
    for field in schema:
        values = (
            [getattr(row, field.name) for row in loaded_files]
            if field.name in own_columns
            else [None] * len(loaded_files)
        )
        kind = pa.int64() if field.name == "modified_at" else field.type
        columns.append(pa.array(values, kind).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
