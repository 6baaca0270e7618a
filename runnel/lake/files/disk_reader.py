"""Read files from disk in threads, in order: their contents where small, blobs where large, and their checksums.

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
from runnel.lake.files.blobs import CHUNK_BYTES, Uploads
from runnel.lake.files.disk_paths import Found

THREADS = 8  # mostly they wait for the disk
BATCH_FILES = 256
BATCH_BYTES = 2 * 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EARLIEST = int(datetime(1, 1, 2, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A file that was read. `modified_at` is in microseconds since the epoch. Unchanged ones carry no contents."""

    path: str
    size: int
    sha256: str
    modified_at: int
    content: bytes | None
    blob: str | None
    changed: bool


@dataclass(frozen=True)
class Intake:
    """How files are read: up to which size contents stay inline, and the contents that the table has already."""

    uploads: Uploads
    inline_bytes: int
    known: Mapping[str, str]

    def read(self, files: Sequence[Found]) -> Iterator[list[Taken]]:
        """Yield what was read, in the order of `files`, in batches."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="runnel-put") as pool:
            waiting: deque[Future[list[Taken]]] = deque()
            try:
                for batch in _batches(files, self.inline_bytes):
                    waiting.append(pool.submit(self._batch, batch))
                    if len(waiting) > 2 * THREADS:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _batch(self, files: Sequence[Found]) -> list[Taken]:
        return [self._take(file) for file in files]

    def _take(self, found: Found) -> Taken:
        with _steady(found) as (handle, info):
            if info.st_size <= self.inline_bytes:
                content = _read_whole(handle, info.st_size)
                size, sha256 = len(content), hashlib.sha256(content).hexdigest()
            else:
                content, (size, sha256) = b"", _hashed(handle)
        if size != info.st_size:
            raise _changed(found.file)
        changed = self.known.get(found.path) != sha256
        inline = size <= self.inline_bytes
        blob = self.uploads.keep(sha256, size, lambda: _again(found, sha256)) if changed and not inline else None
        modified_at = min(max(info.st_mtime_ns // 1000, _EARLIEST), _LATEST)
        return Taken(found.path, size, sha256, modified_at, content if changed and inline else None, blob, changed)


def _batches(files: Iterable[Found], inline_bytes: int) -> Iterator[list[Found]]:
    batch: list[Found] = []
    held = 0
    for file in files:
        if batch and (len(batch) >= BATCH_FILES or held + file.size > BATCH_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(file)
        held += file.size
    if batch:
        yield batch


@contextmanager
def _steady(found: Found) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file, and raise where it changed while the block read it."""
    try:
        handle = os.open(found.file, _FLAGS)
        try:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise _changed(found.file)
            yield handle, before
            after = os.fstat(handle)
        finally:
            os.close(handle)
    except OSError as error:
        fix = "give this user the right to read it, or leave it out"
        what = f"{found.file} can't be read: {error.strerror or error}"
        raise Mistake("FILES_UNREADABLE", what, fix=fix) from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _changed(found.file)


def _read_whole(handle: int, size: int) -> bytes:
    """Return up to one byte more than `size`; more is there only if the file grew."""
    content = os.read(handle, size + 1)
    while 0 < len(content) < size and (chunk := os.read(handle, size + 1 - len(content))):
        content += chunk
    return content


def _hashed(handle: int) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(handle, CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _again(found: Found, sha256: str) -> Iterator[bytes]:
    """Yield the bytes of a file for its blob, and raise at the end where they are not those that were hashed."""
    digest = hashlib.sha256()
    with _steady(found) as (handle, _):
        while chunk := os.read(handle, CHUNK_BYTES):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != sha256:
        raise _changed(found.file)


def _changed(file: str) -> Mistake:
    fix = "put it again when nothing writes to it, or put a copy"
    return Mistake("FILES_CHANGED", f"{file} changed while it was read; nothing was put", fix=fix)
