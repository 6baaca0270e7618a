"""Put files from disk into a file table, as one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata

from runnel.errors import plural
from runnel.lake.files.blobs import BlobUploads, make_garbage_test, read_garbage_blobs
from runnel.lake.files.changed_file_writer import ChangedFileWriter, WrittenFileRows
from runnel.lake.files.disk_paths import DiskFile, collect_files
from runnel.lake.files.file_commit import FileChangeSet, collect_checksums, find_matching_files, publish_change_set
from runnel.lake.files.file_table import find_current_version, load_file_table, stage_file_table
from runnel.lake.files.put_units import PutUnit, UnitPutter, divide_into_put_units
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit
from runnel.lake.iceberg.file_io import local_path
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.work_runner import IN_PROCESS, WorkContext, WorkRunner
from runnel.model.work_place import EXECUTORS, WorkPlace

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
    place: WorkPlace | None = None  # where the files were read; None if it is not known, or not worth telling


def put_files(
    store: "Store",
    table: "TableName",
    sources: Sequence[Path],
    *,
    branch: str = "main",
    prefix: str = "",
    message: str | None = None,
    work: WorkContext = IN_PROCESS,
) -> PutResult:
    """Put files, folders and globs into a table, which is created if it does not exist, and publish it.

    An existing path is replaced, unless it has the same contents. Nothing is published if no contents changed. `work`
    says where files are read.
    """
    store.db.read(lambda connection: branches.get_branch(connection, branch))
    disk_files = collect_files(sources, prefix, lake=local_path(store.warehouse))
    with acquire_pin(store.db, "write") as pin:  # held from before the first look-up of a blob until all is published
        base = find_current_version(store, table, branch)
        created, metadata = (None, load_file_table(store, table, base)) if base else stage_file_table(store, table)
        existing_checksums = (
            collect_checksums(find_matching_files(store, metadata, [file.path for file in disk_files])) if base else {}
        )
        runner = work.choose_runner(sum(file.size for file in disk_files), (file.disk_path for file in disk_files))
        if runner.place.name == EXECUTORS:
            units = divide_into_put_units(disk_files, existing_checksums, runner.parallel_units)
            written = _write_in_units(store, metadata, units, runner, work)
        else:
            written = _write_in_process(store, metadata, disk_files, existing_checksums, work)
        result = PutResult(None, *written.count_files(existing_checksums), written.changed_bytes, runner.place)
        if not written.changed_paths:
            return result
        change_set = FileChangeSet(base, written.checksums, written.changed_paths, written.files, created)
        commit_message = message or (f"put {plural(len(written.changed_paths), 'file')} into {table}")
        commit = publish_change_set(store, branch, table, change_set, message=commit_message, pin=pin)
    return replace(result, commit=commit)


def _write_in_process(
    store: "Store",
    metadata: TableMetadata,
    disk_files: Sequence[DiskFile],
    checksums: Mapping[str, str],
    work: WorkContext,
) -> WrittenFileRows:
    def report_done(done: int) -> None:
        if work.report_progress is not None:
            work.report_progress("put", done, len(disk_files))

    uploads = BlobUploads(store, make_garbage_test(store))
    return ChangedFileWriter(store, metadata, uploads, checksums).write(disk_files, report_done)


def _write_in_units(
    store: "Store",
    metadata: TableMetadata,
    units: Sequence[PutUnit],
    runner: WorkRunner,
    work: WorkContext,
) -> WrittenFileRows:
    putter = UnitPutter(store.files, drop_history(metadata), read_garbage_blobs(store))
    return WrittenFileRows.combine(runner.run(putter, units, work.make_unit_reporter("put")))
