"""How much memory a worker takes, its Spark and the processes of Spark included. Only Linux tells."""

import os
from pathlib import Path

_PROC = Path("/proc")


def memory_bytes(pid: int | None = None) -> int | None:
    """Return the resident memory of a process, this one unless told, and of all below it; None where nobody tells."""
    found, waiting, is_known = 0, [pid or os.getpid()], False
    while waiting:
        one = _PROC / str(waiting.pop())
        try:
            pages = int((one / "statm").read_text().split()[1])
            below = [number for path in (one / "task").glob("*/children") for number in path.read_text().split()]
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
        found, is_known = found + pages * os.sysconf("SC_PAGE_SIZE"), True
        waiting += [int(number) for number in below]
    return found if is_known else None
