"""Build the frame of a task: call its function, or let Spark parse its SQL. Computes nothing.

Every error names the task and the line in the user's code.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import Mistake, RunnelError
from runnel.names import TableName
from runnel.phase_timer import measure_phase
from runnel.run.errors.task_errors import to_task_error
from runnel.run.write.frame_schema import conform_to_schema

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

_RETURN = "return a Spark frame"
_RETURNS = {
    "NoneType": ("returns nothing", "did you forget `return`?"),
    "GroupedData": ("returns groups without an aggregate", "add .agg(...) after .groupBy(...)"),
    "generator": ("returns a generator", f"{_RETURN} instead of `yield`"),
    "coroutine": ("is an async function", "write it with `def`"),
    "DataFrameWriter": ("returns a writer", f"{_RETURN}; Runnel writes it"),
}
_thread_state = threading.local()  # `task`: the task whose function this thread is calling


def build_frame(
    task: Task,
    frames: "Mapping[TableName, DataFrame]",
    session: "SparkSession",
    root: Path,
    *,
    scheduled_at: "datetime | None" = None,
) -> "DataFrame":
    """Return the frame that a task makes of its inputs: of this session, with storable columns as declared.

    `scheduled_at` is the time for which a schedule queued the run, for a task that takes it.
    """
    _silence_pyspark_logger()
    try:
        _refuse_stopped_spark(session, task)
        with measure_phase("compute"), _refuse_stop_calls(session, task), _activate_session(session):
            returned = (
                _call_function(task, frames, session, scheduled_at)
                if task.function
                else _run_sql(task, frames, session)
            )
        _refuse_stopped_spark(session, task)
        return conform_to_schema(_require_frame(returned, task, session), task)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise to_task_error(error, task, root, _list_columns(frames)) from _find_cause(error)


def _call_function(
    task: Task, frames: "Mapping[TableName, DataFrame]", session: "SparkSession", scheduled_at: "datetime | None"
) -> object:
    assert task.function is not None
    arguments: dict[str, Any] = {parameter: frames[table] for parameter, table in task.inputs} | dict(task.params)
    arguments |= {"spark": session} if task.takes_spark else {}
    arguments |= {"scheduled_at": scheduled_at} if task.takes_scheduled_at else {}
    return task.function(**arguments)


def _run_sql(task: Task, frames: "Mapping[TableName, DataFrame]", session: "SparkSession") -> object:
    """Run the task's SQL with each of its tables as a temporary view with a unique name.

    A frame's plan is resolved when the frame is created, so that the views can be dropped at once.
    """
    from runnel.declare.sql.task_sql import find_parameters
    from runnel.declare.sql.view_substitution import replace_tables

    assert task.sql is not None
    views = {table: f"runnel_{table.layer}_{table.name}_{secrets.token_hex(4)}" for table in frames}
    used = set(find_parameters(task.sql))
    try:
        for table, view in views.items():
            frames[table].createTempView(view)
        args = {name: value for name, value in task.params if name in used}
        return session.sql(replace_tables(task.sql, views), args=args or None)
    finally:
        for view in views.values():
            with suppress(Exception):  # the first error is the one to report
                session.catalog.dropTempView(view)


def _require_frame(returned: object, task: Task, session: "SparkSession") -> "DataFrame":
    from pyspark.sql import DataFrame

    if not isinstance(returned, DataFrame):
        name = type(returned).__name__
        module = type(returned).__module__.partition(".")[0]
        library_problem = (
            f"returns a {module}.{name}, not a Spark frame" if module in ("pandas", "pyarrow", "polars") else None
        )
        what, fix = _RETURNS.get(
            name, (library_problem or f"returns a value of type {name}, not a Spark frame", _RETURN)
        )
        fix = (
            "return spark.createDataFrame(...) of it; a parameter named `spark` gets the session"
            if library_problem
            else fix
        )
        raise Mistake("RUN_NOT_A_FRAME", f"task `{task.table}` {what}", at=str(task.place), fix=fix)
    if not _belongs_to_session(returned, session):
        what = f"task `{task.table}` returns a frame of another Spark session"
        fix = "make frames from the inputs, or with the session that a parameter named `spark` gets"
        raise Mistake("RUN_OTHER_SESSION", what, at=str(task.place), fix=fix)
    return returned


def _belongs_to_session(frame: "DataFrame", session: "SparkSession") -> bool:
    if frame.sparkSession is session:
        return True
    java_frame = getattr(frame, "_jdf", None)  # a frame of Spark Connect has none
    return java_frame is not None and bool(java_frame.sparkSession().equals(session._jsparkSession))


def _list_columns(frames: "Mapping[TableName, DataFrame]") -> dict[TableName, list[str]]:
    columns = {}
    for table, frame in frames.items():
        with suppress(Exception):  # Spark may have stopped, and that is the error to report
            columns[table] = frame.columns
    return columns


def _find_cause(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, RunnelError) else error


def _refuse_stopped_spark(session: "SparkSession", task: Task) -> None:
    java_context = session.sparkContext._jsc
    if java_context is None or java_context.sc().isStopped():
        raise _stopped_error(task, "failed because Spark was stopped")


@contextmanager
def _activate_session(session: "SparkSession") -> Iterator[None]:
    """Make this the active session of the thread: PySpark records call sites only if there is one."""
    session_class = session._get_j_spark_session_class(session._jvm)
    previous_session = session_class.getActiveSession()
    session_class.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if previous_session.isDefined():
            session_class.setActiveSession(previous_session.get())
        else:
            session_class.clearActiveSession()


@contextmanager
def _refuse_stop_calls(session: "SparkSession", task: Task) -> Iterator[None]:
    """Refuse `spark.stop()` inside a user's function: other tasks use the same Spark."""
    context = session.sparkContext
    if not hasattr(context.stop, "is_refusing"):
        setattr(context, "stop", _make_refusing_stop(context.stop))  # noqa: B010
    _thread_state.task = task
    try:
        yield
    finally:
        _thread_state.task = None


def _make_refusing_stop(stop: Callable[[], None]) -> Callable[[], None]:
    def stop_unless_inside() -> None:
        task = getattr(_thread_state, "task", None)
        if task is not None:
            raise _stopped_error(task, "calls spark.stop(), but other tasks use the same Spark")
        stop()

    setattr(stop_unless_inside, "is_refusing", True)  # noqa: B010
    return stop_unless_inside


def _stopped_error(task: Task, what: str) -> Mistake:
    fix = "remove spark.stop(): the session belongs to Runnel"
    return Mistake("RUN_SPARK_STOPPED", f"task `{task.table}` {what}", fix=fix)


def _silence_pyspark_logger() -> None:
    """Keep PySpark from writing each error as JSON to standard error, in addition to raising it."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True
