"""The folder of this machine that outlives projects: jars, archives, logs.

`RUNNEL_CACHE` names it; otherwise it is the platform's own place for caches. Locks are advisory `flock`s: the kernel
drops them with the process that holds them, so that a kill leaves no stale lock behind.
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


def folder(name: str) -> Path:
    """Return a folder of the cache, made if it is missing."""
    path = cache_folder() / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error
    return path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path`; yield whether it was got, which it always is when `wait` is true."""
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
    """Return the free space where `path` is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def need_space(path: Path, wanted: int) -> None:
    """Raise unless `wanted` bytes fit where `path` is."""
    free = free_bytes(path)
    if free < wanted:
        what = f"{path} needs {megabytes(wanted)} of disk space and {megabytes(free)} are free"
        raise RunnelError("SPARK_DISK", what, fix="free some space, or set RUNNEL_CACHE to a folder on another disk")


def disk_error(error: OSError, path: Path) -> RunnelError:
    """Return what to tell a user when writing below `path` failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"no space left on the disk of {path}"
        return RunnelError("SPARK_DISK", what, fix="free some space, or set RUNNEL_CACHE to a folder on another disk")
    what = f"cannot write {path}: {error.strerror or error}"
    return RunnelError("SPARK_CACHE", what, fix="make it writable, or set RUNNEL_CACHE to a folder that is")


def megabytes(count: int) -> str:
    """Return a number of bytes as people read it.

    >>> megabytes(60_000_000)
    '60 MB'
    """
    return f"{count / 1e6:,.0f} MB"
