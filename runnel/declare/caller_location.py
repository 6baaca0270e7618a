"""Find the line of the user's file that is being executed. Inspects only the call stack."""

import os
import sys
from bisect import bisect_right
from types import CodeType, FrameType, TracebackType

from runnel.declare.model.source_location import SourceLocation

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - compared as text
_LONG_LINE_TABLE = 4096  # bytes of line table
_INTERNAL_PREFIXES = (_PACKAGE, "<frozen ")


class LineIndex:
    """Looks up the line of a frame. Python searches from the start of the code each time: slow in long files."""

    def __init__(self) -> None:
        self._line_tables: dict[int, tuple[CodeType, list[int], list[int | None]]] = {}

    def line_of(self, frame: FrameType) -> int:
        """Return the line that a frame is executing."""
        code = frame.f_code
        if len(code.co_linetable) < _LONG_LINE_TABLE:
            return frame.f_lineno
        if id(code) not in self._line_tables:  # by identity: comparing code objects for equality is slow
            table = list(code.co_lines())
            self._line_tables[id(code)] = (code, [start for start, _, _ in table], [line for _, _, line in table])
        _, starts, line_numbers = self._line_tables[id(code)]
        return line_numbers[bisect_right(starts, frame.f_lasti) - 1] or frame.f_lineno


def find_caller_location(root: str | None, line_index: LineIndex) -> SourceLocation:
    """Return the innermost line inside the project's folder, or the innermost one outside Runnel if there is none."""
    frame: FrameType | None = sys._getframe(1)
    fallback: SourceLocation | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_INTERNAL_PREFIXES):
            if root is None or is_project_file(file, root):
                return SourceLocation(relative_path(file, root), line_index.line_of(frame))
            fallback = fallback or SourceLocation(file, line_index.line_of(frame))
        frame = frame.f_back
    return fallback or SourceLocation("?", 0)


def find_project_lines(trace: TracebackType | None, root: str) -> list[tuple[SourceLocation, str]]:
    """Return the project's lines in a traceback, outermost first, each with its function's name."""
    located_functions = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_project_file(code.co_filename, root) and not code.co_filename.startswith(_PACKAGE):
            located_functions.append(
                (SourceLocation(relative_path(code.co_filename, root), trace.tb_lineno), code.co_name)
            )
        trace = trace.tb_next
    return located_functions


def is_project_file(file: str, root: str) -> bool:
    """Return whether a file is the project's own: in its folder, and not of a package installed there.

    >>> is_project_file("/p/flows/a.py", "/p")
    True
    >>> is_project_file("/p/.venv/lib/site-packages/x.py", "/p"), is_project_file("/pq/a.py", "/p")
    (False, False)
    """
    return file.startswith(root.rstrip(os.sep) + os.sep) and "site-packages" not in file


def relative_path(file: str, root: str | None) -> str:
    """Return a file's path relative to the project's folder if it is inside, else unchanged."""
    return file[len(root.rstrip(os.sep)) + 1 :] if root is not None and is_project_file(file, root) else file
