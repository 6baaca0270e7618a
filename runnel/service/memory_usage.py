"""Measure the memory of a worker, including Spark and its child processes. Linux only."""

import os
from pathlib import Path

_PROC = Path("/proc")


def measure_memory_bytes(pid: int | None = None) -> int | None:
    """Return the resident memory of a process (by default this one) and its descendants; None if /proc is missing."""
    total_bytes, pending_pids, is_measured = 0, [pid or os.getpid()], False
    while pending_pids:
        process_dir = _PROC / str(pending_pids.pop())
        try:
            pages = int((process_dir / "statm").read_text().split()[1])
            child_pids = [
                child_pid
                for path in (process_dir / "task").glob("*/children")
                for child_pid in path.read_text().split()
            ]
        except (OSError, IndexError, ValueError):
            continue  # the process has ended meanwhile
        total_bytes, is_measured = total_bytes + pages * os.sysconf("SC_PAGE_SIZE"), True
        pending_pids += [int(child_pid) for child_pid in child_pids]
    return total_bytes if is_measured else None
