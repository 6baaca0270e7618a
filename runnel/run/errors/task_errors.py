"""Tell what went wrong in a task: one line with the user's file and line, and whether trying again may help.

The whole trace, Python's and Java's, goes to the log of the run.
"""

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runnel.declare.model.flow import Task
from runnel.errors import Cancelled, Mistake, NoRoom, RunnelError, Unreachable, listed, nearest, no_room
from runnel.names import TableName
from runnel.query.engines.spark_errors import condition_in
from runnel.run.errors.user_code_lines import WORKER_TRACE, fragment, where

MOST = 300
_DISK_FULL = "RUN_DISK_FULL"
_TABLE = re.compile(r"table or view (`[^ ]+`) cannot be found")
_STOPPED = ("SparkContext was shut down", "stopped SparkContext")
_TRANSIENT = (
    "CommitStateUnknown",
    "Connection refused",
    "Connection reset",
    "ConnectException",
    "ExecutorLostFailure",
    "FetchFailed",
    "I/O error occurred while sending to the backend",
    "NoHttpResponseException",
    "SQLITE_BUSY",
    "SocketTimeoutException",
    "This connection has been closed",
    "Unknown failure",  # how Iceberg's catalog tells of a locked database
    "could not connect to server",
    "database is locked",
    "onnect timed out",
    "server closed the connection",
    "terminating connection",
    "the database system is",  # starting up, or shutting down
)
_POSTGRESQL = "org.postgresql.util.PSQLException"
_JAVA = re.compile(r"^(?:[\w.$]+\.)?(\w+(?:Exception|Error)): (.+)$")
_EMPTY: Mapping[TableName, Sequence[str]] = {}


def tell(
    error: BaseException, task: Task, root: Path, columns: Mapping[TableName, Sequence[str]] = _EMPTY
) -> RunnelError:
    """Return an error of a task as one that its author can act on. `columns` are those of its inputs."""
    if isinstance(error, RunnelError):
        error.at = error.at or where(error, "", task, root)
        return error
    if isinstance(error, KeyboardInterrupt):
        return Cancelled()
    text = _text(error)
    if _is_lost(error):
        what = f"Spark's Java process went away while it computed `{task.table}`"
        return Unreachable("SPARK_LOST", what, fix="run it again; if it ran out of memory, raise spark.driver.memory")
    if _POSTGRESQL in text and is_transient(error):
        what = f"the database went away while `{task.table}` was computed"
        fix = "run it again when the database answers"
        return Unreachable("RUN_DATABASE_AWAY", what, at=where(error, text, task, root), fix=fix)
    unknown = _unknown_column(error, text)
    if unknown:
        return _told_column(unknown, error, task, root, columns)
    code, why, fix = _reason(error, text)
    kind = NoRoom if code == _DISK_FULL else RunnelError
    return kind(code, _line(f"task `{task.table}` {why}"), at=where(error, text, task, root), fix=fix)


def is_transient(error: BaseException) -> bool:
    """Tell whether the same work may succeed when it is simply tried again."""
    if isinstance(error, RunnelError):
        if error.__cause__:
            return is_transient(error.__cause__)
        return isinstance(error, Unreachable) and not error.is_tried
    if _is_lost(error):
        return _is_alive()
    text = _text(error)
    if not _is_spark(error):
        chain = list(_chain(error))
        return any(isinstance(one, ConnectionError | TimeoutError) for one in chain) or "database is locked" in text
    # What a user's own function or data brings about comes again, whatever words its message has.
    if WORKER_TRACE in text or type(error).__name__ not in ("Py4JJavaError", "UnknownException"):
        return False
    return "OutOfMemoryError" not in text and any(sign in text for sign in _TRANSIENT)


def full_trace(error: BaseException) -> str:
    """Return everything that is known about an error, for the log: Python's trace and Java's."""
    try:
        parts = ["".join(traceback.format_exception(error))]
    except Exception:  # the message of a Java error is in a JVM that may be gone
        parts = ["".join(traceback.format_tb(error.__traceback__)) + type(error).__name__]
    stacks = (getattr(one, "_stackTrace", None) for one in _chain(error))
    return "\n".join(part.rstrip() for part in (*parts, *(stack for stack in stacks if stack))) + "\n"


