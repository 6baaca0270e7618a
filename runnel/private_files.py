"""Create folders and files that only their owner can read, and restrict existing ones.

It changes nothing that belongs to another user, and follows no link.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def create_private_folder(path: Path) -> None:
    """Create a folder, and those above it that are missing, for this user only."""
    missing_folders = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing_folders):
        folder.mkdir(mode=0o700, exist_ok=True)


def create_private_file(path: Path) -> None:
    """Create an empty file for this user only, unless it exists; a program that then opens it keeps its permissions."""
    # Never opened if it exists: closing any handle of a SQLite database drops the locks that this process has on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def is_private(folder: Path) -> bool:
    """Tell whether only its owner can read a folder."""
    return not folder.stat().st_mode & _OTHERS


def restrict_folder(folder: Path, *, unchanged_below: Path) -> None:
    """Take all permissions of other users away from a folder and what is in it, except below `unchanged_below`.

    The folder itself comes last: if it is private, its contents are not looked at, so that this can be repeated often.
    """
    try:
        if is_private(folder) or folder.is_symlink():
            return
    except OSError:  # there is no such folder, or it can't be reached
        return
    for parent, subfolders, files in os.walk(folder, topdown=True):
        for name in (*subfolders, *files):
            _restrict(Path(parent, name))
        subfolders[:] = [name for name in subfolders if Path(parent, name) != unchanged_below]
    _restrict(folder)


def _restrict(path: Path) -> None:
    with suppress(OSError):  # it was removed in the meantime, or its file system can't be written
        info = path.lstat()
        if info.st_uid == os.geteuid() and info.st_mode & _OTHERS and not stat.S_ISLNK(info.st_mode):
            path.chmod(stat.S_IMODE(info.st_mode) & ~_OTHERS)
