"""Where the files of a sink stand: in a folder of this machine, or in an object store. A file takes its place whole."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from runnel import temp_dirs
from runnel.connect.files.object_stores import at_once, said, system_of
from runnel.lake.iceberg.file_io import sync


class Place(Protocol):
    """A folder; names are paths from it on. What goes wrong with it is an OSError."""

    fix: str

    def staging(self) -> AbstractContextManager[Path]:
        """Yield a folder of this machine to write into first; afterwards it is gone."""

    def has(self, names: Iterable[str]) -> bool:
        """Tell whether all of some files are there."""

    def read(self, name: str) -> bytes | None:
        """Return what is in a file, None where there is none."""

    def put(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Let files of the staging folder take their places for good, and yield the names of those that have."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are empty then."""

    def said(self, error: OSError) -> tuple[str, bool]:
        """Return what is wrong in words, and whether it may pass."""


class Folder:
    """A folder of this machine. What is staged stands in `aside`, inside of it: from there it can be renamed."""

    fix = "check the folder, its permissions and the space left; the next run goes on"

    def __init__(self, root: Path, aside: str) -> None:
        self._root = root
        self._aside = root / aside

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a folder beside the files."""
        self._root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._aside, ignore_errors=True)  # by a process that was killed: nobody else writes here now
        self._aside.mkdir()
        try:
            yield self._aside
        finally:
            shutil.rmtree(self._aside, ignore_errors=True)

    def has(self, names: Iterable[str]) -> bool:
        """Look for each of them."""
        return all((self._root / name).is_file() for name in names)

    def read(self, name: str) -> bytes | None:
        """Read a file."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Rename one after another, each once all of it is on disk."""
        for name, file in files.items():
            target = self._root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            sync(file)
            file.replace(target)
            sync(target.parent)
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

    def said(self, error: OSError) -> tuple[str, bool]:
        """Return what the system says."""
        return error.strerror or str(error), False


class Bucket:
    """A folder of an object store: an object is there once all of it is."""

    fix = "check the address, and [lake.storage] of runnel.toml; the next run goes on"

    def __init__(self, address: str, storage: Mapping[str, str]) -> None:
        self._address = address
        self._storage = storage

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a temporary folder."""
        with temp_dirs.folder("sink") as name:
            yield Path(name)

    def has(self, names: Iterable[str]) -> bool:
        """Ask for all of them at once."""
        system, root = system_of(self._address, self._storage)
        return all(info.is_file for info in system.get_file_info([f"{root}/{name}" for name in names]))

    def read(self, name: str) -> bytes | None:
        """Fetch an object."""
        system, root = system_of(self._address, self._storage)
        try:
            with system.open_input_stream(f"{root}/{name}", compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def put(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Send several at a time; they take their places in any order, and are told of in theirs."""
        yield from at_once(lambda name: self._put(name, files[name]), list(files))

    def _put(self, name: str, file: Path) -> str:
        from pyarrow.fs import LocalFileSystem, copy_files

        system, root = system_of(self._address, self._storage)
        target, size = f"{root}/{name}", file.stat().st_size
        copy_files(str(file), target, source_filesystem=LocalFileSystem(), destination_filesystem=system)
        if system.get_file_info(target).size != size:  # it was cut off on its way
            raise OSError(f"not all of {name} has arrived")
        return name

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects, and the marks of folders that are empty then."""
        from pyarrow.fs import FileSelector

        system, root = system_of(self._address, self._storage)
        for name in names:
            if system.get_file_info(f"{root}/{name}").is_file:
                system.delete_file(f"{root}/{name}")
            folder = name.rpartition("/")[0]
            # What is deleted leaves the mark of an empty folder behind; somebody else may have removed it.
            while folder and not system.get_file_info(FileSelector(f"{root}/{folder}", allow_not_found=True)):
                with suppress(FileNotFoundError):
                    system.delete_dir(f"{root}/{folder}")
                folder = folder.rpartition("/")[0]

    def said(self, error: OSError) -> tuple[str, bool]:
        """Return what the store says, without its keys."""
        return said(error, self._storage)