def _reason(error: BaseException, text: str) -> tuple[str, str, str]:
    """Return the code, what the task did and the fix."""
    if isinstance(error, SystemExit):
        return "RUN_TASK_EXIT", "calls sys.exit()", "return a frame, or raise an exception that says what is wrong"
    if no_room(error) is not None:
        return _DISK_FULL, "found no space left on the disk", "make room, then run it again"
    if not _is_spark(error):
        fix = "correct the task; the log of the run has the whole trace"
        return "RUN_TASK_FAILED", f"failed: {_said(error, text)}", fix
    if WORKER_TRACE in text:
        fix = "correct the function, or the rows that it stumbles over"
        return "RUN_TASK_FAILED", f"failed in a Python function: {_in_worker(text)}", fix
    if any(sign in text for sign in _STOPPED):
        return "RUN_SPARK_STOPPED", "found Spark stopped", "remove spark.stop(): the session belongs to Runnel"
    if "OutOfMemoryError" in text:
        return "RUN_OUT_OF_MEMORY", "ran out of memory", "raise spark.driver.memory under [spark] conf in runnel.toml"
    found = condition_in(text)
    if found is None:
        return "RUN_TASK_FAILED", f"failed: {_in_java(error, text)}", "the log of the run has the whole trace"
    if found[0].startswith("TABLE_OR_VIEW_NOT_FOUND") and (named := _TABLE.search(found[1])):
        # The slot has only tables that tasks declare, so this may well be a table of the lake.
        name = named[1].replace("`", "")
        fix = "add it as a parameter or to inputs=, if the project makes it; else declare it with rn.source"
        return "RUN_UNDECLARED_INPUT", f"reads `{name}`, which it does not declare as an input", fix
    piece = fragment(text)
    why = f"failed: {found[1]}" + (f" In `{piece}`." if piece else "") + f" [{found[0]}]"
    is_code = type(error).__name__ in ("AnalysisException", "ParseException")
    return (
        "RUN_TASK_FAILED",
        why,
        "correct the task" if is_code else "correct the task, or the rows that it stumbles over",
    )


def _unknown_column(error: BaseException, text: str) -> str | None:
    """Return the column that an error calls unknown, as Spark writes it."""
    found = re.search(r"\[UNRESOLVED_COLUMN[^\]]*\].*? with name (\S+) cannot be resolved", text)
    found = found or re.search(r"\[ATTRIBUTE_NOT_SUPPORTED\] Attribute (\S+) is not supported", text)
    return found[1] if found and _is_spark(error) else None


def _told_column(
    unknown: str, error: BaseException, task: Task, root: Path, columns: Mapping[TableName, Sequence[str]]
) -> RunnelError:
    name = re.findall(r"`((?:[^`]|``)*)`", unknown)[-1].replace("``", "`")
    text = _text(error)
    offered = re.search(r"Did you mean one of the following\? \[([^\]]*)\]", text)
    choices = [part.rpartition("`.`")[2].strip("`") for part in offered[1].split(", ")] if offered else []
    choices = choices or [column for known in columns.values() for column in known]
    blamed = _blamed(name, choices, columns)
    missing = f"its input `{blamed}` has no such column" if blamed else "there is no such column at that point"
    close = nearest(name, [*(columns[blamed] if blamed else ()), *choices])
    what = f"task `{task.table}` uses the column `{name}`, but {missing}" + (f"; close: `{close}`" if close else "")
    fix = f"write `{close}`" if close else f"use one of {listed(choices)}" if choices else "correct the name"
    return Mistake("RUN_COLUMN_UNKNOWN", _line(what), at=where(error, text, task, root, name), fix=fix)


def _blamed(name: str, choices: Sequence[str], columns: Mapping[TableName, Sequence[str]]) -> TableName | None:
    """Return the only input that has all the columns which were offered, and not this one."""
    fitting = [table for table, known in columns.items() if set(choices) <= set(known) and name not in known]
    return fitting[0] if len(fitting) == 1 else None


def _said(error: BaseException, text: str) -> str:
    """Return the type and message of a Python exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return type(error).__name__ + (f": {lines[0]}" if lines else "")


def _in_worker(text: str) -> str:
    """Return the type and message of the exception whose traceback a Python worker sent."""
    trace = text.rpartition(WORKER_TRACE)[2].splitlines()
    return next((line for line in trace if line.strip() and not line[0].isspace()), "an exception").strip()


def _in_java(error: BaseException, text: str) -> str:
    """Return the innermost cause that a Java trace names, else its first telling line."""
    lines = [line.strip(": \t") for line in text.splitlines() if line.strip(": \t")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # py4j's own first line names a Java object; what happened stands in the second.
    line = causes[-1] if causes else lines[1] if len(lines) > 1 and "calling o" in lines[0] else (lines or [""])[0]
    found = _JAVA.match(line)
    return f"{found[1]}: {found[2]}" if found else line or type(error).__name__


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MOST else flat[: MOST - 1] + "…"


def _text(error: BaseException) -> str:
    with suppress(Exception):  # the message of a Java error is in a JVM that may be gone
        return str(error).partition("\n\nJVM stacktrace:")[0]
    return str(getattr(error, "_desc", None) or type(error).__name__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _is_spark(error: BaseException) -> bool:
    return any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__)


def _is_lost(error: BaseException) -> bool:
    """Tell whether this process could not talk to Spark's JVM."""
    if type(error).__name__ == "Py4JNetworkError":
        return True
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return isinstance(error, OSError) and any("py4j" in Path(frame.filename).parts for frame in last)


def _is_alive() -> bool:
    from pyspark import SparkContext

    try:
        return SparkContext._jvm is not None and SparkContext._jvm.java.lang.System.nanoTime() != 0
    except Exception:
        return False
