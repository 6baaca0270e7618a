"""Find the files that a user named, by path or by glob, and say which format they are in.

Reads names and sizes only, never contents.
"""

import glob
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.connect.files.compression import packing_of
from runnel.declare.options.file_formats import ENDINGS, FORMATS
from runnel.errors import Mistake, listed, nearest
from runnel.names import shown

CSV, JSONL, PARQUET = "csv", "jsonl", "parquet"
JSON, AVRO, ORC, XML, TEXT, BINARY = "json", "avro", "orc", "xml", "text", "binary"


@dataclass(frozen=True)
class File:
    """A file to load: as the user named it, where it is, and what it was when it was found."""

    name: str
    path: str
    bytes: int
    modified_at: float

    @property
    def packing(self) -> str | None:
        """Return how it is packed, as its name says."""
        return packing_of(self.path)

    @property
    def ending(self) -> str:
        """Return what its name ends with, `.gz` and the like left off: `.csv`."""
        path = Path(self.path.lower())
        return Path(path.stem).suffix if self.packing else path.suffix


def find(patterns: Sequence[str]) -> tuple[File, ...]:
    """Return the files that paths and globs name, each once, in the order of the patterns and sorted within each."""
    if not patterns:
        raise Mistake(
            "LOAD_NO_FILE", "no file was named", fix="name files or globs: runnel load ods.orders 'data/*.csv'"
        )
    found: dict[str, File] = {}
    for pattern in patterns:
        for name in _names(pattern):
            file = _file(name)
            found.setdefault(os.path.realpath(file.path), file)
    return tuple(found.values())


def file_at(name: str, path: Path) -> File:
    """Return a file that is there, under the name by which people know what is in it."""
    found = path.stat()
    return File(name, str(path), found.st_size, found.st_mtime)


def format_of(files: Sequence[File], given: str | None = None) -> str:
    """Return the one format of all files, from `given` or from their names."""
    if given is not None:
        if given not in FORMATS:
            close = nearest(given, FORMATS)
            what = f"{shown(given)} is not a format" + (f"; close: `{close}`" if close else "")
            raise Mistake("LOAD_FORMAT", what, fix=f"use one of {', '.join(FORMATS)}")
        return given
    formats = {file.name: ENDINGS.get(file.ending) for file in files}
    unknown = [name for name, format in formats.items() if format is None]
    if unknown:
        what = f"the format of {listed(unknown)} does not show in the name"
        raise Mistake("LOAD_FORMAT", what, fix=f"say it: --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if len(set(formats.values())) > 1:
        examples = {format: name for name, format in reversed(formats.items())}
        what = "one load takes files of one format, but these mix them: " + listed(
            f"{name} ({format})" for format, name in examples.items()
        )
        raise Mistake("LOAD_FORMATS_MIXED", what, fix="load each format by itself, or narrow the glob")
    return str(next(iter(formats.values())))


def unchanged(files: Sequence[File]) -> None:
    """Raise where a file is not what it was when it was found: its rows may be half old, half new."""
    for file in files:
        try:
            now = os.stat(file.path)  # noqa: PTH116
        except OSError:
            now = None
        if now is None or (now.st_size, now.st_mtime) != (file.bytes, file.modified_at):
            what = f"{file.name} changed while it was being loaded; nothing was loaded"
            raise Mistake("LOAD_FILE_CHANGED", what, at=file.name, fix="load it again when its writer has finished")


def _names(pattern: str) -> list[str]:
    if "\0" in pattern:
        raise Mistake("LOAD_NO_FILE", f"{shown(pattern)} is not a path", fix="name a file or a glob")
    path = Path(pattern)
    if path.is_dir():
        fix = (
            f"name the files in it: '{pattern.rstrip('/')}/*.csv', or '{pattern.rstrip('/')}/**/*.csv' with subfolders"
        )
        raise Mistake("LOAD_DIRECTORY", f"{pattern} is a folder, not a file", fix=fix)
    if os.path.lexists(pattern) or not glob.has_magic(pattern):
        if not path.exists():
            raise _nothing(pattern, is_glob=False)
        return [pattern]
    found = sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())  # noqa: PTH207
    if not found:
        raise _nothing(pattern, is_glob=True)
    return found


def _nothing(pattern: str, *, is_glob: bool) -> Mistake:
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)) or not folder.is_dir():
        if folder == folder.parent:
            break
        folder = folder.parent
    inside = _inside(folder)
    close = nearest(Path(pattern).name, inside) or (inside[0] if inside else None)
    what = f"no file matches {shown(pattern)}" if is_glob else f"there is no file {shown(pattern)}"
    hint = f"; the folder {folder} has `{close}`" if close else f"; the folder {folder} has no files"
    return Mistake("LOAD_NO_FILE", what + hint, fix="check the path; quote a glob so that the shell leaves it alone")


def _inside(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file() and entry.name[0] != ".")
    except OSError:
        return []


def _file(name: str) -> File:
    path = os.path.abspath(name)  # noqa: PTH100 - keeps the name of a symlink, and with it the ending
    try:
        found = os.stat(path)  # noqa: PTH116
        if not stat.S_ISREG(found.st_mode):
            what = f"{name} is not a regular file"
            raise Mistake("LOAD_FILE_UNREADABLE", what, at=name, fix="write it to a file first: it is read twice")
        with open(path, "rb"):  # noqa: PTH123
            pass
    except OSError as error:
        what = f"{name} can't be read: {error.strerror}"
        raise Mistake("LOAD_FILE_UNREADABLE", what, at=name, fix="check its permissions") from error
    if found.st_size == 0:
        what = f"{name} is empty (0 bytes)"
        raise Mistake("LOAD_FILE_EMPTY", what, at=name, fix="leave it out, or see why its writer wrote nothing")
    return File(name, path, found.st_size, found.st_mtime)
