"""Run a query on Spark, in a slot that has exactly the tables of the query at one commit.

Spark writes the result into private files, which this process then reads batch by batch: neither side ever holds all
rows, their order is preserved, every error comes before the first row, and the slot is free again as soon as Spark is
done.
"""

import secrets
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq

from runnel import temp_dirs
from runnel.declare.model.column_types import format_ddl
from runnel.errors import RunnelError
from runnel.lake.iceberg.file_io import list_files, local_path
from runnel.query.arrow_types import cast_batch, to_arrow_type
from runnel.query.dialect.translate import ResultColumn
from runnel.query.engines.delayed_pin import DelayedPin
from runnel.query.engines.spark_errors import describe_spark_error
from runnel.query.engines.spark_types import TEXT, parse_result_type, to_storable_type
from runnel.query.query_limits import QueryLimit, enforce_limit
from runnel.spark.slot_pool import get_slot_pool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runnel.lake.store import Store
    from runnel.query.engine import ResolvedQuery

BATCH_ROWS = 65_536
_JOB_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_SPARK_CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_BLOCK_BYTES = 16 * 2**20  # small row groups, because a reader holds one of them


class SparkStream:
    """The rows of a result that Spark wrote into a folder, which is removed on close."""

    engine = "spark"

    def __init__(self, store: "Store", folder: str, columns: Sequence[ResultColumn]) -> None:
        self.schema = pa.schema([pa.field(column.name, to_arrow_type(column.type)) for column in columns])
        self._store = store
        self._folder = folder
        self._batches = self._read_batches()

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end."""
        return next(self._batches, None)

    def close(self) -> None:
        """Remove the files."""
        self._batches.close()
        _remove_folder(self._store, self._folder)

    def _read_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches in the order of Spark's partitions, which is the order of the rows."""
        for listed_file in sorted(list_files(self._store.io, self._folder), key=lambda candidate: candidate.path):
            if not listed_file.path.endswith(".parquet"):
                continue
            with self._store.io.new_input(listed_file.path).open() as stream:
                for batch in pq.ParquetFile(cast(IO[bytes], stream)).iter_batches(BATCH_ROWS):
                    yield cast_batch(batch, self.schema)


def run_on_spark(spark: "SparkSession", request: "ResolvedQuery") -> SparkStream:
    """Run the query on Spark and return the result as a stream."""
    store = request.store
    folder = _choose_folder(spark, store)
    try:
        slot = get_slot_pool(spark, store, "q", _SPARK_CONF).acquire(request.commit, request.versions)
        with (
            slot as lease,
            _cancel_jobs_on_stop(lease.session, request.query_limit),
            _pin_commit(request),
            _describe_errors(request.query_limit, lease.session),
        ):
            frame = lease.session.sql(request.parsed.spark_sql)
            columns = _write_answer(frame, folder)
        return SparkStream(store, folder, columns)
    except BaseException:
        _remove_folder(store, folder)
        raise


@contextmanager
def _cancel_jobs_on_stop(session: "SparkSession", query_limit: QueryLimit) -> Iterator[None]:
    """Cancel Spark's jobs of this query when its limit is exceeded or the block fails."""
    job_group, context = f"runnel-query-{secrets.token_hex(8)}", session.sparkContext
    context.setJobGroup(job_group, "a query", interruptOnCancel=True)  # a tag can be interrupted by its own thread only
    try:
        with enforce_limit(query_limit, lambda: context.cancelJobGroup(job_group)):
            yield
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            context.cancelJobGroup(job_group)
        raise
    finally:
        for name in _JOB_GROUP_PROPERTIES:
            with suppress(Exception):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]


@contextmanager
def _pin_commit(request: "ResolvedQuery") -> Iterator[None]:
    delayed_pin = DelayedPin(request.store.db, request.commit.id)
    try:
        yield
    finally:
        delayed_pin.release()


def _write_answer(frame: "DataFrame", folder: str) -> list[ResultColumn]:
    """Write the rows into Parquet files and return the columns of the result."""
    columns, expressions = [], []
    for number, field in enumerate(frame.schema.fields):
        kind, name = parse_result_type(field.dataType.jsonValue()), f"c{number}"
        stored = to_storable_type(kind or TEXT)
        expressions.append(name if stored == kind else f"cast({name} as {format_ddl(stored)}) as {name}")
        columns.append(ResultColumn(field.name, kind if kind and kind.kind == "void" else stored))
    renamed_frame = frame.toDF(*(f"c{number}" for number in range(len(columns))))
    writer = renamed_frame.selectExpr(*expressions).write.option("compression", "lz4_raw")
    writer.option("parquet.block.size", str(_BLOCK_BYTES)).parquet(folder)
    return columns


@contextmanager
def _describe_errors(query_limit: QueryLimit, session: "SparkSession") -> Iterator[None]:
    """Turn Spark's errors into errors of one line; the trace goes to the log."""
    try:
        yield
    except RunnelError:
        raise
    except Exception as error:
        raise query_limit.stop_error() or describe_spark_error(error, partial(_list_functions, session)) from error


def _list_functions(session: "SparkSession") -> list[str]:
    try:
        return [row[0] for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()]
    except Exception:  # the first error is the one to report
        return []


def _choose_folder(spark: "SparkSession", store: "Store") -> str:
    from runnel.spark.jvm.command_line import is_local

    if is_local(spark.sparkContext.master or ""):
        return f"{temp_dirs.create('answer')}/rows"
    return f"{store.warehouse}/_answers/{secrets.token_hex(16)}/rows"  # a place to which every executor can write


def _remove_folder(store: "Store", folder: str) -> None:
    parent_folder = folder.removesuffix("/rows")
    path = local_path(parent_folder)
    with suppress(OSError):  # files that can't be removed now are swept as unknown files later
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            return
        for listed_file in list(list_files(store.io, parent_folder)):
            store.io.delete(listed_file.path)
