"""Describe errors raised while importing a flow file, with the user's line."""

import os
import sys
from collections import Counter

from runnel.declare.caller_location import find_project_lines, relative_path
from runnel.declare.model.source_location import SourceLocation
from runnel.errors import Mistake, RunnelError

_PYSPARK = f"{os.sep}pyspark{os.sep}"
_NO_SESSION = ("SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_OR_DEFAULT_SESSION", "NO_ACTIVE_SESSION")


def to_mistake(error: BaseException, file: str, root: str) -> RunnelError:
    """Convert an exception that a flow file raised into a mistake."""
    project_lines = find_project_lines(error.__traceback__, root)
    place = project_lines[-1][0] if project_lines else SourceLocation(relative_path(file, root), 1)
    if isinstance(error, RunnelError):
        error.at = error.at or str(place)
        return error
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(root):
        at = f"{relative_path(error.filename, root)}:{error.lineno or 1}"
        return Mistake("DECLARE_SYNTAX", f"this is not valid Python: {error.msg}", at=at, fix="correct it there")
    if isinstance(error, RecursionError):
        return _describe_recursion(project_lines, place)
    if isinstance(error, SystemExit):
        what = f"{place.file} ends the program ({'sys.exit' if error.code is None else f'exit code {error.code}'})"
        fix = "remove the exit; a script of its own does not belong below flows/"
        return Mistake("DECLARE_EXIT", f"{what} while it is imported", at=str(place), fix=fix)
    if is_missing_session(error):
        what = f"{place.file} needs a Spark session while it is imported"
        fix = "move it into the task's function, where the session exists"
        return Mistake("DECLARE_NEEDS_SPARK", what, at=str(place), fix=fix)
    fix = "correct that line; `python` on the file shows the same"
    if isinstance(error, ModuleNotFoundError):
        fix = "install the package, or correct the name; modules are found in the project's folder and in flows/"
    what = f"{relative_path(file, root)} can't be imported: {type(error).__name__}: {_first_line(error)}"
    return Mistake("DECLARE_IMPORT", what, at=str(place), fix=fix)


def is_missing_session(error: BaseException) -> bool:
    """Return whether PySpark raised an error because there is no session, as for `F.col("x")` outside a function."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or pyspark.SparkContext._active_spark_context is not None:
        return False
    condition = getattr(error, "getCondition", None)
    if condition is not None and condition() in _NO_SESSION:
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_inside = trace is not None and _PYSPARK in trace.tb_frame.f_code.co_filename
    return is_inside and isinstance(error, AssertionError | AttributeError)


def find_project_line(error: BaseException, root: str) -> SourceLocation | None:
    """Return the innermost line of the project in an exception's traceback."""
    project_lines = find_project_lines(error.__traceback__, root)
    return project_lines[-1][0] if project_lines else None


def _describe_recursion(project_lines: list[tuple[SourceLocation, str]], place: SourceLocation) -> Mistake:
    counts = Counter(project_lines)
    (at, name), _ = counts.most_common(1)[0] if counts else ((place, "?"), 1)
    what = f"the template `{name}` calls itself endlessly"
    return Mistake("DECLARE_RECURSION", what, at=str(at), fix="add a case in which the template does not call itself")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
