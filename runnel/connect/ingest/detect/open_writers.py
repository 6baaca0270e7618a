"""Tell whether a process is still writing a file: it has it open for writing, and wrote to it recently.

Linux grants a read lease only on a file that no process has open for writing. Without leases no writer is detected; a
file that changes while it is read is left for the next run anyway.
"""

import errno
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

QUIET_SECONDS = 60
"""A file that is open but has not been written to for this long is read: logs stay open, and NFS can't tell."""


def is_being_written(path: Path, modified_ns: int) -> bool:
    """Tell whether a file is still being written and should be skipped for now."""
    if time.time_ns() - modified_ns > QUIET_SECONDS * 1_000_000_000:
        return False
    try:
        return _has_writer(path)
    except ImportError:  # not on this system
        return False


def _has_writer(path: Path) -> bool:
    import fcntl

    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # reported when it is read
        return False
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # ignored, where SIGIO would end the process
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    else:
        with suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    finally:
        os.close(handle)
