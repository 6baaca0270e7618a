"""Read files from disk in threads, in order: small contents inline, large ones as blobs, with their checksums.

Memory is bounded by a few batches, whatever the number and size of the files.
"""

import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from runnel.errors import Mistake
from runnel.lake.files.blobs import CHUNK_BYTES, BlobUploads
from runnel.lake.files.disk_paths import DiskFile

THREADS = 8  # more than CPUs: they mostly wait for the disk
BATCH_FILES = 256
BATCH_BYTES = 2 * 1024 * 1024
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EARLIEST = int(datetime(1, 1, 2, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file that was read. `modified_at` is in microseconds since the epoch. Unchanged files have no contents.

    The attributes have the names of the file table's columns: rows are built from them by name.
    """

    path: str
    size: int
    sha256: str
    modified_at: int
    content: bytes | None
    blob: str | None
    changed: bool


@dataclass(frozen=True)
class DiskReader:
    """Reads files. Contents of up to `inline_bytes` stay inline; `existing_checksums` are the table's, by path."""

    uploads: BlobUploads
    inline_bytes: int
    existing_checksums: Mapping[str, str]

    def read(self, files: Sequence[DiskFile]) -> Iterator[list[LoadedFile]]:
        """Yield the files that were read, in batches, in the order of `files`."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="runnel-put") as pool:
            pending: deque[Future[list[LoadedFile]]] = deque()
            try:
                for batch in _split_batches(files):
                    pending.append(pool.submit(self._read_batch, batch))
                    if len(pending) > 2 * THREADS:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _read_batch(self, files: Sequence[DiskFile]) -> list[LoadedFile]:
        return [self._read_file(file) for file in files]

    def _read_file(self, disk_file: DiskFile) -> LoadedFile:
        with _open_unchanging(disk_file) as (handle, info):
            if info.st_size <= self.inline_bytes:
                content = _read_content(handle, info.st_size)
                size, sha256 = len(content), hashlib.sha256(content).hexdigest()
            else:
                content, (size, sha256) = b"", _hash_content(handle)
        if size != info.st_size:
            raise _changed_error(disk_file.disk_path)
        changed = self.existing_checksums.get(disk_file.path) != sha256
        inline = size <= self.inline_bytes
        blob = (
            self.uploads.ensure_blob(sha256, size, lambda: _read_again(disk_file, sha256))
            if changed and not inline
            else None
        )
        modified_at = min(max(info.st_mtime_ns // 1000, _EARLIEST), _LATEST)
        return LoadedFile(
            disk_file.path, size, sha256, modified_at, content if changed and inline else None, blob, changed
        )


def _split_batches(files: Iterable[DiskFile]) -> Iterator[list[DiskFile]]:
    batch: list[DiskFile] = []
    batch_bytes = 0
    for file in files:
        if batch and (len(batch) >= BATCH_FILES or batch_bytes + file.size > BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(file)
        batch_bytes += file.size
    if batch:
        yield batch


@contextmanager
def _open_unchanging(disk_file: DiskFile) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file, and raise if it changed while the block read it."""
    try:
        handle = os.open(disk_file.disk_path, _OPEN_FLAGS)
        try:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise _changed_error(disk_file.disk_path)
            yield handle, before
            after = os.fstat(handle)
        finally:
            os.close(handle)
    except OSError as error:
        fix = "give this user the right to read it, or leave it out"
        what = f"{disk_file.disk_path} can't be read: {error.strerror or error}"
        raise Mistake("FILES_UNREADABLE", what, fix=fix) from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _changed_error(disk_file.disk_path)


def _read_content(handle: int, size: int) -> bytes:
    """Read up to `size` bytes and one more; the file has more only if it grew."""
    content = os.read(handle, size + 1)
    while 0 < len(content) < size and (chunk := os.read(handle, size + 1 - len(content))):
        content += chunk
    return content


def _hash_content(handle: int) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(handle, CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _read_again(disk_file: DiskFile, sha256: str) -> Iterator[bytes]:
    """Yield the bytes of a file for its blob, and raise at the end if they are not the bytes that were hashed."""
    digest = hashlib.sha256()
    with _open_unchanging(disk_file) as (handle, _):
        while chunk := os.read(handle, CHUNK_BYTES):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != sha256:
        raise _changed_error(disk_file.disk_path)


def _changed_error(file: str) -> Mistake:
    fix = "put it again when nothing writes to it, or put a copy"
    return Mistake("FILES_CHANGED", f"{file} changed while it was read; nothing was put", fix=fix)
