"""Write a data file without some of its rows; if it is shared, the rows that stay keep their owners.

The columns stay as they are in the file, also those that newer schemas have dropped: older versions read them. Never
touches the file that it reads.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import CorruptData
from runnel.lake import failpoints
from runnel.lake.iceberg.data_file_owners import (
    OWNERS_KEY,
    RowRun,
    encode_runs,
    is_shared,
    make_file_name,
    make_rewritten_name,
)
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.parquet_writer import build_data_file
from runnel.lake.owners.row_runs import find_run_numbers, open_parquet, read_shared_runs
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import deleted_sql, partition_of

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import FileAccess

_SORT_ORDER_ID = 15  # its position in Iceberg's record of a data file


def strip_rows(
    store: "FileAccess",
    metadata: TableMetadata,
    entry: FileEntry,
    removed_positions: "np.ndarray[Any, Any]",
    *,
    keep_empty: bool = False,
    name: str | None = None,
) -> tuple[DataFile | None, int]:
    """Write the rows of `entry` without those at `removed_positions` to a new file, and return it with its row count.

    Returns None if no row is left, unless `keep_empty` asks for an empty file. Without a `name` the new name keeps what
    identifies the rows.
    """
    with open_parquet(store, entry.path) as source:
        rows_left = source.metadata.num_rows - len(removed_positions)
        if rows_left == 0 and not keep_empty:
            return None, 0
        location = f"{entry.path.rpartition('/')[0]}/{name or make_rewritten_name(entry.path)}"
        output = store.io.new_output(location)
        stream: Any = output.create()  # pyarrow takes any file object
        schema_metadata = {
            key: value for key, value in (source.schema_arrow.metadata or {}).items() if key != OWNERS_KEY.encode()
        }
        with pq.ParquetWriter(
            cast(Any, stream),
            source.schema_arrow.with_metadata(schema_metadata),
            compression="zstd",
            store_decimal_as_integer=True,
        ) as writer:
            _copy_rows(source, writer, removed_positions)
            if is_shared(entry.path):
                runs = _shorten_runs(read_shared_runs(store, entry.path), removed_positions)
                writer.add_key_value_metadata({OWNERS_KEY: encode_runs(location, runs)})
        stream.close()
        failpoints.reach(failpoints.WRITE_DATA)
        written: pq.FileMetaData = writer.writer.metadata
        if written.num_rows != rows_left:
            raise CorruptData(
                "LAKE_ROWS_LOST",
                f"{normalize_location(entry.path)} should have kept {rows_left} rows, "
                f"but {written.num_rows} were written",
            )
        new_file = build_data_file(
            _use_file_schema(metadata, entry, source), location, written, len(output), entry.file.partition
        )
    new_file[_SORT_ORDER_ID] = entry.file.sort_order_id
    return new_file, rows_left


def strip_pieces(
    store: "FileAccess", metadata: TableMetadata, entry: FileEntry, retained_pieces: Collection[str]
) -> DataFile | None:
    """Write the rows of a shared data file of a version that belong to some pieces, without deleted rows."""
    runs = read_shared_runs(store, entry.path)
    is_removed = np.repeat([run.piece not in retained_pieces for run in runs], [run.rows for run in runs])
    is_removed[_read_deleted_positions(store, metadata, entry)] = True
    return strip_rows(store, metadata, entry, np.flatnonzero(is_removed), name=make_file_name(None))[0]


def _read_deleted_positions(store: "FileAccess", metadata: TableMetadata, entry: FileEntry) -> "np.ndarray[Any, Any]":
    """Return the positions that another engine has marked as deleted in a data file of a version."""
    deletes = [
        other
        for other in read_entries(store, metadata)
        if not other.is_data and partition_of(other) == partition_of(entry)
    ]
    if not deletes:
        return np.empty(0, dtype=np.int64)
    with connect_duckdb() as connection:
        sql = f"SELECT DISTINCT gone_pos FROM ({deleted_sql([entry], deletes)})"
        return np.asarray(connection.execute(sql).fetchnumpy()["gone_pos"], dtype=np.int64)


def _shorten_runs(runs: Sequence[RowRun], removed_positions: "np.ndarray[Any, Any]") -> list[RowRun]:
    """Return runs without removed rows; the numbers of rows are no longer known if others of their run were removed."""
    removed_counts = np.bincount(find_run_numbers(runs, removed_positions), minlength=len(runs))
    return [
        RowRun(run.owner, run.piece, run.rows - int(count), None) if count else run
        for run, count in zip(runs, removed_counts, strict=True)
        if run.rows > count
    ]


def _copy_rows(source: pq.ParquetFile, writer: pq.ParquetWriter, removed_positions: "np.ndarray[Any, Any]") -> None:
    start = 0
    for group in range(source.metadata.num_row_groups):
        count = source.metadata.row_group(group).num_rows
        mask = np.ones(count, dtype=bool)
        mask[removed_positions[(removed_positions >= start) & (removed_positions < start + count)] - start] = False
        start += count
        if mask.any():
            writer.write_table(source.read_row_group(group).filter(pa.array(mask)))


def _use_file_schema(metadata: TableMetadata, entry: FileEntry, source: pq.ParquetFile) -> TableMetadata:
    """Return metadata with the file's own schema, so that bounds of columns that were dropped since are kept."""
    file_schema = pyarrow_to_schema(source.schema_arrow, name_mapping=metadata.name_mapping())
    update = {
        "schemas": [file_schema],
        "current_schema_id": file_schema.schema_id,
        "default_spec_id": entry.file.spec_id,
    }
    return metadata.model_copy(update=update)
