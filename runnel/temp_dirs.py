"""Create folders for temporary files that are removed after their process ends, even if it was killed.

Each process has one folder, below a folder of its user, and locks a file in it while it lives. The next process that
creates such a folder removes those whose lock is free: the kernel releases a lock when its process ends.
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
from runnel.private_files import is_private


@dataclass(frozen=True)
class OwnedDir:
    """A folder that this process owns while `handle`, the lock file in it, is open."""

    path: Path
    handle: int

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.handle)


def create_owned_dir(kind: str) -> OwnedDir:
    """Create a folder with its own lock, and remove the folders of processes that have ended."""
    root = _ensure_root()
    with _hold_lock(root / ".lock"):
        _remove_orphans(root)
        path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=root))
        handle = _open_lock_file(path / _LOCK_FILE)
        fcntl.flock(handle, fcntl.LOCK_EX)
    return OwnedDir(path, handle)


def create_scoped(kind: str) -> "tempfile.TemporaryDirectory[str]":
    """Create a folder of this process that is removed when its `with` block ends."""
    return tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=_ensure_process_dir())


def create(kind: str) -> str:
    """Create a folder of this process; the caller removes it."""
    return tempfile.mkdtemp(prefix=f"{kind}-", dir=_ensure_process_dir())


_LOCK_FILE = "owner"
_guard = threading.Lock()
_own: OwnedDir | None = None


def _ensure_process_dir() -> Path:
    """Return the folder of this process; create it again if the system's temporary folder was cleared."""
    global _own
    with _guard:
        if _own is None or not _own.path.is_dir():
            _own = create_owned_dir("process")
        return _own.path


def _remove_process_dir() -> None:
    global _own
    with _guard:
        if _own is not None:
            _own.remove()
        _own = None


def _reset_after_fork() -> None:
    """Let a forked child create its own folder: the parent removes its folder when it ends."""
    global _guard, _own
    _guard = threading.Lock()
    if _own is not None:
        os.close(_own.handle)  # the parent keeps the lock through its own handle
    _own = None


shutdown.register(_remove_process_dir)
os.register_at_fork(after_in_child=_reset_after_fork)


def _ensure_root() -> Path:
    root = Path(tempfile.gettempdir()) / f"runnel-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.lstat().st_uid != os.getuid() or root.is_symlink():
        what = f"the folder for temporary files, {root}, belongs to someone else"
        raise RunnelError("TEMPORARY_FOLDER", what, fix="set TMPDIR to a folder of your own")
    if not is_private(root):
        root.chmod(0o700)
    return root


def _remove_orphans(root: Path) -> None:
    for candidate in root.glob("*-*"):
        with suppress(OSError):  # its owner may be removing it right now
            handle = _open_lock_file(candidate / _LOCK_FILE)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if a process holds the lock
                shutil.rmtree(candidate, ignore_errors=True)
            finally:
                os.close(handle)


@contextmanager
def _hold_lock(file: Path) -> Iterator[None]:
    handle = _open_lock_file(file)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open_lock_file(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
