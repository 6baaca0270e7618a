"""Let Spark answer a query, in a slot that holds exactly the tables of the query at one commit.

Spark writes the answer into private files, of which this process then reads batch by batch: neither side ever holds
all rows, their order is kept, every error comes before the first row, and the slot is free again as soon as Spark is
done.
"""

import secrets
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq

from runnel import temp_dirs
from runnel.errors import RunnelError
from runnel.lake.iceberg.file_io import listing, local_path
from runnel.query.arrow_types import arrow_type, fitted
from runnel.query.dialect.translate import Column
from runnel.query.engines.delayed_pin import Hold
from runnel.query.engines.spark_errors import told
from runnel.query.engines.spark_types import TEXT, ddl, storable, type_of
from runnel.query.query_limits import Bound, watched
from runnel.spark.slot_pool import lender

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runnel.lake.store import Store
    from runnel.query.engine import Question

BATCH_ROWS = 65_536
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_BLOCK_BYTES = 16 * 2**20  # small row groups, because a reader holds one of them


class SparkStream:
    """The rows of an answer that Spark has written into a folder, removed when it is closed."""

    engine = "spark"

    def __init__(self, store: "Store", folder: str, columns: Sequence[Column]) -> None:
        self.schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
        self._store = store
        self._folder = folder
        self._batches = self._read()

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end."""
        return next(self._batches, None)

    def close(self) -> None:
        """Remove the files."""
        self._batches.close()
        _remove(self._store, self._folder)

    def _read(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches in the order of Spark's partitions, which is that of the rows."""
        for found in sorted(listing(self._store.io, self._folder), key=lambda one: one.path):
            if not found.path.endswith(".parquet"):
                continue
            with self._store.io.new_input(found.path).open() as stream:
                for batch in pq.ParquetFile(cast(IO[bytes], stream)).iter_batches(BATCH_ROWS):
                    yield fitted(batch, self.schema)


def ask_spark(spark: "SparkSession", question: "Question") -> SparkStream:
    """Compute the answer with Spark and return it as a stream."""
    store = question.store
    folder = _new_folder(spark, store)
    try:
        lent = lender(spark, store, "q", _CONF).lend(question.commit, question.versions)
        with lent as loan, _interruptible(loan.session, question.bound), _held(question), _errors(question.bound):
            frame = loan.session.sql(question.parsed.spark_sql)
            columns = _write(frame, folder)
        return SparkStream(store, folder, columns)
    except BaseException:
        _remove(store, folder)
        raise


@contextmanager
def _interruptible(session: "SparkSession", bound: Bound) -> Iterator[None]:
    """Stop Spark's work on this query when the user stops waiting for it."""
    group, context = f"runnel-query-{secrets.token_hex(8)}", session.sparkContext
    context.setJobGroup(group, "a query", interruptOnCancel=True)  # a tag can be interrupted by its own thread only
    try:
        with watched(bound, lambda: context.cancelJobGroup(group)):
            yield
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is told
            context.cancelJobGroup(group)
        raise
    finally:
        for name in _GROUP:
            with suppress(Exception):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]


@contextmanager
def _held(question: "Question") -> Iterator[None]:
    hold = Hold(question.store.db, question.commit.id)
    try:
        yield
    finally:
        hold.release()


def _write(frame: "DataFrame", folder: str) -> list[Column]:
    """Write the rows into Parquet files and return the columns of the answer."""
    columns, shaped = [], []
    for number, field in enumerate(frame.schema.fields):
        kind, name = type_of(field.dataType.jsonValue()), f"c{number}"
        stored = storable(kind or TEXT)
        shaped.append(name if stored == kind else f"cast({name} as {ddl(stored)}) as {name}")
        columns.append(Column(field.name, kind if kind and kind.kind == "void" else stored))
    named = frame.toDF(*(f"c{number}" for number in range(len(columns))))
    writer = named.selectExpr(*shaped).write.option("compression", "lz4_raw")
    writer.option("parquet.block.size", str(_BLOCK_BYTES)).parquet(folder)
    return columns


@contextmanager
def _errors(bound: Bound) -> Iterator[None]:
    """Tell Spark's errors in one line; the trace goes to the log."""
    try:
        yield
    except RunnelError:
        raise
    except Exception as error:
        raise bound.over() or told(error) from error


def _new_folder(spark: "SparkSession", store: "Store") -> str:
    from runnel.spark.jvm.command_line import is_local

    if is_local(spark.sparkContext.master or ""):
        return f"{temp_dirs.path('answer')}/rows"
    return f"{store.warehouse}/_answers/{secrets.token_hex(16)}/rows"  # where every executor can write


def _remove(store: "Store", folder: str) -> None:
    whole = folder.removesuffix("/rows")
    path = local_path(whole)
    with suppress(OSError):  # what can't be removed now is swept as an unknown file later
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            return
        for found in list(listing(store.io, whole)):
            store.io.delete(found.path)
