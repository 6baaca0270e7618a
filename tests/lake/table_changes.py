"""Change tables as Runnel and other engines do, so that a test states only what matters."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from runnel.lake.history.branches import fork_branch
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.iceberg import parquet_writer, table_metadata
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName

POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


def branch(store: Store, name: str, at: str = "main") -> None:
    """Fork a branch."""
    fork_branch(store.db, name, store.commit(at), store.author)


def metadata(store: Store, name: str, ref: str = "main") -> TableMetadata:
    """Return a table's metadata at a ref."""
    table = TableName.parse(name)
    return table_metadata.load_metadata(store, store.versions(store.commit(ref), [table])[table].location)


def files(store: Store, name: str, ref: str = "main", day: str | None = None) -> list[FileEntry]:
    """Return the data files of a table, of all days or of one, in order of age."""
    found = [entry for entry in read_entries(store, metadata(store, name, ref)) if entry.is_data]
    chosen = [entry for entry in found if day is None or entry.file.partition[0] == day]
    return sorted(chosen, key=lambda entry: entry.sequence)


def written(store: Store, found: TableMetadata, rows: pa.Table) -> list[DataFile]:
    return parquet_writer.write_rows(store, found, rows.to_batches())


def overwrite(
    store: Store, name: str, rows: pa.Table | None, *, branch: str = "main", day: str | None = None
) -> Commit:
    """Replace all rows of a table, or those of one day."""

    def edit(version: Any) -> VersionEdit:
        found = table_metadata.load_metadata(store, version.location)
        return VersionEdit(
            added=written(store, found, rows) if rows is not None else (),
            removed=[entry for entry in read_entries(store, found) if day is None or entry.file.partition[0] == day],
        )

    return publish_edit(store, branch, TableName.parse(name), edit, f"overwrite {name}")


def compact(store: Store, name: str, *, branch: str = "main", day: str | None = None) -> Commit:
    """Write the data files of a table anew, as one; the rows stay."""
    table = TableName.parse(name)
    version = store.versions(store.commit(branch), [table])[table]
    current = table_metadata.load_metadata(store, version.location)
    old = [e for e in read_entries(store, current) if day is None or e.file.partition[0] == day]
    rows = pa.concat_tables(pq.ParquetFile(entry.path).read() for entry in old)
    edit = VersionEdit(added=written(store, current, rows), removed=old, is_rewrite=True)
    change = CommitChange(table, version.location, stage_version(store, version.location, edit), version.content)
    return publish(store.db, CommitDraft(branch, f"compact {name}", store.author, (change,), kind="compact"))


def delete_rows(store: Store, name: str, places: Mapping[str, Sequence[int]], *, branch: str = "main") -> Commit:
    """Delete rows by position, as another engine does: one delete file for each data file."""
    by_path = {entry.path: entry for entry in files(store, name, branch)}
    made = [position_delete(by_path[path], positions) for path, positions in places.items()]
    return publish_edit(
        store, branch, TableName.parse(name), lambda version: VersionEdit(added=made), f"delete from {name}"
    )


def position_delete(
    data: FileEntry, positions: Sequence[int], *, spelled: Callable[[str], str] = str, folder: str | None = None
) -> DataFile:
    """Write a Parquet file of position deletes for one data file."""
    path = f"{folder or data.path.rpartition('/')[0]}/{uuid.uuid4().hex}-deletes.parquet"
    names = [spelled(data.path)] * len(positions)
    pq.write_table(pa.table([pa.array(names), pa.array(positions, pa.int64())], schema=POSITION_DELETES), path)
    return data_file(
        path, data.file.partition, len(positions), spec=data.file.spec_id, content=DataFileContent.POSITION_DELETES
    )


def equality_delete(data: FileEntry) -> DataFile:
    """List a file of equality deletes on the column `id`; nobody is to read it."""
    path, kind = f"{data.path}-equality", DataFileContent.EQUALITY_DELETES
    return data_file(path, data.file.partition, 1, spec=data.file.spec_id, content=kind)


def data_file(
    path: str, partition: Record, count: int, *, spec: int, content: DataFileContent = DataFileContent.DATA
) -> DataFile:
    """Return the entry of a Parquet file that is there, without statistics."""
    made = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=count,
        file_size_in_bytes=Path(path).stat().st_size if Path(path).exists() else 1000,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    made.spec_id = spec
    return made


def evolve(store: Store, name: str, change: Callable[[Transaction], None], *, branch: str = "main") -> Commit:
    """Change a table's definition with PyIceberg's own calls."""
    table = TableName.parse(name)
    version = store.versions(store.commit(branch), [table])[table]
    transaction = table_metadata.open_table(store, table, version.location).transaction()
    change(transaction)
    location = table_metadata.write_metadata(store, transaction.table_metadata, version.location)
    return publish(
        store.db,
        CommitDraft(branch, f"evolve {name}", store.author, (CommitChange(table, version.location, location),)),
    )


def drop(store: Store, name: str, *, branch: str = "main") -> Commit:
    """Drop a table."""
    table = TableName.parse(name)
    before = store.versions(store.commit(branch), [table])[table].location
    return publish(store.db, CommitDraft(branch, f"drop {name}", store.author, (CommitChange(table, before, None),)))


def columns(change: Callable[[Any], object]) -> Callable[[Transaction], None]:
    """Return a change of columns, for `evolve`."""

    def apply(transaction: Transaction) -> None:
        with transaction.update_schema() as update:
            change(update)

    return apply


def partitions(change: Callable[[Any], object]) -> Callable[[Transaction], None]:
    """Return a change of the partition spec, for `evolve`."""

    def apply(transaction: Transaction) -> None:
        with transaction.update_spec() as update:
            change(update)

    return apply


def properties(**values: str) -> Callable[[Transaction], None]:
    """Return a change of properties, for `evolve`; `__` stands for a dot."""
    return lambda transaction: transaction.set_properties(
        **{name.replace("__", "."): value for name, value in values.items()}
    )
