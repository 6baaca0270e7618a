"""A folder for the temporary files of one JVM, removed with it or, after a kill, by whoever starts next."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runnel.errors import RunnelError
from runnel.spark import cache


@dataclass(frozen=True)
class Scratch:
    """A folder that is ours as long as `handle`, the open lock file in it, is."""

    path: Path
    handle: int

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.handle)


def new_scratch() -> Scratch:
    """Make a folder, and remove those whose owners have died."""
    root = _root()
    with cache.locked(root / ".lock"):
        _sweep(root)
        try:
            path = Path(tempfile.mkdtemp(prefix="jvm-", dir=root))
            handle = os.open(path / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cache.disk_error(error, root) from error
        fcntl.flock(handle, fcntl.LOCK_EX)
    return Scratch(path, handle)


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"runnel-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        owner = root.lstat().st_uid
    except OSError as error:
        raise cache.disk_error(error, root) from error
    if owner != os.getuid() or root.is_symlink():
        raise RunnelError("SPARK_SCRATCH", f"{root} belongs to someone else", fix="set TMPDIR to a folder of your own")
    return root


def _sweep(root: Path) -> None:
    for old in root.glob("jvm-*"):
        # Its owner may be removing it at this moment.
        with suppress(RunnelError), cache.locked(old / "owner", wait=False) as free:
            if free:
                shutil.rmtree(old, ignore_errors=True)
