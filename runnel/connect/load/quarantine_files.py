"""Write quarantined rows to data files of a quarantine table, some rows at a time. Stages no version."""

from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING

from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.lake.iceberg.data_file_owners import SHARED_FILE_BYTES, RowRun, make_owner_prefix
from runnel.lake.iceberg.parquet_writer import RowWriter

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.warehouse_files import FileAccess

LEAST_SHARED = 32  # owners whose rows are written at once: then they share data files
_BATCH_ROWS = 10_000
_BATCH_BYTES = 8 << 20


class QuarantineFileWriter:
    """Writes the rows of one owner after the other, to data files of their own or, if `shares_files`, to shared ones.

    Rows without an owner are in data files of their own, too.
    """

    def __init__(self, store: "FileAccess", metadata: "TableMetadata", *, shares_files: bool) -> None:
        self._store = store
        self._metadata = metadata
        self._shared_writer = (
            RowWriter(store, metadata, target_bytes=SHARED_FILE_BYTES, is_shared=True) if shares_files else None
        )
        self._owner_writer: RowWriter | None = None
        self._data_files: list[DataFile] = []

    def write(self, owner: str, rows: Iterable[QuarantinedRow]) -> None:
        """Write more rows of an owner."""
        import pyarrow as pa

        is_shared = self._shared_writer is not None and bool(owner)
        writer = self._shared_writer if is_shared and self._shared_writer else self._open_owner(owner)
        row_iterator = iter(rows)
        while batch := [vars(row) for row in islice(row_iterator, _BATCH_ROWS)]:
            table = pa.Table.from_pylist(batch, writer.arrow_schema)
            writer.write(table, [RowRun(owner, "", len(batch))] if is_shared else ())

    def close(self) -> "list[DataFile]":
        """Finish all files and return them."""
        self._finish_owner()
        if self._shared_writer is not None:
            self._data_files += self._shared_writer.close()
        return self._data_files

    def _open_owner(self, owner: str) -> RowWriter:
        if self._owner_writer is None or self._owner_writer.prefix != owner:
            self._finish_owner()
            self._owner_writer = RowWriter(self._store, self._metadata, prefix=owner)
        return self._owner_writer

    def _finish_owner(self) -> None:
        if self._owner_writer is not None:
            self._data_files += self._owner_writer.close()
            self._owner_writer = None


class BufferedQuarantineWriter:
    """Writes single rows; holds at most one batch of them in memory."""

    def __init__(self, store: "FileAccess", metadata: "TableMetadata") -> None:
        self._store = store
        self._metadata = metadata
        self._rows: list[QuarantinedRow] = []
        self._bytes = 0
        self._writer: QuarantineFileWriter | None = None

    def add(self, row: QuarantinedRow) -> None:
        """Write one more row."""
        self._rows.append(row)
        self._bytes += len(row.raw or "")
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._write_batch()

    def close(self) -> "list[DataFile]":
        """Finish all files and return them."""
        if self._writer is None:
            return write_quarantined_rows(self._store, self._metadata, self._rows)
        self._write_batch()
        return self._writer.close()

    def _write_batch(self) -> None:
        if self._writer is None:
            self._writer = QuarantineFileWriter(self._store, self._metadata, shares_files=True)
        for owner, rows in groupby(self._rows, key=lambda row: find_owner(row, {})):
            self._writer.write(owner, rows)
        self._rows, self._bytes = [], 0


def write_quarantined_rows(
    store: "FileAccess", metadata: "TableMetadata", rows: Iterable[QuarantinedRow]
) -> "list[DataFile]":
    """Write rows, with separate data files for each owner; if there are many owners, with shared ones."""
    groups: dict[str, list[QuarantinedRow]] = {}
    for row in rows:
        groups.setdefault(find_owner(row, {}), []).append(row)
    writer = QuarantineFileWriter(store, metadata, shares_files=len(groups) >= LEAST_SHARED)
    for owner, group in groups.items():
        writer.write(owner, group)
    return writer.close()


def find_owner(row: QuarantinedRow, owners: Mapping[str, str]) -> str:
    """Return the owner of a row, which `owners` may have by the path of its file; empty if it is from no file."""
    owner = owners.get(row.file or "", row.owner)
    return owner or (make_owner_prefix(row.file) if row.file is not None else "")
