"""Find the line of the user's own file that is being executed. Looks at the stack only."""

import os
import sys
from bisect import bisect_right
from types import CodeType, FrameType, TracebackType

from runnel.declare.model.source_location import Place

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - compared as text
_LONG = 4096  # bytes of line table
_NOT_A_USER = (_PACKAGE, "<frozen ")


class Lines:
    """Knows the line of a frame. Python looks for it from the start of the code each time, which long files feel."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CodeType, list[int], list[int | None]]] = {}

    def of(self, frame: FrameType) -> int:
        """Return the line that a frame is at."""
        code = frame.f_code
        if len(code.co_linetable) < _LONG:
            return frame.f_lineno
        if id(code) not in self._known:  # by identity: equal code would have to be compared whole
            table = list(code.co_lines())
            self._known[id(code)] = (code, [start for start, _, _ in table], [line for _, _, line in table])
        _, starts, found = self._known[id(code)]
        return found[bisect_right(starts, frame.f_lasti) - 1] or frame.f_lineno


def here(root: str | None, known: Lines) -> Place:
    """Return the innermost line inside the project's folder, or else outside of Runnel."""
    frame: FrameType | None = sys._getframe(1)
    other: Place | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_A_USER):
            if root is None or inside(file, root):
                return Place(relative(file, root), known.of(frame))
            other = other or Place(file, known.of(frame))
        frame = frame.f_back
    return other or Place("?", 0)


def lines(trace: TracebackType | None, root: str) -> list[tuple[Place, str]]:
    """Return the lines of a trace that are the project's own, outermost first, each with its function's name."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if inside(code.co_filename, root) and not code.co_filename.startswith(_PACKAGE):
            found.append((Place(relative(code.co_filename, root), trace.tb_lineno), code.co_name))
        trace = trace.tb_next
    return found


def inside(file: str, root: str) -> bool:
    """Tell whether a file is the project's own: in its folder, and not of a package installed there.

    >>> inside("/p/flows/a.py", "/p"), inside("/p/.venv/lib/site-packages/x.py", "/p"), inside("/pq/a.py", "/p")
    (True, False, False)
    """
    return file.startswith(root.rstrip(os.sep) + os.sep) and "site-packages" not in file


def relative(file: str, root: str | None) -> str:
    """Return a file as people name it: from the project's folder on, where it is inside."""
    return file[len(root.rstrip(os.sep)) + 1 :] if root is not None and inside(file, root) else file
