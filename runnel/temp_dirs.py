"""Folders for temporary files that go with their process, also with one that was killed.

A process has one folder, below one of its user, and holds the lock of a file in it for as long as it lives: whoever
makes the next one removes those that nobody holds. The kernel drops a lock with its process.
"""

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runnel import shutdown
from runnel.errors import RunnelError


@dataclass(frozen=True)
class Owned:
    """A folder that is ours as long as `handle`, the open lock file in it, is."""

    path: Path
    handle: int

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.handle)


def owned(kind: str) -> Owned:
    """Make a folder with a lock of its own, and remove those whose owners have died."""
    root = _root()
    with _locked(root / ".lock"):
        _sweep(root)
        path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=root))
        handle = _open(path / _LOCK)
        fcntl.flock(handle, fcntl.LOCK_EX)
    return Owned(path, handle)


def folder(kind: str) -> "tempfile.TemporaryDirectory[str]":
    """Return a new folder of this process, removed when its block ends."""
    return tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=_home())


def path(kind: str) -> str:
    """Return a new folder of this process, for whoever removes it."""
    return tempfile.mkdtemp(prefix=f"{kind}-", dir=_home())


_LOCK = "owner"
_guard = threading.Lock()
_own: Owned | None = None


def _home() -> Path:
    """Return the folder of this process, made anew where somebody cleared the system's folder in the meantime."""
    global _own
    with _guard:
        if _own is None or not _own.path.is_dir():
            _own = owned("process")
        return _own.path


def _leave() -> None:
    global _own
    with _guard:
        if _own is not None:
            _own.remove()
        _own = None


def _forget() -> None:
    """Give a forked child a folder of its own: its parent's goes with the parent."""
    global _guard, _own
    _guard = threading.Lock()
    if _own is not None:
        os.close(_own.handle)  # the parent holds the lock by its own
    _own = None


shutdown.register(_leave)
os.register_at_fork(after_in_child=_forget)


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"runnel-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.lstat().st_uid != os.getuid() or root.is_symlink():
        what = f"the folder for temporary files, {root}, belongs to someone else"
        raise RunnelError("TEMPORARY_FOLDER", what, fix="set TMPDIR to a folder of your own")
    return root


def _sweep(root: Path) -> None:
    for old in root.glob("*-*"):
        with suppress(OSError):  # its owner may be removing it at this moment
            handle = _open(old / _LOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody holds it
                shutil.rmtree(old, ignore_errors=True)
            finally:
                os.close(handle)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    handle = _open(file)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
