"""Describe Spark's errors in one line; the whole trace goes to the log."""

import logging
import re

from runnel.errors import Mistake, RunnelError, Unreachable

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # without a log, nothing is written to standard error
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ([^\n]+)")
_WRAPPER_CONDITIONS = ("TASK_WRITE_FAILED", "FAILED_READ_FILE", "FAILED_EXECUTE_UDF", "JOB_FAILED")
_NOISE = re.compile(r"( If necessary,? set \S+ to \S+ to bypass this error\.)?( SQLSTATE: \w+.*)?$")


def describe_spark_error(error: Exception) -> RunnelError:
    """Convert an error of Spark to one that a user can act on, with Spark's error condition in its text."""
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
    if kind.__name__ in ("AnalysisException", "ParseException"):
        return Mistake("SQL_FAILED", what, fix="correct the query")
    return RunnelError("SQL_FAILED", what, fix="correct the query, or the rows that it fails on")


def find_condition(text: str) -> tuple[str, str] | None:
    r"""Return Spark's error condition in a text and its message, without wrappers and noise; None if there is none.

    >>> find_condition("[TASK_WRITE_FAILED] x\n[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")
    ('DIVIDE_BY_ZERO', 'Division by zero.')
    """
    conditions = [match for match in _CONDITION.findall(text) if not match[0].startswith(_WRAPPER_CONDITIONS)]
    return (conditions[0][0], _NOISE.sub("", conditions[0][1])) if conditions else None
