"""Files of the warehouse: read, written durably, listed and removed.

A file is written once under a fresh name and never changed. On local disk it is synced before anything points at it,
so that a commit that was acknowledged survives a power cut too.
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

from runnel.errors import Broken
from runnel.lake import failpoints

_FILE_URL = re.compile(r"file:(//[^/]*)?/+")


@dataclass(frozen=True)
class Stored:
    """A file found in the warehouse. `modified_at` is in seconds since the epoch."""

    path: str
    bytes: int
    modified_at: float


def local_path(location: str) -> Path | None:
    """Return the local path of a location, or None where it is elsewhere.

    Nothing is decoded: Iceberg's writers put `%20` into the names of files themselves.

    >>> local_path("file:///a/b%20c"), local_path("file:/a"), local_path("/a/b"), local_path("s3://bucket/a")
    (PosixPath('/a/b%20c'), PosixPath('/a'), PosixPath('/a/b'), None)
    """
    if location.startswith("/"):
        return Path(location)
    found = _FILE_URL.match(location)
    return Path(location[found.end() - 1 :]) if found else None


def plain(location: str) -> str:
    """Return one spelling of a location, so that `file:/a`, `file:///a` and `/a` compare equal."""
    path = local_path(location)
    return str(path) if path is not None else location


def file_io(warehouse: str, properties: dict[str, str] | None = None) -> FileIO:
    """Return the reader and writer of a warehouse."""
    if local_path(warehouse) is not None:
        return LocalIO(properties or {})
    return load_file_io(properties or {}, warehouse)


class LocalIO(FileIO):
    """Files on local disk; other schemes, such as those of registered data, go to PyIceberg's own."""

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
        """Tell whether it is there."""
        return self.path.exists()

    def open(self, seekable: bool = True) -> InputStream:
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
        """Tell whether it is there."""
        return self.path.exists()

    def to_input_file(self) -> InputFile:
        """Return it as a file to read."""
        return LocalInput(self.location, self.path)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Open it for writing; its folder is made where it is missing."""
        for _ in range(3):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # gc may remove an empty folder between the two steps
                return _Synced(self.path, "wb" if overwrite else "xb")
        return _Synced(self.path, "wb" if overwrite else "xb")


class _Synced(RawFile):
    """A raw file that is on disk, with its name, once it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._folder = path.parent

    def write(self, data: Any) -> int:
        failpoints.reach(failpoints.WRITE_BYTES)
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):  # a raw write may be short
            done += super().write(view[done:]) or 0
        return done

    def close(self) -> None:
        if self.closed:
            return
        try:
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(self._folder)


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, be on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def listing(io: FileIO, folder: str) -> Iterator[Stored]:
    """Yield every file below a folder of the warehouse."""
    path = local_path(folder)
    if path is not None:
        yield from _local_listing(path)
        return
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, root = PyArrowFileIO.parse_location(folder)
    filesystem = io.fs_by_scheme(scheme, netloc)
    for info in filesystem.get_file_info(FileSelector(root, recursive=True, allow_not_found=True)):
        if info.type == FileType.File:
            yield Stored(f"{scheme}://{info.path}", info.size, info.mtime.timestamp() if info.mtime else 0.0)


def _local_listing(folder: Path) -> Iterator[Stored]:
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # someone may remove it while we walk
                found = os.stat(os.path.join(root, name))  # noqa: PTH116, PTH118 - a hot loop over all files
                yield Stored(os.path.join(root, name), found.st_size, found.st_mtime)  # noqa: PTH118


def read_bytes(io: FileIO, location: str) -> bytes:
    """Return the contents of a file, or raise Broken where it is gone."""
    try:
        with io.new_input(location).open() as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise missing(location) from error


def write_bytes(io: FileIO, location: str, contents: bytes) -> None:
    """Write a new file whole."""
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(contents)


def missing(location: str) -> Broken:
    """Return the error that says that a file of the lake is gone."""
    return Broken(
        "LAKE_FILE_MISSING",
        f"the lake's file {plain(location)} is gone",
        fix="run `runnel fsck` to see which commits need it, and restore it from a backup",
    )


def free_bytes(location: str) -> int | None:
    """Return the space left where a local warehouse stands; None where it can't be known."""
    path = local_path(location)
    while path is not None and not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free if path is not None else None
