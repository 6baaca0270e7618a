"""Store the files of a sink in a local folder or in an object store. A file is replaced atomically."""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runnel import temp_dirs
from runnel.connect.files.object_stores import describe_store_error, open_file_system, run_concurrently
from runnel.lake.iceberg.file_io import fsync_path

_UNIT_FOLDER = ".runnel"
_MOST_COPIED_BYTES = 5 << 30  # larger objects are not copied by one request
_CHUNK_BYTES = 8 << 20


class FileLocation(Protocol):
    """A folder of a sink; names are paths relative to it. Methods raise OSError."""

    fix: str

    def staging(self) -> AbstractContextManager[Path]:
        """Yield a local folder to write into first; it is removed afterwards."""

    def has(self, names: Iterable[str]) -> bool:
        """Tell whether all these files exist."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    def put(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Move files of the staging folder to their final names, and yield each name once that is done."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are empty then."""

    def describe_error(self, error: OSError) -> tuple[str, bool]:
        """Return a description of an error, and whether it is transient."""

    @property
    def local_path(self) -> str | None:
        """Return the folder of this machine's disk; None if it is in an object store."""

    def unit_staging(self, folder: Path) -> AbstractContextManager[str]:
        """Yield the name of a place that work units write to; it is removed afterwards.

        `folder` is the staging folder.
        """

    def open_attempt(self, staging: str) -> AbstractContextManager["AttemptFolder"]:
        """Yield a local folder for an attempt of a work unit."""

    def put_staged(self, files: "Mapping[str, StagedFile]") -> Iterator[str]:
        """Move files that work units staged to their final names, and yield each name once that is done."""


@dataclass(frozen=True)
class StagedFile:
    """A file that a work unit wrote: its path relative to the sink, where it is staged, and its size."""

    name: str
    staged_at: str
    bytes: int


class AttemptFolder(Protocol):
    """The folder that one attempt of a work unit writes to."""

    folder: Path

    def keep(self, folder: Path) -> tuple[StagedFile, ...]:
        """Stage all files below a folder, and return them by their paths relative to it."""


def list_files(folder: Path) -> dict[str, Path]:
    """Return all files below a folder, by their relative paths."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


class _SharedFolder:
    """A folder of an attempt that the driver sees, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, folder: Path) -> tuple[StagedFile, ...]:
        files = list_files(folder)
        return tuple(StagedFile(name, str(path), path.stat().st_size) for name, path in files.items())


class _UploadedFolder:
    """A temporary folder of an attempt, whose files are uploaded."""

    def __init__(self, folder: Path, location: "ObjectStoreFolder", prefix: str) -> None:
        self.folder = folder
        self._location = location
        self._prefix = prefix

    def keep(self, folder: Path) -> tuple[StagedFile, ...]:
        files = {f"{self._prefix}/{name}": path for name, path in list_files(folder).items()}
        for _ in self._location.put(files):
            pass
        return tuple(
            StagedFile(name.removeprefix(f"{self._prefix}/"), name, path.stat().st_size) for name, path in files.items()
        )


