"""Put files of the disk into a table of the lake, as one commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.files.blobs import Uploads
from runnel.lake.files.disk_paths import Found, collect
from runnel.lake.files.disk_reader import Intake, Taken
from runnel.lake.files.file_commit import Revision, known_sums, land, lookup
from runnel.lake.files.file_table import SCHEMA, create, current, inline_bytes, opened
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit
from runnel.lake.iceberg.file_io import local_path
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.leases.pins import pinned

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Put:
    """What a put did. `commit` is None where all files were there already; `bytes` counts what was new."""

    commit: Commit | None
    added: int
    replaced: int
    unchanged: int
    bytes: int


def put(
    store: "Store",
    table: "TableName",
    sources: Sequence[Path],
    *,
    branch: str = "main",
    prefix: str = "",
    message: str | None = None,
    progress: Progress | None = None,
) -> Put:
    """Put files, folders and globs into a table, which is created where it does not exist, and publish it.

    A path that is there is replaced; one with the same contents stays as it is. Nothing is published where no contents
    changed.
    """
    store.db.read(lambda connection: branches.branch(connection, branch))
    found = collect(sources, prefix, lake=local_path(store.warehouse))
    with pinned(store.db, "write") as pin:  # before any look-up of a blob, until all is published
        base = current(store, table, branch)
        created, metadata = (None, opened(store, table, base)) if base else create(store, table)
        known = known_sums(lookup(store, metadata, [file.path for file in found])) if base else {}
        taking = _Taking(store, metadata, known)
        files = taking.take(found, progress)
        done = Put(None, *taking.counts, taking.bytes)
        if not taking.changed:
            return done
        revision = Revision(base, taking.sums, taking.changed, files, created)
        said = message or f"put {len(taking.changed)} file{'s' * (len(taking.changed) > 1)} into {table}"
        commit = land(store, branch, table, revision, said, pin)
    return Put(commit, done.added, done.replaced, done.unchanged, done.bytes)


class _Taking:
    """Writes the rows of files that changed, in the order of their paths, and keeps count."""

    def __init__(self, store: "Store", metadata: TableMetadata, known: dict[str, str]) -> None:
        self.known = known
        self.intake = Intake(Uploads(store), inline_bytes(metadata), known)
        self.writer = RowWriter(store, metadata)
        self.sums: dict[str, str | None] = {}
        self.changed: list[str] = []
        self.bytes = 0

    def take(self, found: Sequence[Found], progress: Progress | None) -> list[DataFile]:
        for batch in self.intake.read(found):
            self.sums.update((taken.path, taken.sha256) for taken in batch)
            fresh = [taken for taken in batch if taken.changed]
            self.changed += [taken.path for taken in fresh]
            self.bytes += sum(taken.size for taken in fresh)
            if fresh:
                self.writer.write(_table(fresh, self.writer.arrow_schema))
            if progress:
                progress("put", len(self.sums), len(found))
        return self.writer.close()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many files are new, replaced and unchanged."""
        replaced = sum(1 for path in self.changed if path in self.known)
        return len(self.changed) - replaced, replaced, len(self.sums) - len(self.changed)


def _table(taken: Sequence[Taken], schema: pa.Schema) -> pa.Table:
    """Return rows of the table's schema; columns that another engine added to it are null."""
    own = {field.name for field in SCHEMA.fields}
    columns = []
    for field in schema:
        values = [getattr(row, field.name) for row in taken] if field.name in own else [None] * len(taken)
        kind = pa.int64() if field.name == "modified_at" else field.type
        columns.append(pa.array(values, kind).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
