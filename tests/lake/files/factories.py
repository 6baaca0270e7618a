"""Make files on disk and put them, so that a test states only what matters."""

from pathlib import Path

import pyarrow as pa

from runnel.lake.files import file_table
from runnel.lake.files.get import get_files
from runnel.lake.files.ls import list_files
from runnel.lake.files.put import PutResult, put_files
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.iceberg.parquet_writer import write_rows
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName

DOCS = TableName("ods", "docs")
LARGE = b"large " * 100_000


def tree(folder: Path, files: dict[str, bytes | str]) -> Path:
    """Write files below a folder and return it."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def put_tree(store: Store, folder: Path, files: dict[str, bytes | str], **options) -> PutResult:
    return put_files(store, DOCS, [tree(folder, files)], **options)


def contents(store: Store, folder: Path, glob: str | None = None, at: str = "main") -> dict[str, bytes]:
    """Return what `get` writes, by path."""
    get_files(store, DOCS, glob, folder, at=at)
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if not file.is_dir()}


def paths(store: Store, glob: str | None = None, at: str = "main") -> list[str]:
    return [row.path for row in list_files(store, DOCS, glob, at=at)]


def blobs_on_disk(store: Store) -> list[Path]:
    return sorted(file for file in Path(store.warehouse, ".blobs").rglob("*") if file.is_file())


def write_rows_as_another_engine(store: Store, rows: list[dict[str, object]]) -> Commit:
    """Append rows to the file table that `put` would never write."""
    base = store.state()[DOCS].location
    metadata = file_table.load_file_table(store, DOCS, store.state()[DOCS])
    kinds = {
        "path": pa.string(),
        "size": pa.int64(),
        "sha256": pa.string(),
        "content": pa.binary(),
        "blob": pa.string(),
    }
    kinds["modified_at"] = pa.timestamp("us", "UTC")
    fields = [pa.field(name, kind, nullable=name != "path") for name, kind in kinds.items()]
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(kinds) | row for row in rows], pa.schema(fields))
    staged = stage_version(store, base, VersionEdit(added=write_rows(store, metadata, [batch])))
    return publish(store.db, CommitDraft("main", "by another engine", "eve", (CommitChange(DOCS, base, staged),)))
