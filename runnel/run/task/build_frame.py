"""Build the frame of a task: call its function, or let Spark read its SQL. Nothing is computed here.

Whatever goes wrong is told with the task's name and the user's line.
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
from runnel.phase_timer import phase
from runnel.run.errors.task_errors import tell
from runnel.run.write.frame_schema import shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RETURN = "return a Spark frame"
_RETURNS = {
    "NoneType": ("returns nothing", "did you forget `return`?"),
    "GroupedData": ("returns groups without an aggregate", "add .agg(...) after .groupBy(...)"),
    "generator": ("returns a generator", f"{_RETURN} instead of `yield`"),
    "coroutine": ("is an async function", "write it with `def`"),
    "DataFrameWriter": ("returns a writer", f"{_RETURN}; Runnel writes it"),
}
_here = threading.local()  # the task whose function this thread is inside


def build(task: Task, frames: "Mapping[TableName, DataFrame]", session: "SparkSession", root: Path) -> "DataFrame":
    """Return what a task makes of its inputs, checked: a frame of this session with storable, declared columns."""
    _hush()
    try:
        _refuse_stopped(session, task)
        with phase("compute"), _unstoppable(session, task), _active(session):
            made = _call(task, frames, session) if task.function else _query(task, frames, session)
        _refuse_stopped(session, task)
        return shaped(_frame(made, task, session), task)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise tell(error, task, root, _columns(frames)) from _cause(error)


def _call(task: Task, frames: "Mapping[TableName, DataFrame]", session: "SparkSession") -> object:
    assert task.function is not None
    given: dict[str, Any] = {parameter: frames[table] for parameter, table in task.inputs} | dict(task.params)
    return task.function(**given, **({"spark": session} if task.takes_spark else {}))


def _query(task: Task, frames: "Mapping[TableName, DataFrame]", session: "SparkSession") -> object:
    """Read the task's SQL with each of its tables as a view of a name that nobody else has.

    A frame's plan is resolved when it is made, so that the views can go at once.
    """
    from runnel.declare.sql.task_sql import parameters_in, replaced

    assert task.sql is not None
    views = {table: f"runnel_{table.layer}_{table.name}_{secrets.token_hex(4)}" for table in frames}
    used = set(parameters_in(task.sql))
    try:
        for table, view in views.items():
            frames[table].createTempView(view)
        args = {name: value for name, value in task.params if name in used}
        return session.sql(replaced(task.sql, views), args=args or None)
    finally:
        for view in views.values():
            with suppress(Exception):  # what went wrong first is what is told
                session.catalog.dropTempView(view)


def _frame(made: object, task: Task, session: "SparkSession") -> "DataFrame":
    from pyspark.sql import DataFrame

    if not isinstance(made, DataFrame):
        name = type(made).__name__
        module = type(made).__module__.partition(".")[0]
        told = f"returns a {module}.{name}, not a Spark frame" if module in ("pandas", "pyarrow", "polars") else None
        what, fix = _RETURNS.get(name, (told or f"returns a value of type {name}, not a Spark frame", _RETURN))
        fix = "return spark.createDataFrame(...) of it; a parameter named `spark` gets the session" if told else fix
        raise Mistake("RUN_NOT_A_FRAME", f"task `{task.table}` {what}", at=str(task.place), fix=fix)
    if not _is_ours(made, session):
        what = f"task `{task.table}` returns a frame of another Spark session"
        fix = "make frames from the inputs, or with the session that a parameter named `spark` gets"
        raise Mistake("RUN_OTHER_SESSION", what, at=str(task.place), fix=fix)
    return made


def _is_ours(frame: "DataFrame", session: "SparkSession") -> bool:
    if frame.sparkSession is session:
        return True
    inner = getattr(frame, "_jdf", None)  # a frame of Spark Connect has none
    return inner is not None and bool(inner.sparkSession().equals(session._jsparkSession))


def _columns(frames: "Mapping[TableName, DataFrame]") -> dict[TableName, list[str]]:
    found = {}
    for table, frame in frames.items():
        with suppress(Exception):  # Spark may be gone, and that is what is told
            found[table] = frame.columns
    return found


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, RunnelError) else error


def _refuse_stopped(session: "SparkSession", task: Task) -> None:
    inner = session.sparkContext._jsc
    if inner is None or inner.sc().isStopped():
        raise _stopped(task, "found Spark stopped")


@contextmanager
def _active(session: "SparkSession") -> Iterator[None]:
    """Make this the session of the thread: PySpark remembers the lines of operations only where there is one."""
    kind = session._get_j_spark_session_class(session._jvm)
    before = kind.getActiveSession()
    kind.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            kind.setActiveSession(before.get())
        else:
            kind.clearActiveSession()


@contextmanager
def _unstoppable(session: "SparkSession", task: Task) -> Iterator[None]:
    """Refuse `spark.stop()` from a user's function: other tasks compute on the same Spark."""
    context = session.sparkContext
    if not hasattr(context.stop, "is_refusing"):
        setattr(context, "stop", _refusing(context.stop))  # noqa: B010
    _here.task = task
    try:
        yield
    finally:
        _here.task = None


def _refusing(stop: Callable[[], None]) -> Callable[[], None]:
    def stop_unless_inside() -> None:
        task = getattr(_here, "task", None)
        if task is not None:
            raise _stopped(task, "calls spark.stop(), but other tasks use the same Spark")
        stop()

    setattr(stop_unless_inside, "is_refusing", True)  # noqa: B010
    return stop_unless_inside


def _stopped(task: Task, what: str) -> Mistake:
    fix = "remove spark.stop(): the session belongs to Runnel"
    return Mistake("RUN_SPARK_STOPPED", f"task `{task.table}` {what}", fix=fix)


def _hush() -> None:
    """Keep PySpark from writing each error as JSON to standard error, in addition to raising it."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True
