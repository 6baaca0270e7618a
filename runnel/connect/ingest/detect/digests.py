"""Compute the digests of files, cached by path, size and time so that not every plan hashes every file.

The digest of a large file covers its size, its time, its start and its end: a plan does not read all of it.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from runnel.connect.ingest.detect.listing import ListedSourceFile
from runnel.errors import RunnelError
from runnel.private_files import create_private_file, create_private_folder

_SECOND_NS = 1_000_000_000
_FINE_CLOCK_NS, _COARSE_CLOCK_NS = (
    _SECOND_NS // 20,
    2 * _SECOND_NS,
)  # clock granularity: for how long writes may leave a file's time the same
HASHED_BYTES = 16 << 20  # of a larger file, only the ends are read
_END_BYTES = 1 << 20
_CREATE = "create table if not exists digests (path text primary key, size integer, modified_ns integer, sha256 text)"
_INSERT = "insert or replace into digests values (?, ?, ?, ?)"


class DigestCache:
    """A cache in a small SQLite file; lost entries are computed again. Opened only if a file has to be hashed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def compute_digests(self, root: Path, files: Iterable[ListedSourceFile], now_ns: int) -> dict[str, str]:
        """Return the digests of files by path. Files written just before `now_ns` are hashed but not cached."""
        requested_files = list(files)
        if not requested_files:
            return {}
        cached_digests = self._read_cached(root, requested_files)
        new_digests = {
            file.path: compute_digest(root, file) for file in requested_files if file.path not in cached_digests
        }
        self._store_digests(
            root,
            [file for file in requested_files if file.path in new_digests and is_settled(file.modified_ns, now_ns)],
            new_digests,
        )
        return cached_digests | new_digests

    def _read_cached(self, root: Path, files: Iterable[ListedSourceFile]) -> dict[str, str]:
        query = "select sha256 from digests where path = ? and size = ? and modified_ns = ?"
        cached_digests = {}
        with suppress(sqlite3.Error, OSError), closing(self._open()) as connection:
            if connection.execute("select 1 from digests limit 1").fetchone() is None:
                return {}
            for file in files:
                row = connection.execute(query, _make_cache_key(root, file)).fetchone()
                if row:
                    cached_digests[file.path] = str(row[0])
        return cached_digests

    def _store_digests(self, root: Path, files: Iterable[ListedSourceFile], digests: Mapping[str, str]) -> None:
        rows = [(*_make_cache_key(root, file), digests[file.path]) for file in files]
        if not rows:
            return
        try:
            self._write_rows(rows)
        except sqlite3.OperationalError:  # locked, or a folder that can't be written to
            return
        except sqlite3.DatabaseError:  # damaged: its entries can be computed again
            with suppress(sqlite3.Error, OSError):
                self.path.unlink()
                self._write_rows(rows)
        except OSError:
            return

    def _write_rows(self, rows: Iterable[tuple[str, int, int, str]]) -> None:
        with closing(self._open()) as connection, connection:
            connection.executemany(_INSERT, rows)

    def _open(self) -> sqlite3.Connection:
        create_private_folder(self.path.parent)
        create_private_file(self.path)
        connection = sqlite3.connect(self.path, timeout=5)
        try:
            connection.execute(_CREATE)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _make_cache_key(root: Path, file: ListedSourceFile) -> tuple[str, int, int]:
    return str((root / file.path).absolute()), file.size, file.modified_ns


def is_settled(modified_ns: int, now_ns: int) -> bool:
    """Tell whether a write from now on is certain to change the file's time.

    >>> is_settled(1_500_000_000, 1_500_000_001), is_settled(1_500_000_000, 2_500_000_000)
    (False, True)
    """
    return compute_settled_ns(modified_ns) <= now_ns


def compute_settled_ns(modified_ns: int) -> int:
    """Return from when on a write changes a file's time. Whole seconds indicate a file system with a coarse clock."""
    return modified_ns + (_COARSE_CLOCK_NS if modified_ns % _SECOND_NS == 0 else _FINE_CLOCK_NS)


def is_large(size: int) -> bool:
    """Tell whether the digest of a file of this size does not cover all of its contents."""
    return size > HASHED_BYTES


def compute_digest(root: Path, file: ListedSourceFile) -> str:
    """Return the SHA-256 of a file, read as a stream; of a large file that of its size, time, start and end."""
    try:
        with (root / file.path).open("rb") as stream:
            if not is_large(file.size):
                return hashlib.file_digest(stream, "sha256").hexdigest()
            digest = hashlib.sha256(f"{file.size}:{file.modified_ns}:".encode())
            digest.update(stream.read(_END_BYTES))
            stream.seek(max(0, file.size - _END_BYTES))
            digest.update(stream.read(_END_BYTES))
            return digest.hexdigest()
    except OSError as error:
        what = f"the file {file.path} can't be read: {error.strerror}"
        raise RunnelError("SOURCE_FILE_UNREADABLE", what, at=file.path, fix="check its permissions") from error
