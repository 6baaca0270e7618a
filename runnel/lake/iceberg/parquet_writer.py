"""Write a stream of rows to Parquet data files of a table. Memory depends on the open files, not on the rows."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from runnel.internal_names import internal_column
from runnel.lake import failpoints
from runnel.lake.iceberg.data_file_owners import MAX_RUNS, OWNERS_KEY, RowRun, encode_runs, join_runs, make_file_name
from runnel.lake.iceberg.partition_split import split_by_partition

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import FileAccess

TARGET_BYTES = 256 * 1024 * 1024
ROW_GROUP_ROWS = 122_880
ROW_GROUP_BYTES = 128 * 1024 * 1024
_TARGET_BYTES_PROPERTY = "write.target-file-size-bytes"
_GROUP_BYTES_PROPERTY = "write.parquet.row-group-size-bytes"
MAX_OPEN_FILES = 64
_RUN_COLUMN = internal_column("run")


class RowWriter:
    """Writes batches of rows, in any order of partitions, to data files of the table's current schema and spec.

    The table's properties, if set, determine how large files and row groups become; a row group is measured in memory.
    A batch should be no larger than a row group. File names start with `prefix`. If `is_shared`, the files hold rows of
    several source files, and each batch comes with its runs of rows.
    """

    def __init__(
        self,
        store: "FileAccess",
        metadata: TableMetadata,
        *,
        target_bytes: int | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
        prefix: str = "",
        is_shared: bool = False,
    ) -> None:
        self.store = store
        self.metadata = metadata
        self.target_bytes = target_bytes or int(metadata.properties.get(_TARGET_BYTES_PROPERTY, TARGET_BYTES))
        self.row_group_bytes = int(metadata.properties.get(_GROUP_BYTES_PROPERTY, ROW_GROUP_BYTES))
        self.row_group_rows = row_group_rows
        self.prefix = prefix
        self.is_shared = is_shared
        self.schema = metadata.schema()
        self.spec: PartitionSpec = metadata.spec()
        self.arrow_schema: pa.Schema = schema_to_pyarrow(self.schema)
        self.rows = 0
        self.owners_by_location: dict[str, frozenset[str]] = {}  # of finished shared files
        self._open_files: dict[str, _OpenFile] = {}
        self._data_files: list[DataFile] = []

    def write(self, batch: pa.RecordBatch | pa.Table, runs: Sequence[RowRun] = ()) -> None:
        """Write rows that have all columns of the table, with types that cast safely.

        `runs` are the owners of the rows in their order, if the files are shared; a run without a piece is new.
        """
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        if table.num_rows == 0:
            return
        table = table.select(self.arrow_schema.names).cast(self.arrow_schema)
        self.rows += table.num_rows
        for part, part_runs in _split_by_runs(table, runs) if self.is_shared else ((table, runs),):
            self._append_rows(part, part_runs)

    def close(self) -> list[DataFile]:
        """Finish all files and return them."""
        for partition_path in list(self._open_files):
            self._finish(partition_path)
        return self._data_files

    def _append_rows(self, table: pa.Table, runs: Sequence[RowRun]) -> None:
        if self.spec.is_unpartitioned():
            self._append(None, table, runs)
            return
        if not self.is_shared:
            for key, rows in split_by_partition(self.spec, self.schema, table):
                self._append(key, rows)
            return
        run_numbers = np.repeat(np.arange(len(runs), dtype=np.int32), [run.rows for run in runs])
        for key, rows in split_by_partition(
            self.spec, self.schema, table.append_column(_RUN_COLUMN, pa.array(run_numbers))
        ):
            self._append(key, rows.drop_columns([_RUN_COLUMN]), _select_runs(runs, rows.column(_RUN_COLUMN).to_numpy()))

    def _append(self, key: PartitionKey | None, table: pa.Table, runs: Sequence[RowRun] = ()) -> None:
        partition_path = key.to_path() if key is not None else ""
        if partition_path not in self._open_files:
            if len(self._open_files) >= MAX_OPEN_FILES:
                self._finish(max(self._open_files, key=lambda other: self._open_files[other].estimated_bytes))
            self._open_files[partition_path] = _OpenFile(self, key)
        open_file = self._open_files[partition_path]
        if len(open_file.runs) + len(runs) > MAX_RUNS and open_file.runs:
            self._finish(partition_path)
            self._append(key, table, runs)
            return
        open_file.write(table)
        open_file.runs += runs
        if open_file.estimated_bytes >= self.target_bytes:
            self._finish(partition_path)

    def _finish(self, partition_path: str) -> None:
        open_file = self._open_files.pop(partition_path)
        self._data_files.append(open_file.close())
        if self.is_shared:
            self.owners_by_location[open_file.location] = frozenset(run.owner for run in open_file.runs)
        failpoints.reach(failpoints.WRITE_DATA)


class _OpenFile:
    """One Parquet file that is being written."""

    def __init__(self, row_writer: RowWriter, key: PartitionKey | None) -> None:
        self.row_writer = row_writer
        self.key = key
        properties = row_writer.metadata.properties
        provider = load_location_provider(row_writer.metadata.location, properties)
        self.location = provider.new_data_location(
            make_file_name(None) if row_writer.is_shared else f"{row_writer.prefix}{uuid.uuid4().hex}.parquet", key
        )
        self.output = row_writer.store.io.new_output(self.location)
        self.stream: Any = self.output.create(overwrite=True)  # pyarrow takes any file object
        # PyIceberg would warn that it does not support this property; this writer does.
        writer_properties = {name: value for name, value in properties.items() if name != _GROUP_BYTES_PROPERTY}
        options = _get_parquet_writer_kwargs(writer_properties)
        self.writer = pq.ParquetWriter(
            cast(Any, self.stream), row_writer.arrow_schema, store_decimal_as_integer=True, **options
        )
        self.runs: list[RowRun] = []  # of a shared file
        self._buffered_tables: list[pa.Table] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0

    @property
    def estimated_bytes(self) -> int:
        """Return roughly how large the file is; used only to decide when it is full."""
        return int(self.stream.tell()) + self._buffered_bytes // 3  # estimated size after compression

    def write(self, table: pa.Table) -> None:
        self._buffered_tables.append(table)
        self._buffered_rows += table.num_rows
        self._buffered_bytes += table.nbytes
        if (
            self._buffered_rows >= self.row_writer.row_group_rows
            or self._buffered_bytes >= self.row_writer.row_group_bytes
        ):
            self._flush()

    def _flush(self) -> None:
        if self._buffered_tables:
            self.writer.write_table(
                pa.concat_tables(self._buffered_tables), row_group_size=self.row_writer.row_group_rows
            )
        self._buffered_tables, self._buffered_rows, self._buffered_bytes = [], 0, 0

    def close(self) -> DataFile:
        self._flush()
        if self.row_writer.is_shared:
            self.writer.add_key_value_metadata({OWNERS_KEY: encode_runs(self.location, join_runs(self.runs))})
        self.writer.close()
        self.stream.close()
        partition = self.key.partition if self.key is not None else Record()
        return build_data_file(
            self.row_writer.metadata, self.location, self.writer.writer.metadata, len(self.output), partition
        )


def _split_by_runs(table: pa.Table, runs: Sequence[RowRun]) -> Iterator[tuple[pa.Table, Sequence[RowRun]]]:
    """Yield the rows in parts of not more runs than a file may have."""
    start = 0
    for first in range(0, len(runs), MAX_RUNS):
        part_runs = runs[first : first + MAX_RUNS]
        count = sum(run.rows for run in part_runs)
        yield table.slice(start, count), part_runs
        start += count


def _select_runs(runs: Sequence[RowRun], run_numbers: "np.ndarray[Any, Any]") -> list[RowRun]:
    """Return the runs of rows that were selected, given the number of each row's run."""
    starts = np.flatnonzero(np.diff(run_numbers, prepend=-1))
    counts = np.diff(starts, append=len(run_numbers))
    return [
        RowRun(runs[number].owner, runs[number].piece, int(count), None if runs[number].piece else 0)
        for number, count in zip(run_numbers[starts], counts, strict=True)
    ]


def build_data_file(
    metadata: TableMetadata, location: str, parquet: pq.FileMetaData, size: int, partition: Record
) -> DataFile:
    """Return Iceberg's description of a Parquet file, with its counts and bounds."""
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=parquet,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    entry.spec_id = metadata.default_spec_id
    return entry


def write_rows(store: "FileAccess", metadata: TableMetadata, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write a stream of batches and return the data files."""
    writer = RowWriter(store, metadata)
    for batch in batches:
        writer.write(batch)
    return writer.close()
