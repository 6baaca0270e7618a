"""Scratch files in the warehouse, which all machines see: some units fetch them, other units read them.

The driver removes the folder of an ingest when it ends. No version needs the files, so gc removes what a driver leaves
that was killed.
"""

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.ingest.detect.local_files import fetch_objects
from runnel.lake.iceberg.file_io import list_files, local_path

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import WarehouseFiles
    from runnel.names import TableName

SCRATCH_FOLDER = ".scratch"  # no layer has such a name


@dataclass(frozen=True)
class SharedScratch:
    """A folder of the warehouse for the scratch files of one ingest; can be pickled."""

    files: "WarehouseFiles"
    location: str

    @contextmanager
    def open_folder(self) -> "Iterator[ScratchFolder]":
        """Yield a folder of its own for a unit, or for an attempt at one."""
        location = f"{self.location}/{uuid.uuid4().hex}"
        if (path := local_path(location)) is not None:
            path.mkdir(parents=True)
            yield ScratchFolder(self, path, str(path))
            return
        with temp_dirs.create_scoped("unit") as folder:
            yield ScratchFolder(self, Path(folder), location)

    @contextmanager
    def open_files(self, parts: Sequence[SharedFile]) -> Iterator[tuple[FetchedFile, ...]]:
        """Yield shared files as files of this machine; objects are downloaded."""
        files = [LocalFile(part.name, part.location, part.bytes, 0.0) for part in parts]
        with temp_dirs.create_scoped("unit") as folder:
            local_files = fetch_objects(files, self.files.storage, Path(folder))
            yield tuple(
                FetchedFile(Path(file.path), part.name, part.format)
                for file, part in zip(local_files, parts, strict=True)
            )

    def remove(self) -> None:
        """Remove all files; what can't be removed is left to gc."""
        if (path := local_path(self.location)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            for parent in path.parents[:2]:  # that of the run, and that of all runs, unless others use them
                with suppress(OSError):
                    parent.rmdir()
            return
        for stored in list(list_files(self.files.io, self.location)):
            with suppress(OSError):
                self.files.io.delete(stored.path)


@dataclass(frozen=True)
class ScratchFolder:
    """A folder on this machine, whose files are shared as files below `location`."""

    scratch: SharedScratch
    path: Path
    location: str

    def share_files(self, parts: Sequence[FetchedFile]) -> tuple[SharedFile, ...]:
        """Return fetched files, all of them in this folder, as files that all machines see."""
        return tuple(
            SharedFile(self.share_path(part.path), part.name, part.format, part.path.stat().st_size) for part in parts
        )

    def share_path(self, path: Path) -> str:
        """Return where all machines see a file of this folder; uploads it if the warehouse is an object store."""
        location = f"{self.location}/{path.relative_to(self.path)}"
        if local_path(location) is None:
            with path.open("rb") as file, self.scratch.files.io.new_output(location).create() as out:
                shutil.copyfileobj(file, out, 1 << 20)
        return location


@contextmanager
def open_scratch(files: "WarehouseFiles", run: str, table: "TableName") -> Iterator[SharedScratch]:
    """Yield a scratch folder for an ingest, and remove it afterwards."""
    scratch = SharedScratch(files, f"{files.warehouse}/{SCRATCH_FOLDER}/{run or 'ingest'}/{table}-{uuid.uuid4().hex}")
    try:
        yield scratch
    finally:
        scratch.remove()
