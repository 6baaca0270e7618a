"""Errors while a task is computed: one line for people, the user's line, and whether trying again may help."""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from runnel.errors import Cancelled, Mistake, RunnelError, Unreachable
from runnel.run.errors.task_errors import format_full_trace, is_transient, to_task_error
from runnel.run.task.build_frame import build_frame
from tests.run.function_tasks import ORDERS, ROOT, marked, task_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def bad_row(orders: Any) -> Any:
    from pyspark.sql import functions as F

    def checked(number):  # type: ignore[no-untyped-def]
        if number == 2:
            raise ValueError(f"no such order: {number}")  # <- here
        return number

    return orders.select(F.udf(checked, "long")("id").alias("id"))


def bad_batch(orders: Any) -> Any:
    def work(batches: Any) -> Any:
        for batch in batches:
            yield batch[["nope"]]  # <- here

    return orders.mapInPandas(work, "nope long")


def refused(orders: Any) -> Any:
    from pyspark.sql import functions as F

    def call(number):  # type: ignore[no-untyped-def]
        raise ConnectionRefusedError("Connection refused")  # <- here

    return orders.select(F.udf(call, "long")("id").alias("id"))


def exits(orders: Any) -> Any:
    from pyspark.sql import functions as F

    return orders.select(F.udf(lambda number: exit(1), "long")("id").alias("id"))  # <- here


