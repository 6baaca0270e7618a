"""Let Spark write the rows of a frame into shared files, one for each of its partitions; no row comes to the driver.

The rows of a frame have no order, so they are identified by their number and the sum of their hashes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.connect.ingest.shared_scratch import SharedScratch
from runnel.lake.scan.duckdb_connection import connect_duckdb, limit_resources
from runnel.spark.executors.task_limits import ExecutorLimits, read_executor_limits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_RESULT_SCHEMA = "location string, bytes long, rows long, hash_sum string"
_WRAP = 2**64


@dataclass(frozen=True)
class WrittenFrame:
    """The files that Spark wrote, and the identity of the rows: the same rows of the same columns have the same one."""

    parts: tuple[SharedFile, ...]
    identity: str


@dataclass(frozen=True)
class FramePartitionWriter:
    """Writes the rows of a partition of a frame into a file; can be pickled."""

    scratch: SharedScratch
    name: str
    limits: ExecutorLimits

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Yield what became of the partition: a row for the file, or none if the partition is empty."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        limit_resources(self.limits.threads, self.limits.memory_bytes)
        writer: pq.ParquetWriter | None = None
        row_count = hash_sum = 0
        with self.scratch.open_folder() as folder:
            path = folder.path / "rows.parquet"
            for batch in batches:
                if not batch.num_rows:
                    continue
                # Spark declares that a field of a struct has values, even if the struct itself is null.
                schema = pa.schema([pa.field(column.name, _allow_nulls(column.type)) for column in batch.schema])
                writer = writer or pq.ParquetWriter(path, schema, compression="zstd")
                writer.write_batch(batch.cast(schema))
                row_count += batch.num_rows
                hash_sum += _sum_row_hashes(batch)
            if writer is None:
                return
            writer.close()
            [part] = folder.share_files([FetchedFile(path, self.name, "parquet")])
            facts = {"location": part.location, "bytes": part.bytes, "rows": row_count}
            yield pa.RecordBatch.from_pylist([{**facts, "hash_sum": str(hash_sum % _WRAP)}])


def write_frame(frame: "DataFrame", scratch: SharedScratch, name: str) -> WrittenFrame:
    """Compute a frame and write its rows below `scratch`; `name` describes them to users."""
    limits = read_executor_limits(frame.sparkSession)
    files = frame.mapInArrow(FramePartitionWriter(scratch, name, limits), _RESULT_SCHEMA).collect()
    parts = tuple(SharedFile(file.location, name, "parquet", file.bytes) for file in files)
    rows = sum(file.rows for file in files)
    hash_sum = sum(int(file.hash_sum) for file in files) % _WRAP
    return WrittenFrame(parts, f"{frame.schema.simpleString()}:{rows}:{hash_sum}")


def _sum_row_hashes(batch: "pa.RecordBatch") -> int:
    import pyarrow as pa

    with connect_duckdb() as connection:
        connection.register("frame_rows", pa.Table.from_batches([batch]))
        sql = "SELECT sum(CAST(md5_number_lower(CAST(to_json(frame_rows) AS VARCHAR)) AS HUGEINT)) FROM frame_rows"
        [hash_sum] = connection.execute(sql).fetchone() or (0,)
        return int(hash_sum)


def _allow_nulls(kind: "pa.DataType") -> "pa.DataType":
    """Return a type whose nested fields may all be null."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _allow_nulls(child.type)) for child in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _allow_nulls(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_allow_nulls(kind.key_type), _allow_nulls(kind.item_type))
    return kind
