"""Write rows into Parquet data files of a table, as a stream: memory is bounded by the open files, not the rows."""

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

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

from runnel.lake import failpoints
from runnel.lake.iceberg.partition_split import split

if TYPE_CHECKING:
    from runnel.lake.store import Store

TARGET_BYTES = 256 * 1024 * 1024
ROW_GROUP_ROWS = 122_880
ROW_GROUP_BYTES = 128 * 1024 * 1024
_TARGET_BYTES = "write.target-file-size-bytes"
_GROUP_BYTES = "write.parquet.row-group-size-bytes"
MOST_OPEN = 64


class RowWriter:
    """Turns batches of rows, in any order of partitions, into data files of the table's current schema and spec.

    The table's own properties say how large files and row groups become, where it has them; a row group is measured
    in memory. What is written at once should be no larger than a row group. Names of files start with `prefix`.
    """

    def __init__(
        self,
        store: "Store",
        metadata: TableMetadata,
        *,
        target_bytes: int | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
        prefix: str = "",
    ) -> None:
        self.store = store
        self.metadata = metadata
        self.target_bytes = target_bytes or int(metadata.properties.get(_TARGET_BYTES, TARGET_BYTES))
        self.row_group_bytes = int(metadata.properties.get(_GROUP_BYTES, ROW_GROUP_BYTES))
        self.row_group_rows = row_group_rows
        self.prefix = prefix
        self.schema = metadata.schema()
        self.spec: PartitionSpec = metadata.spec()
        self.arrow_schema: pa.Schema = schema_to_pyarrow(self.schema)
        self.rows = 0
        self._open: dict[str, _OpenFile] = {}
        self._done: list[DataFile] = []

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write some rows. Their columns are the table's, in its order and of types that cast safely."""
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        if table.num_rows == 0:
            return
        table = table.select(self.arrow_schema.names).cast(self.arrow_schema)
        self.rows += table.num_rows
        if self.spec.is_unpartitioned():
            self._append(None, table)
            return
        for key, rows in split(self.spec, self.schema, table):
            self._append(key, rows)

    def close(self) -> list[DataFile]:
        """Finish all files and return them."""
        for key in list(self._open):
            self._finish(key)
        return self._done

    def _append(self, key: PartitionKey | None, table: pa.Table) -> None:
        name = key.to_path() if key is not None else ""
        if name not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._finish(max(self._open, key=lambda other: self._open[other].bytes))
            self._open[name] = _OpenFile(self, key)
        self._open[name].write(table)
        if self._open[name].bytes >= self.target_bytes:
            self._finish(name)

    def _finish(self, name: str) -> None:
        self._done.append(self._open.pop(name).close())
        failpoints.reach(failpoints.WRITE_DATA)


class _OpenFile:
    """One Parquet file that is being written."""

    def __init__(self, owner: RowWriter, key: PartitionKey | None) -> None:
        self.owner = owner
        self.key = key
        properties = owner.metadata.properties
        provider = load_location_provider(owner.metadata.location, properties)
        self.location = provider.new_data_location(f"{owner.prefix}{uuid.uuid4().hex}.parquet", key)
        self.output = owner.store.io.new_output(self.location)
        self.stream: Any = self.output.create(overwrite=True)  # pyarrow takes any file object
        # PyIceberg warns that it does not know the size of row groups; it is heeded here.
        known = {name: value for name, value in properties.items() if name != _GROUP_BYTES}
        options = _get_parquet_writer_kwargs(known)
        self.writer = pq.ParquetWriter(
            cast(Any, self.stream), owner.arrow_schema, store_decimal_as_integer=True, **options
        )
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    @property
    def bytes(self) -> int:
        """Return about how large the file is; it only decides when a file is full."""
        return int(self.stream.tell()) + self._waiting_bytes // 3  # a guess of what compression leaves

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._waiting_bytes += table.nbytes
        if self._waiting_rows >= self.owner.row_group_rows or self._waiting_bytes >= self.owner.row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self.writer.write_table(pa.concat_tables(self._waiting), row_group_size=self.owner.row_group_rows)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def close(self) -> DataFile:
        self._flush()
        self.writer.close()
        self.stream.close()
        partition = self.key.partition if self.key is not None else Record()
        return data_file(self.owner.metadata, self.location, self.writer.writer.metadata, len(self.output), partition)


def data_file(
    metadata: TableMetadata, location: str, parquet: pq.FileMetaData, size: int, partition: Record
) -> DataFile:
    """Return the entry of a Parquet file, with its counts and bounds."""
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=parquet,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    made = DataFile.from_args(
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
    made.spec_id = metadata.default_spec_id
    return made


def write_rows(store: "Store", metadata: TableMetadata, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write a stream of batches and return the data files."""
    writer = RowWriter(store, metadata)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table in batches that can be written one by one."""
    yield from table.to_batches(max_chunksize=ROW_GROUP_ROWS)
