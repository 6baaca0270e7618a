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
_OURS = Path(__file__).resolve().parents[2]
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_CALLED = re.compile(r"was called from\s*\n(.+):(\d+)\s*$", re.MULTILINE)
_MARKED = re.compile(r"^== SQL[^\n]*==\n(?P<sql>.*?)^(?P<before> *)(?P<mark>\^+)$", re.MULTILINE | re.DOTALL)


def where(error: BaseException, text: str, task: Task, root: Path, name: str | None = None) -> str:
    """Return `file:line` of the user's line that is to blame, or where the task is declared.

    `text` is the error's message, `name` a word to look for in a task's SQL.
    """
    base = root.resolve()
    places = [*_in_worker(text, base), *_called(error, text, base), *_in_traceback(error, base)]
    return next(iter(places), None) or _in_sql(text, task, base, name) or str(task.place)


def fragment(text: str) -> str | None:
    r"""Return the piece of SQL that Spark marks in a message.

    >>> fragment("[X] y\n== SQL (line 1, position 8) ==\nselect cast(a as int)\n       ^^^^^^^^^^^^^^\n")
    'cast(a as int)'
    """
    found = _MARKED.search(text)
    if not found:
        return None
    start = len(found["before"])
    return found["sql"].splitlines()[-1][start : start + len(found["mark"])] or None


def _in_worker(text: str, base: Path) -> Iterator[str]:
    """Yield the lines of the project in the traceback of a Python worker, innermost first."""
    _, found, trace = text.rpartition(WORKER_TRACE)
    if found:
        for file, line in reversed(_FRAME.findall(trace)):
            yield from _placed(file, int(line), base)


def _called(error: BaseException, text: str, base: Path) -> Iterator[str]:
    """Yield the line that called the operation of a frame which fails."""
    sites = _CALLED.findall(text)
    with suppress(Exception):  # another kind of error has no context, and Spark may be gone
        contexts = [one for one in error.getQueryContext() if one.contextType().name == "DataFrame"]  # type: ignore[attr-defined]
        sites += [one.callSite().rpartition(":")[::2] for one in contexts]
    for file, line in sites:
        if line.isdigit():
            yield from _placed(file, int(line), base)


def _in_traceback(error: BaseException, base: Path) -> Iterator[str]:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        yield from _placed(frame.filename, frame.lineno or 0, base)


def _in_sql(text: str, task: Task, base: Path, name: str | None) -> str | None:
    """Return the one line of the task's file that has the piece of SQL which Spark complains about."""
    wanted = name or fragment(text)
    file = base / task.place.file
    if not wanted or not file.is_file():
        return None
    words = r"\s*".join(re.escape(part) for part in wanted.split())
    content = file.read_text("utf-8", errors="replace")
    found = [match.start() for match in re.finditer(rf"(?<!\w){words}(?!\w)", content, re.IGNORECASE)]
    if len(found) != 1 and not (found and task.sql is not None):
        return None
    return f"{task.place.file}:{content.count(chr(10), 0, found[0]) + 1}"


def _placed(file: str, line: int, base: Path) -> Iterator[str]:
    """Yield `file:line` if it is the user's own: inside the project, no library and not Runnel."""
    path = (base / file).resolve()
    if not path.is_relative_to(base) or path.is_relative_to(_OURS) or not path.is_file():
        return
    relative = path.relative_to(base)
    if not any(part == "site-packages" or part.startswith(".") for part in relative.parts):
        yield f"{relative}:{line}"
