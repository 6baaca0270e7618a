"""Turn an exception of a task into an error with the user's file and line, and tell whether it is transient.

The full trace, Python's and Java's, goes to the log of the run.
"""

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runnel.declare.model.flow import Task
from runnel.errors import (
    Cancelled,
    Mistake,
    NoRoom,
    RunnelError,
    Unreachable,
    close_hint,
    find_disk_full,
    find_nearest,
    join_names,
)
from runnel.names import TableName
from runnel.query.engines.spark_errors import find_condition, find_unknown_function
from runnel.run.errors.user_code_lines import WORKER_TRACE, extract_sql_fragment, locate_error

MOST_CHARACTERS = 300
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
    "Unknown failure",  # how Iceberg's catalog reports a locked database
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


def to_task_error(
    error: BaseException, task: Task, root: Path, columns: Mapping[TableName, Sequence[str]] = _EMPTY
) -> RunnelError:
    """Return an error that the author of a task can act on. `columns` are those of its inputs."""
    if isinstance(error, RunnelError):
        error.at = error.at or locate_error(error, "", task, root)
        return error
    if isinstance(error, KeyboardInterrupt):
        return Cancelled()
    text = _read_message(error)
    if _is_jvm_lost(error):
        what = f"Spark's Java process ended while it computed `{task.table}`"
        return Unreachable("SPARK_LOST", what, fix="run it again; if it ran out of memory, raise spark.driver.memory")
    if _POSTGRESQL in text and is_transient(error):
        what = f"the connection to the database was lost while `{task.table}` was computed"
        fix = "run it again when the database answers"
        return Unreachable("RUN_DATABASE_AWAY", what, at=locate_error(error, text, task, root), fix=fix)
    unknown = _find_unknown_column(error, text)
    if unknown:
        return _unknown_column_error(unknown, error, task, root, columns)
    code, why, fix = _explain_error(error, text)
    kind = NoRoom if code == _DISK_FULL else RunnelError
    return kind(code, _shorten_line(f"task `{task.table}` {why}"), at=locate_error(error, text, task, root), fix=fix)


def list_spark_functions() -> Sequence[str]:
    """Return the names of Spark's functions, as PySpark has them: enough to find a near miss without asking Spark."""
    from pyspark.sql import functions

    return functions.__all__


def is_caused_by(error: BaseException, names: tuple[str, ...]) -> bool:
    """Return whether an exception of these names, or of a class derived from one, caused an error.

    Of an exception in a Python worker of Spark only the name is known, not its base classes.
    """
    if not names:
        return False
    raised = [cause for cause in _walk_causes(error) if not isinstance(cause, RunnelError)]
    if any(kind.__name__ in names for cause in raised for kind in type(cause).__mro__):
        return True
    texts = [text for cause in raised if WORKER_TRACE in (text := _read_message(cause))]
    pattern = re.compile(rf"^\s*(?:[\w.<>]+\.)?(?:{'|'.join(names)})(?::|$)", re.MULTILINE)
    return any(pattern.search(text) for text in texts)


def is_transient(error: BaseException) -> bool:
    """Return whether the same work may succeed when it is simply tried again."""
    if isinstance(error, RunnelError):
        if error.__cause__:
            return is_transient(error.__cause__)
        return isinstance(error, Unreachable) and not error.was_retried
    if _is_jvm_lost(error):
        return _is_jvm_alive()
    text = _read_message(error)
    if not _is_spark_error(error):
        chain = list(_walk_causes(error))
        return any(isinstance(cause, ConnectionError | TimeoutError) for cause in chain) or "database is locked" in text
    # An error of a user's own function or data comes again, whatever its message says.
    if WORKER_TRACE in text or type(error).__name__ not in ("Py4JJavaError", "UnknownException"):
        return False
    return "OutOfMemoryError" not in text and any(sign in text for sign in _TRANSIENT)


def format_full_trace(error: BaseException) -> str:
    """Return the full trace of an error for the log: Python's and Java's."""
    try:
        traces = ["".join(traceback.format_exception(error))]
    except Exception:  # the message of a Java error is in the JVM, which may have stopped
        traces = ["".join(traceback.format_tb(error.__traceback__)) + type(error).__name__]
    stacks = (getattr(cause, "_stackTrace", None) for cause in _walk_causes(error))
    return "\n".join(trace.rstrip() for trace in (*traces, *(stack for stack in stacks if stack))) + "\n"