class LocalFolder:
    """A local folder. Staged files are in `staging_name` inside it, so that they can be renamed atomically."""

    fix = "check the folder, its permissions and the space left; the next run continues"

    def __init__(self, root: Path, staging_name: str) -> None:
        self._root = root
        self._staging_folder = root / staging_name

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a folder next to the final files."""
        self._root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(
            self._staging_folder, ignore_errors=True
        )  # leftovers of a killed process: nobody else writes here now
        self._staging_folder.mkdir()
        try:
            yield self._staging_folder
        finally:
            shutil.rmtree(self._staging_folder, ignore_errors=True)

    def has(self, names: Iterable[str]) -> bool:
        """Look for each file."""
        return all((self._root / name).is_file() for name in names)

    def read(self, name: str) -> bytes | None:
        """Read a file."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Rename the files one after another, each after it was synced to disk."""
        for name, file in files.items():
            target = self._root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            fsync_path(file)
            file.replace(target)
            fsync_path(target.parent)
            yield name

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are empty then."""
        for name in names:
            file = self._root / name
            file.unlink(missing_ok=True)
            for folder in file.parents:
                if folder == self._root or (folder.is_dir() and any(folder.iterdir())):
                    break
                shutil.rmtree(folder, ignore_errors=True)  # somebody else may have removed it

    @property
    def local_path(self) -> str | None:
        """Return the folder."""
        return os.path.abspath(self._root)  # noqa: PTH100 - links stay as they are

    @contextmanager
    def unit_staging(self, folder: Path) -> Iterator[str]:
        """Yield a folder in the staging folder, with which it is removed."""
        unit_folder = folder / "units"
        unit_folder.mkdir()
        yield str(unit_folder)

    @contextmanager
    def open_attempt(self, staging: str) -> Iterator[AttemptFolder]:
        """Yield a new folder; fails if the delivery is over and its staging folder removed."""
        folder = Path(staging) / secrets.token_hex(8)
        folder.mkdir()
        yield _SharedFolder(folder)

    def put_staged(self, files: Mapping[str, StagedFile]) -> Iterator[str]:
        """Rename the files one after another."""
        return self.put({name: Path(staged_file.staged_at) for name, staged_file in files.items()})

    def describe_error(self, error: OSError) -> tuple[str, bool]:
        """Return the message of the operating system."""
        return error.strerror or str(error), False


class ObjectStoreFolder:
    """A folder of an object store: an object becomes visible only when it is complete."""

    fix = "check the address, and [lake.storage] of runnel.toml; the next run continues"

    def __init__(self, address: str, storage: Mapping[str, str]) -> None:
        self._address = address
        self._storage = storage

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a temporary folder."""
        with temp_dirs.create_scoped("sink") as name:
            yield Path(name)

    def has(self, names: Iterable[str]) -> bool:
        """Look for all files with one request."""
        system, root = open_file_system(self._address, self._storage)
        return all(info.is_file for info in system.get_file_info([f"{root}/{name}" for name in names]))

    def read(self, name: str) -> bytes | None:
        """Fetch an object."""
        system, root = open_file_system(self._address, self._storage)
        try:
            with system.open_input_stream(f"{root}/{name}", compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def put(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Upload several files at a time, in any order; yield their names in the given order."""
        yield from run_concurrently(lambda name: self._upload_file(name, files[name]), list(files))

    def _upload_file(self, name: str, file: Path) -> str:
        from pyarrow.fs import LocalFileSystem, copy_files

        system, root = open_file_system(self._address, self._storage)
        target, size = f"{root}/{name}", file.stat().st_size
        copy_files(str(file), target, source_filesystem=LocalFileSystem(), destination_filesystem=system)
        if system.get_file_info(target).size != size:  # the upload was cut off
            raise OSError(f"{name} was not written completely")
        return name

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects, and the marker objects of folders that are empty then."""
        from pyarrow.fs import FileSelector

        system, root = open_file_system(self._address, self._storage)
        for name in names:
            if system.get_file_info(f"{root}/{name}").is_file:
                system.delete_file(f"{root}/{name}")
            folder = name.rpartition("/")[0]
            # Deleting the last object leaves a marker of the empty folder; another process may have removed it.
            while folder and not system.get_file_info(FileSelector(f"{root}/{folder}", allow_not_found=True)):
                with suppress(FileNotFoundError):
                    system.delete_dir(f"{root}/{folder}")
                folder = folder.rpartition("/")[0]

    @property
    def local_path(self) -> str | None:
        """Return None: every machine reaches the store."""
        return None

    @contextmanager
    def unit_staging(self, folder: Path) -> Iterator[str]:  # noqa: ARG002 - units can't see it
        """Yield a new name below the sink's folder; leftovers of earlier deliveries are removed."""
        self._remove_staged_files()
        try:
            yield f"{_UNIT_FOLDER}/{secrets.token_hex(8)}"
        finally:
            self._remove_staged_files()

    @contextmanager
    def open_attempt(self, staging: str) -> Iterator[AttemptFolder]:
        """Yield a temporary folder."""
        with temp_dirs.create_scoped("sink") as name:
            yield _UploadedFolder(Path(name), self, f"{staging}/{secrets.token_hex(8)}")

    def put_staged(self, files: Mapping[str, StagedFile]) -> Iterator[str]:
        """Copy several objects at a time within the store; yield their names in the given order."""
        yield from run_concurrently(lambda name: self._copy_object(name, files[name]), list(files))

    def _copy_object(self, name: str, staged_file: StagedFile) -> str:
        system, root = open_file_system(self._address, self._storage)
        source, target = f"{root}/{staged_file.staged_at}", f"{root}/{name}"
        if staged_file.bytes < _MOST_COPIED_BYTES:
            system.copy_file(source, target)
        else:
            with system.open_input_stream(source) as reader, system.open_output_stream(target) as writer:
                while chunk := reader.read(_CHUNK_BYTES):
                    writer.write(chunk)
        if system.get_file_info(target).size != staged_file.bytes:
            raise OSError(f"{name} was not written completely")
        return name

    def _remove_staged_files(self) -> None:
        system, root = open_file_system(self._address, self._storage)
        with suppress(FileNotFoundError):
            system.delete_dir(f"{root}/{_UNIT_FOLDER}")

    def describe_error(self, error: OSError) -> tuple[str, bool]:
        """Return the message of the object store, without its keys."""
        return describe_store_error(error, self._storage)
