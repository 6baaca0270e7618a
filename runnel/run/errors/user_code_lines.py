"""Find the line of the user's project that an error comes from.

Reads tracebacks and the text of Spark's errors, and asks Spark where the failing operation was called from.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runnel.declare.model.flow import Task

WORKER_TRACE = "Traceback (most recent call last):"
_RUNNEL_ROOT = Path(__file__).resolve().parents[2]
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_CALLED = re.compile(r"was called from\s*\n(.+):(\d+)\s*$", re.MULTILINE)
_MARKED = re.compile(r"^== SQL[^\n]*==\n(?P<sql>.*?)^(?P<before> *)(?P<mark>\^+)$", re.MULTILINE | re.DOTALL)


def locate_error(error: BaseException, text: str, task: Task, root: Path, name: str | None = None) -> str:
    """Return `file:line` of the user's line that is to blame, or where the task is declared.

    `text` is the error's message, `name` an identifier to look for in a task's SQL.
    """
    base = root.resolve()
    locations = [
        *_find_worker_lines(text, base),
        *_find_call_sites(error, text, base),
        *_find_traceback_lines(error, base),
    ]
    return next(iter(locations), None) or _find_sql_line(text, task, base, name) or str(task.place)


def extract_sql_fragment(text: str) -> str | None:
    r"""Return the piece of SQL that Spark marks in a message.

    >>> extract_sql_fragment("[X] y\n== SQL (line 1, position 8) ==\nselect cast(a as int)\n       ^^^^^^^^^^^^^^\n")
    'cast(a as int)'
    """
    match = _MARKED.search(text)
    if not match:
        return None
    start = len(match["before"])
    return match["sql"].splitlines()[-1][start : start + len(match["mark"])] or None


def _find_worker_lines(text: str, base: Path) -> Iterator[str]:
    """Yield the lines of the project in the traceback of a Python worker, innermost first."""
    _, separator, trace = text.rpartition(WORKER_TRACE)
    if separator:
        for file, line in reversed(_FRAME.findall(trace)):
            yield from _format_own_line(file, int(line), base)


def _find_call_sites(error: BaseException, text: str, base: Path) -> Iterator[str]:
    """Yield the line that called the failing frame operation."""
    sites = _CALLED.findall(text)
    with suppress(Exception):  # another kind of error has no context, and Spark may be gone
        contexts = [
            query_context
            for query_context in error.getQueryContext()  # type: ignore[attr-defined]
            if query_context.contextType().name == "DataFrame"
        ]
        sites += [query_context.callSite().rpartition(":")[::2] for query_context in contexts]
    for file, line in sites:
        if line.isdigit():
            yield from _format_own_line(file, int(line), base)


def _find_traceback_lines(error: BaseException, base: Path) -> Iterator[str]:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        yield from _format_own_line(frame.filename, frame.lineno or 0, base)


def _find_sql_line(text: str, task: Task, base: Path, name: str | None) -> str | None:
    """Return the one line of the task's file that has the piece of SQL which Spark complains about."""
    searched_sql = name or extract_sql_fragment(text)
    file = base / task.place.file
    if not searched_sql or not file.is_file():
        return None
    pattern = r"\s*".join(re.escape(part) for part in searched_sql.split())
    content = file.read_text("utf-8", errors="replace")
    offsets = [match.start() for match in re.finditer(rf"(?<!\w){pattern}(?!\w)", content, re.IGNORECASE)]
    if len(offsets) != 1 and not (offsets and task.sql is not None):
        return None
    return f"{task.place.file}:{content.count(chr(10), 0, offsets[0]) + 1}"


def _format_own_line(file: str, line: int, base: Path) -> Iterator[str]:
    """Yield `file:line` if it is the user's own: inside the project, no library and not Runnel."""
    path = (base / file).resolve()
    if not path.is_relative_to(base) or path.is_relative_to(_RUNNEL_ROOT) or not path.is_file():
        return
    relative = path.relative_to(base)
    if not any(part == "site-packages" or part.startswith(".") for part in relative.parts):
        yield f"{relative}:{line}"
