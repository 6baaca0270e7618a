"""Put files from disk into a file table, as one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import plural
from runnel.lake.files.blobs import BlobUploads
from runnel.lake.files.disk_paths import DiskFile, collect_files
from runnel.lake.files.disk_reader import DiskReader, LoadedFile
from runnel.lake.files.file_commit import FileChangeSet, collect_checksums, find_matching_files, publish_change_set
from runnel.lake.files.file_table import (
    SCHEMA,
    find_current_version,
    load_file_table,
    read_inline_limit,
    stage_file_table,
)
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit
from runnel.lake.iceberg.file_io import local_path
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.leases.pins import acquire_pin
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class PutResult:
    """The result of a put. `commit` is None if no contents changed; `bytes` counts the new and replaced files."""

    commit: Commit | None
    added: int
    replaced: int
    unchanged: int
    bytes: int


def put_files(
    store: "Store",
    table: "TableName",
    sources: Sequence[Path],
    *,
    branch: str = "main",
    prefix: str = "",
    message: str | None = None,
    report_progress: Progress | None = None,
) -> PutResult:
    """Put files, folders and globs into a table, which is created if it does not exist, and publish it.

    An existing path is replaced, unless it has the same contents. Nothing is published if no contents changed.
    """
    store.db.read(lambda connection: branches.get_branch(connection, branch))
    disk_files = collect_files(sources, prefix, lake=local_path(store.warehouse))
    with acquire_pin(store.db, "write") as pin:  # held from before the first look-up of a blob until all is published
        base = find_current_version(store, table, branch)
        created, metadata = (None, load_file_table(store, table, base)) if base else stage_file_table(store, table)
        existing_checksums = (
            collect_checksums(find_matching_files(store, metadata, [file.path for file in disk_files])) if base else {}
        )
        changed_writer = _ChangedFileWriter(store, metadata, existing_checksums)
        files = changed_writer.write_changed(disk_files, report_progress)
        result = PutResult(None, *changed_writer.file_counts, changed_writer.changed_bytes)
        if not changed_writer.changed_paths:
            return result
        change_set = FileChangeSet(base, changed_writer.checksums, changed_writer.changed_paths, files, created)
        commit_message = message or (f"put {plural(len(changed_writer.changed_paths), 'file')} into {table}")
        commit = publish_change_set(store, branch, table, change_set, message=commit_message, pin=pin)
    return PutResult(commit, result.added, result.replaced, result.unchanged, result.bytes)


class _ChangedFileWriter:
    """Writes the rows of changed files, in the order of their paths, and counts files and bytes."""

    def __init__(self, store: "Store", metadata: TableMetadata, existing_checksums: dict[str, str]) -> None:
        self.existing_checksums = existing_checksums
        self.disk_reader = DiskReader(BlobUploads(store), read_inline_limit(metadata), existing_checksums)
        self.writer = RowWriter(store, metadata)
        self.checksums: dict[str, str | None] = {}
        self.changed_paths: list[str] = []
        self.changed_bytes = 0

    def write_changed(self, disk_files: Sequence[DiskFile], report_progress: Progress | None) -> list[DataFile]:
        for batch in self.disk_reader.read(disk_files):
            self.checksums.update((loaded_file.path, loaded_file.sha256) for loaded_file in batch)
            changed_files = [loaded_file for loaded_file in batch if loaded_file.changed]
            self.changed_paths += [loaded_file.path for loaded_file in changed_files]
            self.changed_bytes += sum(loaded_file.size for loaded_file in changed_files)
            if changed_files:
                self.writer.write(_build_rows(changed_files, self.writer.arrow_schema))
            if report_progress:
                report_progress("put", len(self.checksums), len(disk_files))
        return self.writer.close()

    @property
    def file_counts(self) -> tuple[int, int, int]:
        """Return how many files are new, replaced and unchanged."""
        replaced = sum(1 for path in self.changed_paths if path in self.existing_checksums)
        return len(self.changed_paths) - replaced, replaced, len(self.checksums) - len(self.changed_paths)


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
