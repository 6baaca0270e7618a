"""Store the files of a sink in a local folder or in an object store. A file is replaced atomically."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from runnel import temp_dirs
from runnel.connect.files.object_stores import describe_store_error, open_file_system, run_concurrently
from runnel.lake.iceberg.file_io import fsync_path


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

    def describe_error(self, error: OSError) -> tuple[str, bool]:
        """Return the message of the object store, without its keys."""
        return describe_store_error(error, self._storage)