def in_an_rdd(orders: Any, spark: Any) -> Any:
    lines = orders.rdd.map(lambda row: (row.id // 0,))  # <- here
    return spark.createDataFrame(lines, "id long")


def divides(orders: Any) -> Any:
    from pyspark.sql import functions as F

    return orders.select(
        (F.col("amount") / (F.col("id") - 1)).alias("share"),  # <- here
    )


def casts(orders: Any) -> Any:
    return orders.select(orders.day.cast("int").alias("day"))  # <- here


def casts_in_sql(orders: Any) -> Any:
    return orders.selectExpr("cast( day as int) as day")  # <- here


def overflows(orders: Any) -> Any:
    return orders.select((orders.id.cast("int") * 2147483647).alias("n"))  # <- here


def complains(orders: Any) -> Any:
    from pyspark.sql import functions as F

    return orders.select(F.raise_error(F.concat(F.lit("order "), F.col("id"))).cast("int").alias("x"))


FAILED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "a UDF": (bad_row, "RUN_TASK_FAILED", "failed in a Python function: ValueError: no such order: 2"),
    "a batch": (bad_batch, "RUN_TASK_FAILED", 'failed in a Python function: KeyError: "None of'),
    "a UDF without network": (refused, "RUN_TASK_FAILED", "ConnectionRefusedError: Connection refused"),
    "a UDF that exits": (exits, "RUN_TASK_FAILED", "SystemExit: 1"),
    "an RDD": (in_an_rdd, "RUN_TASK_FAILED", "ZeroDivisionError: integer division or modulo by zero"),
    "a division": (
        divides,
        "RUN_TASK_FAILED",
        "failed: Division by zero. Use `try_divide` to tolerate divisor being 0",
    ),
    "a cast": (casts, "RUN_TASK_FAILED", 'The value \'d1\' of the type "STRING" cannot be cast to "INT"'),
    "a cast in SQL": (casts_in_sql, "RUN_TASK_FAILED", "The value 'd1' of the type"),
    "an overflow": (overflows, "RUN_TASK_FAILED", "integer overflow"),
    "raise_error": (complains, "RUN_TASK_FAILED", "failed: order 1 [USER_RAISED_EXCEPTION]"),
}


@pytest.mark.parametrize(("function", "code", "told"), FAILED.values(), ids=FAILED)
def test_a_failed_task(
    spark: "SparkSession", capfd: pytest.CaptureFixture[str], function: Callable[..., Any], code: str, told: str
) -> None:
    orders = spark.sql("select * from values (1L, 'd1', 5L), (2L, 'd2', 7L) as t(id, day, amount)")
    task = task_of(function)
    frame = build_frame(task, {ORDERS: orders}, spark, ROOT)
    with pytest.raises(Exception) as caught:
        frame.write.format("noop").mode("overwrite").save()
    trace = format_full_trace(caught.value)
    found = to_task_error(caught.value.with_traceback(None), task, ROOT)  # no line of the project starts a job
    assert (found.code, found.at) == (code, marked(function)) and told in found.what
    assert found.what.startswith("task `dws.made` ") and found.fix and len(found.what) <= 300
    assert not any(noise in str(found) for noise in ("\tat ", "SQLSTATE", "org.apache", "spark.sql.ansi", "Py4J"))
    assert not is_transient(caught.value) and not is_transient(found)
    assert "Traceback (most recent call last)" in trace and "\tat org." in trace
    assert capfd.readouterr().err == ""


def _nothing(orders: Any) -> Any:
    return orders


def java(message: str, cause: str = "") -> Exception:
    """Return an error as py4j tells of one: the text is all that is read of it."""
    from py4j.protocol import Py4JError

    kind: type[Exception] = type("Py4JJavaError", (Py4JError,), {})
    return kind(f"An error occurred while calling o12.save.\n: {message}\n\tat org.apache.X.y(X.java:1){cause}")


LOCKED = "org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure"
CAUSE = (
    "\nCaused by: org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked (database is locked)\n\tat x"
)
RESTARTED = (
    "\nCaused by: org.postgresql.util.PSQLException: An I/O error occurred while sending to the backend.\n\tat x"
    "\nCaused by: java.io.EOFException\n\tat y"
)
REFUSED = "org.postgresql.util.PSQLException: ERROR: relation missing does not exist"
LOST = "org.apache.spark.SparkException: Job aborted: ExecutorLostFailure (executor 1 exited)"
FETCH = "org.apache.spark.SparkException: Job aborted: FetchFailed(BlockManagerId(1, host, 1, None))"
FULL = "java.io.IOException: No space left on device"
MEMORY = "java.lang.OutOfMemoryError: Java heap space"
NETWORK = "java.net.ConnectException: Connection refused (Connection refused)"
STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException: null"

TOLD: dict[str, tuple[BaseException, bool, str, str]] = {
    "a locked catalog": (java(LOCKED, CAUSE), True, "RUN_TASK_FAILED", "The database file is locked"),
    "PostgreSQL is started anew": (
        java(LOCKED, RESTARTED),
        True,
        "RUN_DATABASE_AWAY",
        "the connection to the database was lost",
    ),
    "PostgreSQL refuses": (java(REFUSED), False, "RUN_TASK_FAILED", "relation missing does not exist"),
    "an executor is lost": (java(LOST), True, "RUN_TASK_FAILED", "SparkException: Job aborted"),
    "a fetch failed": (java(FETCH), True, "RUN_TASK_FAILED", "FetchFailed"),
    "no connection": (java(NETWORK), True, "RUN_TASK_FAILED", "ConnectException: Connection refused"),
    "unknown commit": (java(UNKNOWN), True, "RUN_TASK_FAILED", "CommitStateUnknownException"),
    "no memory": (java(MEMORY), False, "RUN_OUT_OF_MEMORY", "ran out of memory"),
    "disk full": (java(FULL), False, "RUN_DISK_FULL", "ran out of disk space"),
    "stopped": (java(STOPPED), False, "RUN_SPARK_STOPPED", "failed because Spark was stopped"),
    "Python's own refusal": (
        ConnectionRefusedError(111, "refused"),
        True,
        "RUN_TASK_FAILED",
        "ConnectionRefusedError: [Errno 111]",
    ),
    "Python's own timeout": (TimeoutError("slow"), True, "RUN_TASK_FAILED", "TimeoutError: slow"),
    "SQLite is locked": (sqlite3.OperationalError("database is locked"), True, "RUN_TASK_FAILED", "database is locked"),
    "a plain exception": (ValueError("a\nb"), False, "RUN_TASK_FAILED", "failed: ValueError: a"),
    "no message": (ValueError(), False, "RUN_TASK_FAILED", "failed: ValueError"),
    "sys.exit": (SystemExit(1), False, "RUN_TASK_EXIT", "sys.exit()"),
    "told already": (Mistake("RUN_SCHEMA", "told"), False, "RUN_SCHEMA", "told"),
    "unreachable": (Unreachable("LAKE_UNREACHABLE", "no answer"), True, "LAKE_UNREACHABLE", "no answer"),
}


@pytest.mark.parametrize(("error", "transient", "code", "told"), TOLD.values(), ids=TOLD)
def test_whether_to_try_again(error: BaseException, transient: bool, code: str, told: str) -> None:
    task = task_of(_nothing)
    found = to_task_error(error, task, ROOT)
    assert (found.code, found.at) == (code, str(task.place)) and told in found.what and "\n" not in found.what
    assert is_transient(error) is transient
    assert format_full_trace(error)
    wrapped = RunnelError("RUN_TASK_FAILED", "told")
    wrapped.__cause__ = error
    assert is_transient(wrapped) is transient


def test_a_cause_in_the_chain() -> None:
    try:
        try:
            raise ConnectionResetError("gone")
        except ConnectionResetError:
            raise OSError("could not fetch the rates")  # noqa: B904
    except OSError as error:
        assert is_transient(error) and "ConnectionResetError" in format_full_trace(error)


def test_the_java_process_is_gone() -> None:
    from py4j.protocol import Py4JNetworkError

    found = to_task_error(Py4JNetworkError("Answer from Java side is empty"), task_of(_nothing), ROOT)
    assert isinstance(found, Unreachable) and found.code == "SPARK_LOST"


def test_ctrl_c() -> None:
    assert isinstance(to_task_error(KeyboardInterrupt(), task_of(_nothing), ROOT), Cancelled)