def _explain_error(error: BaseException, text: str) -> tuple[str, str, str]:
    """Return the error code, what the task did, and the fix."""
    if isinstance(error, SystemExit):
        return "RUN_TASK_EXIT", "calls sys.exit()", "return a frame, or raise an exception that says what is wrong"
    if find_disk_full(error) is not None:
        return _DISK_FULL, "ran out of disk space", "free some space, then run it again"
    if not _is_spark_error(error):
        fix = "correct the task; the log of the run has the full trace"
        return "RUN_TASK_FAILED", f"failed: {_describe_python_error(error, text)}", fix
    if WORKER_TRACE in text:
        fix = "correct the function, or the rows that it fails on"
        return "RUN_TASK_FAILED", f"failed in a Python function: {_describe_worker_error(text)}", fix
    if any(sign in text for sign in _STOPPED):
        return (
            "RUN_SPARK_STOPPED",
            "failed because Spark was stopped",
            "remove spark.stop(): the session belongs to Runnel",
        )
    if "OutOfMemoryError" in text:
        return "RUN_OUT_OF_MEMORY", "ran out of memory", "raise spark.driver.memory under [spark] conf in runnel.toml"
    condition = find_condition(text)
    if condition is None:
        return (
            "RUN_TASK_FAILED",
            f"failed: {_describe_java_error(error, text)}",
            "the log of the run has the full trace",
        )
    if condition[0].startswith("TABLE_OR_VIEW_NOT_FOUND") and (table_match := _TABLE.search(condition[1])):
        # The slot has only tables that tasks declare, so this may well be a table of the lake.
        name = table_match[1].replace("`", "")
        fix = "add it as a parameter or to inputs= if a task computes it; otherwise declare it with rn.source"
        return "RUN_UNDECLARED_INPUT", f"reads `{name}`, which it does not declare as an input", fix
    if (unknown_function := find_unknown_function(text, list_spark_functions)) is not None:
        return "RUN_FUNCTION_UNKNOWN", f"calls a function that is not there: {unknown_function[0]}", unknown_function[1]
    sql_fragment = extract_sql_fragment(text)
    why = f"failed: {condition[1]}" + (f" In `{sql_fragment}`." if sql_fragment else "") + f" [{condition[0]}]"
    is_code = type(error).__name__ in ("AnalysisException", "ParseException")
    return (
        "RUN_TASK_FAILED",
        why,
        "correct the task" if is_code else "correct the task, or the rows that it fails on",
    )


def _find_unknown_column(error: BaseException, text: str) -> str | None:
    """Return the column that an error calls unknown, as Spark writes it."""
    match = re.search(r"\[UNRESOLVED_COLUMN[^\]]*\].*? with name (\S+) cannot be resolved", text)
    match = match or re.search(r"\[ATTRIBUTE_NOT_SUPPORTED\] Attribute (\S+) is not supported", text)
    return match[1] if match and _is_spark_error(error) else None


def _unknown_column_error(
    unknown: str, error: BaseException, task: Task, root: Path, columns: Mapping[TableName, Sequence[str]]
) -> RunnelError:
    name = re.findall(r"`((?:[^`]|``)*)`", unknown)[-1].replace("``", "`")
    text = _read_message(error)
    suggestions = re.search(r"Did you mean one of the following\? \[([^\]]*)\]", text)
    choices = [part.rpartition("`.`")[2].strip("`") for part in suggestions[1].split(", ")] if suggestions else []
    choices = choices or [column for column_names in columns.values() for column in column_names]
    blamed_table = _find_blamed_table(name, choices, columns)
    missing = (
        f"its input `{blamed_table}` has no such column" if blamed_table else "there is no such column at that point"
    )
    close = find_nearest(name, [*(columns[blamed_table] if blamed_table else ()), *choices])
    what = f"task `{task.table}` uses the column `{name}`, but {missing}" + close_hint(close)
    fix = f"write `{close}`" if close else f"use one of {join_names(choices)}" if choices else "correct the name"
    return Mistake("RUN_COLUMN_UNKNOWN", _shorten_line(what), at=locate_error(error, text, task, root, name), fix=fix)


def _find_blamed_table(
    name: str, choices: Sequence[str], columns: Mapping[TableName, Sequence[str]]
) -> TableName | None:
    """Return the only input that has all suggested columns, and not this one."""
    matching_tables = [
        table
        for table, column_names in columns.items()
        if set(choices) <= set(column_names) and name not in column_names
    ]
    return matching_tables[0] if len(matching_tables) == 1 else None


def _describe_python_error(error: BaseException, text: str) -> str:
    """Return the type and message of a Python exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return type(error).__name__ + (f": {lines[0]}" if lines else "")


def _describe_worker_error(text: str) -> str:
    """Return the type and message of the exception whose traceback a Python worker sent."""
    trace = text.rpartition(WORKER_TRACE)[2].splitlines()
    return next((line for line in trace if line.strip() and not line[0].isspace()), "an exception").strip()


def _describe_java_error(error: BaseException, text: str) -> str:
    """Return the innermost cause in a Java trace, else its first informative line."""
    lines = [line.strip(": \t") for line in text.splitlines() if line.strip(": \t")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # py4j's own first line names a Java object; what happened stands in the second.
    line = causes[-1] if causes else lines[1] if len(lines) > 1 and "calling o" in lines[0] else (lines or [""])[0]
    match = _JAVA.match(line)
    return f"{match[1]}: {match[2]}" if match else line or type(error).__name__


def _shorten_line(text: str) -> str:
    single_line = " ".join(text.split())
    return single_line if len(single_line) <= MOST_CHARACTERS else single_line[: MOST_CHARACTERS - 1] + "…"


def _read_message(error: BaseException) -> str:
    with suppress(Exception):  # the message of a Java error is in the JVM, which may have stopped
        return str(error).partition("\n\nJVM stacktrace:")[0]
    return str(getattr(error, "_desc", None) or type(error).__name__)


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    visited_ids: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited_ids:
        visited_ids.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _is_spark_error(error: BaseException) -> bool:
    return any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__)


def _is_jvm_lost(error: BaseException) -> bool:
    """Return whether this process could not talk to Spark's JVM."""
    if type(error).__name__ == "Py4JNetworkError":
        return True
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return isinstance(error, OSError) and any("py4j" in Path(frame.filename).parts for frame in last)


def _is_jvm_alive() -> bool:
    from pyspark import SparkContext

    try:
        return SparkContext._jvm is not None and SparkContext._jvm.java.lang.System.nanoTime() != 0
    except Exception:
        return False
