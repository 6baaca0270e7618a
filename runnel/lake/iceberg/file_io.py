"""Read, durably write, list and delete files of the warehouse.

A file is written once under a fresh name and never changed. On local disk it is synced before anything points at it,
so that an acknowledged commit survives a power cut.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO as RawFile
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io

from runnel.errors import CorruptData
from runnel.lake import failpoints

_FILE_URL_PATTERN = re.compile(r"file:(//[^/]*)?/+")


@dataclass(frozen=True)
class StoredFile:
    """A file found in the warehouse. `modified_at` is in seconds since the epoch."""

    path: str
    bytes: int
    modified_at: float


def local_path(location: str) -> Path | None:
    """Return the local path of a location, or None if it is not on this machine.

    Nothing is decoded: Iceberg's writers put `%20` into the names of files themselves.

    >>> local_path("file:///a/b%20c"), local_path("file:/a"), local_path("/a/b"), local_path("s3://bucket/a")
    (PosixPath('/a/b%20c'), PosixPath('/a'), PosixPath('/a/b'), None)
    """
    if location.startswith("/"):
        return Path(location)
    match = _FILE_URL_PATTERN.match(location)
    return Path(location[match.end() - 1 :]) if match else None


def normalize_location(location: str) -> str:
    """Return one spelling of a location, so that `file:/a`, `file:///a` and `/a` compare equal."""
    path = local_path(location)
    return str(path) if path is not None else location


def open_file_io(warehouse: str, properties: dict[str, str] | None = None) -> FileIO:
    """Return the reader and writer of a warehouse."""
    if local_path(warehouse) is not None:
        return LocalIO(properties or {})
    return load_file_io(properties or {}, warehouse)


class LocalIO(FileIO):
    """Read and write local files; other schemes, such as those of registered data, use PyIceberg's own FileIO."""

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        path = local_path(location)
        return (
            LocalInput(location, path)
            if path is not None
            else load_file_io(self.properties, location).new_input(location)
        )

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        path = local_path(location)
        return (
            LocalOutput(location, path)
            if path is not None
            else load_file_io(self.properties, location).new_output(location)
        )

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        text = location if isinstance(location, str) else location.location
        path = local_path(text)
        if path is None:
            load_file_io(self.properties, text).delete(text)
        else:
            path.unlink()


class LocalInput(InputFile):
    """A local file to read."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self.path = path

    def __len__(self) -> int:
        """Return its size in bytes."""
        return self.path.stat().st_size

    def exists(self) -> bool:
        """Return whether it is there."""
        return self.path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - part of the protocol
        """Open it for reading."""
        return self.path.open("rb")


class LocalOutput(OutputFile):
    """A local file to write, synced when it is closed."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self.path = path

    def __len__(self) -> int:
        """Return its size in bytes."""
        return self.path.stat().st_size

    def exists(self) -> bool:
        """Return whether it is there."""
        return self.path.exists()

    def to_input_file(self) -> InputFile:
        """Return it as a file to read."""
        return LocalInput(self.location, self.path)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Open it for writing; create its folder if it is missing."""
        for _ in range(3):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # gc may remove an empty folder between the two steps
                return _SyncedFile(self.path, "wb" if overwrite else "xb")
        return _SyncedFile(self.path, "wb" if overwrite else "xb")


class _SyncedFile(RawFile):
    """A raw file whose contents and directory entry are synced to disk when it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._folder = path.parent

    def write(self, data: Any) -> int:
        failpoints.reach(failpoints.WRITE_BYTES)
        view = memoryview(data).cast("B")
        written_bytes = 0
        while written_bytes < len(view):  # a raw write may be short
            written_bytes += super().write(view[written_bytes:]) or 0
        return written_bytes

    def close(self) -> None:
        if self.closed:
            return
        try:
            os.fsync(self.fileno())
        finally:
            super().close()
        fsync_path(self._folder)


def fsync_path(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def list_files(io: FileIO, folder: str) -> Iterator[StoredFile]:
    """Yield every file below a folder of the warehouse."""
    path = local_path(folder)
    if path is not None:
        yield from _list_local_files(path)
        return
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, root = PyArrowFileIO.parse_location(folder)
    filesystem = io.fs_by_scheme(scheme, netloc)
    for info in filesystem.get_file_info(FileSelector(root, recursive=True, allow_not_found=True)):
        if info.type == FileType.File:
            yield StoredFile(f"{scheme}://{info.path}", info.size, info.mtime.timestamp() if info.mtime else 0.0)


def _list_local_files(folder: Path) -> Iterator[StoredFile]:
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # someone may remove it while we walk
                file_stat = os.stat(os.path.join(root, name))  # noqa: PTH116, PTH118 - a hot loop over all files
                yield StoredFile(os.path.join(root, name), file_stat.st_size, file_stat.st_mtime)  # noqa: PTH118


def read_bytes(io: FileIO, location: str) -> bytes:
    """Return the contents of a file; raise CorruptData if it is missing."""
    try:
        with io.new_input(location).open() as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise missing_file_error(location) from error


def write_bytes(io: FileIO, location: str, contents: bytes) -> None:
    """Write a new file with these contents."""
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(contents)


def missing_file_error(location: str) -> CorruptData:
    """Return the error for a missing file of the lake."""
    return CorruptData(
        "LAKE_FILE_MISSING",
        f"the lake's file {normalize_location(location)} is gone",
        fix="run `runnel fsck` to see which commits need it, and restore it from a backup",
    )


def free_bytes(location: str) -> int | None:
    """Return the free space on a local warehouse's disk; None for an object store."""
    path = local_path(location)
    while path is not None and not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free if path is not None else None
