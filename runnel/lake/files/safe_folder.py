"""Write files to a folder on disk, and never outside of it, whatever paths and symbolic links say."""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runnel.errors import Mistake, RunnelError


class SafeFolder:
    """A folder to write to. Paths obey `PATH_RULE`; symbolic links in it may only lead to places inside it."""

    def __init__(self, out: Path) -> None:
        if out.exists() and not out.is_dir():
            raise Mistake(
                "FILES_NOT_A_FOLDER",
                f"{out} is not a folder",
                fix="name a folder; Runnel creates it if it does not exist",
            )
        self.display_path = out
        self.root = Path(os.path.realpath(out))
        self._folders: dict[str, Path] = {}

    def read_sha256(self, path: str, size: int | None) -> str | None:
        """Return the checksum of an existing file, "" if it can't be read or has not `size` bytes, None if missing."""
        target = self._resolve_folder(path, create=False) / path.rpartition("/")[2]
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

    def write_file(self, path: str, contents: Iterator[bytes], modified_at: int | None) -> None:
        """Write a file atomically; `modified_at` is in microseconds since the epoch.

        If `contents` raises, no file is left behind.
        """
        target = self._resolve_folder(path, create=True) / path.rpartition("/")[2]
        temporary_path = target.with_name(f".runnel-{secrets.token_hex(8)}.part")
        try:
            with temporary_path.open("xb") as stream:
                for chunk in contents:
                    stream.write(chunk)
            if modified_at is not None:
                with suppress(OSError, OverflowError):  # a time that this file system can't hold
                    os.utime(temporary_path, ns=(modified_at * 1000, modified_at * 1000))
            temporary_path.replace(target)
        except BaseException as error:
            with suppress(OSError):
                temporary_path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise self._write_error(target, error) from error
            raise

    def _resolve_folder(self, path: str, *, create: bool) -> Path:
        """Return the folder of a path, after checking each symbolic link on the way."""
        parent_path = path.rpartition("/")[0]
        if parent_path in self._folders:
            return self._folders[parent_path]
        folder = self.root
        if create:
            self._create_folder(folder)
        for name in parent_path.split("/") if parent_path else ():
            folder = folder / name
            if folder.is_symlink() and not self._is_inside(folder):
                what = f"{folder} is a symbolic link that points outside {self.display_path}; `{path}` was not written"
                raise Mistake("FILES_SYMLINK", what, fix="remove the link, or choose another folder")
            if create:
                self._create_folder(folder)
        if create:
            self._folders[parent_path] = folder
        return folder

    def _is_inside(self, folder: Path) -> bool:
        return Path(os.path.realpath(folder)).is_relative_to(self.root)

    def _create_folder(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=folder == self.root, exist_ok=True)
        except OSError as error:
            raise self._write_error(folder, error) from error

    def _write_error(self, target: Path, error: OSError) -> RunnelError:
        fix = "free some space, or choose another folder"
        return RunnelError("FILES_WRITE", f"{target} can't be written: {error.strerror or error}", fix=fix)
