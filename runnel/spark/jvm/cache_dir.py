"""Manage the machine-wide cache folder: jars, archives, logs.

`RUNNEL_CACHE` names it; otherwise it is the platform's cache folder. Locks are advisory `flock`s: the kernel releases
them when the process that holds them ends, so that a killed process leaves no stale lock behind.
"""

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runnel.errors import RunnelError


def cache_folder() -> Path:
    """Return the cache folder; it need not exist."""
    chosen = os.environ.get("RUNNEL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "runnel"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "runnel"


def ensure_folder(name: str) -> Path:
    """Return a folder of the cache; create it if it is missing."""
    path = cache_folder() / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error
    return path


@contextmanager
def lock_file(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock the file `path` while the block runs; yield whether it was locked, which is always true with `wait`."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def free_bytes(path: Path) -> int:
    """Return the free space on the disk of `path`, which need not exist."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def require_space(path: Path, needed_bytes: int) -> None:
    """Raise unless `needed_bytes` are free on the disk of `path`."""
    free = free_bytes(path)
    if free < needed_bytes:
        what = f"{path} needs {format_megabytes(needed_bytes)} of disk space and {format_megabytes(free)} are free"
        raise RunnelError("SPARK_DISK", what, fix="free some space, or set RUNNEL_CACHE to a folder on another disk")


def disk_error(error: OSError, path: Path) -> RunnelError:
    """Return the error for a failed write below `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"no space left on the disk of {path}"
        return RunnelError("SPARK_DISK", what, fix="free some space, or set RUNNEL_CACHE to a folder on another disk")
    what = f"cannot write {path}: {error.strerror or error}"
    return RunnelError("SPARK_CACHE", what, fix="make it writable, or set RUNNEL_CACHE to a folder that is")


def format_megabytes(count: int) -> str:
    """Return a readable size in megabytes.

    >>> format_megabytes(60_000_000)
    '60 MB'
    """
    return f"{count / 1e6:,.0f} MB"
