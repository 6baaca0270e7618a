"""Describe Spark's errors in one line; the whole trace goes to the log."""

import logging
import re
from collections.abc import Callable, Iterable

from runnel.errors import Mistake, RunnelError, Unreachable, close_hint, find_nearest

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # without a log, nothing is written to standard error
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ([^\n]+)")
_WRAPPER_CONDITIONS = ("TASK_WRITE_FAILED", "FAILED_READ_FILE", "FAILED_EXECUTE_UDF", "JOB_FAILED")
_UNKNOWN_FUNCTION = re.compile(r"\[UNRESOLVED_ROUTINE\] Cannot resolve routine (`[^ ]+`)")
_UNKNOWN_COLUMN = re.compile(r"\[UNRESOLVED_COLUMN[^\]]*\].*? with name (\S+) cannot be resolved")
_NOISE = re.compile(r"( If necessary,? set \S+ to \S+ to bypass this error\.)?( SQLSTATE: \w+.*)?$")


def describe_spark_error(error: Exception, list_functions: Callable[[], Iterable[str]] = tuple) -> RunnelError:
    """Convert an error of Spark to one that a user can act on, with Spark's error condition in its text.

    `list_functions` returns the names of the functions that Spark has, to find the nearest one.
    """
    _log.error("Spark could not answer the query", exc_info=error)
    kind = type(error)
    if kind.__name__ in ("Py4JNetworkError", "Py4JError") or isinstance(error, ConnectionError):
        what = "Spark's Java process ended during the query"
        return Unreachable(
            "SPARK_LOST", what, fix="run the query again; if it ran out of memory, raise spark.driver.memory"
        )
    condition_and_text = find_condition(str(error))
    if condition_and_text is None:
        lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
        # py4j's own first line names a Java object; what happened stands in the second.
        line = lines[1] if len(lines) > 1 and kind.__name__ == "Py4JJavaError" else (lines or [kind.__name__])[0]
        return RunnelError("SQL_FAILED", f"Spark could not answer: {line[:500]}", fix="Spark's log has the details")
    condition, text = condition_and_text
    what = f"Spark: {text[:500]} [{condition}]"
    if condition.startswith("UNRESOLVED_COLUMN"):
        return Mistake("SQL_COLUMN", what, fix="`runnel table NAME` shows the columns of a table")
    if (unknown_function := find_unknown_function(str(error), list_functions)) is not None:
        return Mistake("SQL_FUNCTION", unknown_function[0], fix=unknown_function[1])
    if kind.__name__ in ("AnalysisException", "ParseException"):
        return Mistake("SQL_FAILED", what, fix="correct the query")
    return RunnelError("SQL_FAILED", what, fix="correct the query, or the rows that it fails on")


def find_unknown_function(message: str, list_functions: Callable[[], Iterable[str]]) -> tuple[str, str] | None:
    """Return what is wrong and the fix if Spark does not know a function, with the nearest one that it knows."""
    match = _UNKNOWN_FUNCTION.search(message)
    if match is None:
        return None
    name = match[1].replace("`", "").rpartition(".")[2]
    nearest = find_nearest(name, list_functions())
    fix = f"write {nearest}(...)" if nearest else "Spark's own list: https://spark.apache.org/docs/latest/api/sql/"
    return f"Spark has no function `{name}`" + close_hint(nearest), fix


def find_unknown_column(message: str) -> str | None:
    """Return the column that Spark does not find, without its qualifiers."""
    match = _UNKNOWN_COLUMN.search(message)
    return re.findall(r"`((?:[^`]|``)*)`", match[1])[-1].replace("``", "`") if match else None


def find_condition(text: str) -> tuple[str, str] | None:
    r"""Return Spark's error condition in a text and its message, without wrappers and noise; None if there is none.

    >>> find_condition("[TASK_WRITE_FAILED] x\n[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")
    ('DIVIDE_BY_ZERO', 'Division by zero.')
    """
    conditions = [match for match in _CONDITION.findall(text) if not match[0].startswith(_WRAPPER_CONDITIONS)]
    return (conditions[0][0], _NOISE.sub("", conditions[0][1])) if conditions else None
