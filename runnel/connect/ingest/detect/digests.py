"""The SHA-256 of files, remembered by path, size and time so that a file is not hashed at each plan."""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from runnel.connect.ingest.detect.listing import Present
from runnel.errors import RunnelError

_SECOND = 1_000_000_000
_FINE, _COARSE = _SECOND // 20, 2 * _SECOND  # how long a file's time may stay the same though it is written to
_CREATE = "create table if not exists digests (path text primary key, size integer, modified_ns integer, sha256 text)"
_KEEP = "insert or replace into digests values (?, ?, ?, ?)"


class DigestCache:
    """A small SQLite file; what it lost is hashed again. It is opened only when something has to be hashed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def digests(self, root: Path, files: Iterable[Present], now_ns: int) -> dict[str, str]:
        """Return the SHA-256 of files by path. What was written just before `now_ns` is hashed and not remembered."""
        wanted = list(files)
        if not wanted:
            return {}
        known = self._known(root, wanted)
        made = {file.path: sha256_of(root, file.path) for file in wanted if file.path not in known}
        self._keep(root, [file for file in wanted if file.path in made and is_settled(file.modified_ns, now_ns)], made)
        return known | made

    def _known(self, root: Path, files: Iterable[Present]) -> dict[str, str]:
        query = "select sha256 from digests where path = ? and size = ? and modified_ns = ?"
        found = {}
        with suppress(sqlite3.Error, OSError), closing(self._open()) as connection:
            for file in files:
                row = connection.execute(query, _key(root, file)).fetchone()
                if row:
                    found[file.path] = str(row[0])
        return found

    def _keep(self, root: Path, files: Iterable[Present], made: Mapping[str, str]) -> None:
        rows = [(*_key(root, file), made[file.path]) for file in files]
        if not rows:
            return
        try:
            self._write(rows)
        except sqlite3.OperationalError:  # locked, or a folder that can't be written to
            return
        except sqlite3.DatabaseError:  # damaged: what it knew can be found out again
            with suppress(sqlite3.Error, OSError):
                self.path.unlink()
                self._write(rows)
        except OSError:
            return

    def _write(self, rows: Iterable[tuple[str, int, int, str]]) -> None:
        with closing(self._open()) as connection, connection:
            connection.executemany(_KEEP, rows)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=5)
        try:
            connection.execute(_CREATE)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _key(root: Path, file: Present) -> tuple[str, int, int]:
    return str((root / file.path).absolute()), file.size, file.modified_ns


def is_settled(modified_ns: int, now_ns: int) -> bool:
    """Tell whether a file that is written to from now on gets another time than it has.

    >>> is_settled(1_500_000_000, 1_500_000_001), is_settled(1_500_000_000, 2_500_000_000)
    (False, True)
    """
    return settles_ns(modified_ns) <= now_ns


def settles_ns(modified_ns: int) -> int:
    """Return from when on a write shows in a file's time. Whole seconds come from a file system with a coarse clock."""
    return modified_ns + (_COARSE if modified_ns % _SECOND == 0 else _FINE)


def sha256_of(root: Path, path: str) -> str:
    """Return the SHA-256 of a file, read as a stream."""
    try:
        with (root / path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        what = f"the file {path} can't be read: {error.strerror}"
        raise RunnelError("SOURCE_FILE_UNREADABLE", what, at=path, fix="check its permissions") from error
