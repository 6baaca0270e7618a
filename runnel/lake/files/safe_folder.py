"""A folder on disk that files are written to: never outside of it, whatever paths and links say."""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runnel.errors import Mistake, RunnelError


class Outlet:
    """The folder. Paths obey the rule of paths; links in it may lead anywhere below it."""

    def __init__(self, out: Path) -> None:
        if out.exists() and not out.is_dir():
            raise Mistake("FILES_NOT_A_FOLDER", f"{out} is not a folder", fix="name a folder; it is made where missing")
        self.shown_as = out
        self.root = Path(os.path.realpath(out))
        self._folders: dict[str, Path] = {}

    def sha256(self, path: str, size: int | None) -> str | None:
        """Return the checksum of a file that is there, "" if it can't be the one of `size` bytes, None if none is."""
        target = self._folder(path, make=False) / path.rpartition("/")[2]
        try:
            info = target.lstat()
            if not stat.S_ISREG(info.st_mode) or info.st_size != size:
                return ""
            with target.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            return None
        except OSError:
            return ""

    def write(self, path: str, contents: Iterator[bytes], modified_at: int | None) -> None:
        """Write a file whole or not at all; `modified_at` is in microseconds since the epoch.

        What `contents` raises at its end leaves no file behind.
        """
        target = self._folder(path, make=True) / path.rpartition("/")[2]
        passing = target.with_name(f".runnel-{secrets.token_hex(8)}.part")
        try:
            with passing.open("xb") as stream:
                for chunk in contents:
                    stream.write(chunk)
            if modified_at is not None:
                with suppress(OSError, OverflowError):  # a time that this file system can't hold
                    os.utime(passing, ns=(modified_at * 1000, modified_at * 1000))
            passing.replace(target)
        except BaseException as error:
            with suppress(OSError):
                passing.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise self._failed(target, error) from error
            raise

    def _folder(self, path: str, *, make: bool) -> Path:
        """Return the folder of a path, having looked at each link on the way before going on."""
        below = path.rpartition("/")[0]
        if below in self._folders:
            return self._folders[below]
        folder = self.root
        if make:
            self._make(folder)
        for name in below.split("/") if below else ():
            folder = folder / name
            if folder.is_symlink() and not self._inside(folder):
                what = f"{folder} is a symbolic link that leads out of {self.shown_as}; `{path}` was not written"
                raise Mistake("FILES_SYMLINK", what, fix="remove the link, or choose another folder")
            if make:
                self._make(folder)
        if make:
            self._folders[below] = folder
        return folder

    def _inside(self, folder: Path) -> bool:
        return Path(os.path.realpath(folder)).is_relative_to(self.root)

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=folder == self.root, exist_ok=True)
        except OSError as error:
            raise self._failed(folder, error) from error

    def _failed(self, target: Path, error: OSError) -> RunnelError:
        fix = "free some space, or choose another folder"
        return RunnelError("FILES_WRITE", f"{target} can't be written: {error.strerror or error}", fix=fix)
