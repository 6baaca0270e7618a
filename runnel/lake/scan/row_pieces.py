"""Cut rows into pieces by their keys, so that rows with equal keys meet in one bucket, and load the pieces of a bucket.

A piece is some rows of one bucket as an Arrow stream, after one byte that says which side of a comparison they belong
to: all types survive on the way to another process. Memory depends on the size of a batch, not on the number of rows.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType

from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quote_identifier

if TYPE_CHECKING:
    import duckdb

BUCKET_BYTES = 32 * 1024 * 1024  # of Parquet: about 128 to 256 MB in memory
PIECE_BYTES = 256 * 1024
BUFFERED_BYTES = 32 * 1024 * 1024
BATCH_ROWS = 32_768
MOST_BUCKETS = 10_000
_INSERTED_BYTES = 8 * 1024 * 1024
_BUCKET = internal_column("bucket")
_PIECE_ROWS = "runnel_piece_rows"


def count_buckets(byte_count: int, parallel_units: int = 1) -> int:
    """Return how many buckets rows of data files of this size are split into.

    >>> count_buckets(0), count_buckets(200 << 20), count_buckets(200 << 20, parallel_units=16)
    (1, 7, 16)
    """
    return min(MOST_BUCKETS, max(1, parallel_units, math.ceil(byte_count / BUCKET_BYTES)))


def normalize_key(expression: str, kind: IcebergType) -> str:
    """Return an SQL expression whose hash is equal for equal values, also for those of a narrower type.

    A narrower decimal has the same scale, as Iceberg requires. Nested values must have the same type on all sides, and
    those with maps must be comparable.
    """
    if isinstance(kind, IntegerType | LongType):
        return f"CAST({expression} AS BIGINT)"
    if isinstance(kind, FloatType | DoubleType):  # DuckDB's hash is the same for all NaNs, and for both zeros
        return f"CAST({expression} AS DOUBLE)"
    if isinstance(kind, DecimalType):
        return f"CAST({expression} AS DECIMAL(38,{kind.scale}))"
    return expression


def split_rows(
    con: "duckdb.DuckDBPyConnection",
    rows: str,
    keys: Sequence[str],
    bucket_count: int,
    *,
    side: int = 0,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a SELECT as pieces with their buckets.

    `keys` are SQL expressions over a row, see `normalize_key`; without any, all rows are in one bucket.
    """
    bucket = f"hash({', '.join(keys)}) % {bucket_count}" if keys else "0"
    yield from split_by_bucket(con, rows, bucket, side=side, batch_rows=batch_rows)


def split_by_bucket(
    con: "duckdb.DuckDBPyConnection", rows: str, bucket: str, *, side: int = 0, batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a SELECT as pieces; `bucket` is an SQL expression over a row."""
    sql = f"SELECT *, CAST({bucket} AS INTEGER) AS {quote_identifier(_BUCKET)} FROM ({rows})"
    buffer = _PieceBuffer(side)
    for batch in cast("Iterable[pa.RecordBatch]", con.sql(sql).to_arrow_reader(batch_rows)):
        yield from buffer.add(batch)
    yield from buffer.flush()


class _PieceBuffer:
    """Rows of each bucket that do not fill a piece yet."""

    def __init__(self, side: int) -> None:
        self._side = side
        self._tables: dict[int, list[pa.Table]] = {}
        self._bucket_bytes: dict[int, int] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """Add rows, and yield the pieces that are full."""
        for bucket, table in _group_by_bucket(batch):
            self._tables.setdefault(bucket, []).append(table)
            self._bucket_bytes[bucket] = self._bucket_bytes.get(bucket, 0) + table.nbytes
            if self._bucket_bytes[bucket] >= PIECE_BYTES:
                yield from self._encode(bucket)
        if sum(self._bucket_bytes.values()) > BUFFERED_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yield the remaining pieces."""
        for bucket in sorted(self._tables):
            yield from self._encode(bucket)

    def _encode(self, bucket: int) -> Iterator[tuple[int, bytes]]:
        table = pa.concat_tables(self._tables.pop(bucket))
        rows_of_piece = max(1, table.num_rows * PIECE_BYTES // max(1, self._bucket_bytes.pop(bucket)))
        for start in range(0, table.num_rows, rows_of_piece):
            yield bucket, encode_piece(table.slice(start, rows_of_piece), self._side)


def _group_by_bucket(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket, in their order."""
    table = pa.Table.from_batches([batch])
    buckets = table.column(_BUCKET).to_numpy()
    rows = table.drop_columns([_BUCKET])
    order = np.argsort(buckets, kind="stable")
    sorted_rows, sorted_buckets = rows.take(order), buckets[order]
    present_buckets, starts = np.unique(sorted_buckets, return_index=True)
    ends = [*starts[1:], len(sorted_buckets)]
    for bucket, start, end in zip(present_buckets, starts, ends, strict=True):
        yield int(bucket), sorted_rows.slice(int(start), int(end) - int(start))


def encode_piece(rows: pa.Table, side: int = 0) -> bytes:
    """Return rows as a piece."""
    sink = pa.BufferOutputStream()
    sink.write(bytes([side]))
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def decode_piece(piece: bytes) -> tuple[int, pa.Table]:
    """Return the side and the rows of a piece."""
    return piece[0], pa.ipc.open_stream(pa.py_buffer(piece).slice(1)).read_all()


def load_pieces(con: "duckdb.DuckDBPyConnection", tables: Sequence[str], pieces: Iterable[bytes]) -> None:
    """Insert pieces into tables of DuckDB, those of side 0 into the first; the caller created them.

    DuckDB moves tables past its memory limit to its temporary folder.
    """
    waiting: dict[int, list[pa.Table]] = {}
    waiting_bytes = 0
    for piece in pieces:
        side, rows = decode_piece(piece)
        waiting.setdefault(side, []).append(rows)
        waiting_bytes += rows.nbytes
        if waiting_bytes >= _INSERTED_BYTES:
            _insert_rows(con, tables, waiting)
            waiting, waiting_bytes = {}, 0
    _insert_rows(con, tables, waiting)


def _insert_rows(con: "duckdb.DuckDBPyConnection", tables: Sequence[str], waiting: dict[int, list[pa.Table]]) -> None:
    for side, rows in waiting.items():
        con.register(_PIECE_ROWS, pa.concat_tables(rows))
        con.execute(f"INSERT INTO {tables[side]} SELECT * FROM {_PIECE_ROWS}")
        con.unregister(_PIECE_ROWS)
