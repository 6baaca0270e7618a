"""A small disk that can be filled up: a file system in memory, mounted where only this process and its children see it.

That needs no rights beyond those of a user, where the system lets users have name spaces of their own. Where it does
not, `own` says no, and a full disk is told of by failpoints instead.
"""

import ctypes
import errno
import os
from pathlib import Path

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_PRIVATE = 0x40000 | 0x4000  # what is mounted here is seen by nobody else, however deep
_BALLAST = "ballast"
_LEAST_BYTES = 4096


def own() -> bool:
    """Give this process mounts of its own, and tell whether it may have them. It must have one thread only."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_MOUNTS if uid == 0 else _NEW_USER | _NEW_MOUNTS):
        return False
    if uid:
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return libc.mount(b"none", b"/", None, _PRIVATE, None) == 0


class Disk:
    """A disk of so many megabytes, mounted over a folder."""

    def __init__(self, folder: Path, megabytes: int = 512) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, f"size={megabytes}m,mode=0755".encode()):
            raise OSError(ctypes.get_errno(), f"{folder} can't be mounted")
        self._folder = folder

    def fill(self) -> None:
        """Leave no room, and keep it so: what is freed meanwhile is taken by the next call."""
        with (self._folder / _BALLAST).open("ab") as file:
            step = 64 << 20
            while step >= _LEAST_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError as error:
                    assert error.errno == errno.ENOSPC, error
                    step //= 2

    def free(self) -> None:
        """Make room again."""
        (self._folder / _BALLAST).unlink()

    def close(self) -> None:
        """Take it away, with all that is on it."""
        ctypes.CDLL(None).umount2(str(self._folder).encode(), 2)  # whoever still has a file open keeps that
