"""Make files readable for DuckDB: whole, unpacked and in UTF-8.

Most files are read where they are. What has to be rewritten goes to a folder that is removed afterwards.
"""

import codecs
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO

from runnel import temp_dirs
from runnel.connect.files.compression import check_whole, unpack, unpacked, whole
from runnel.connect.files.file_patterns import File
from runnel.errors import Mistake

_CHUNK = 1 << 20


class Scratch:
    """A folder for the time of one load, and the paths under which its files are read."""

    def __init__(self) -> None:
        self._folder = temp_dirs.folder("load")
        self._count = 0
        self._ready: dict[tuple[File, str], str] = {}
        self.files: dict[str, File] = {}

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def readable(self, file: File, encoding: str = "utf-8") -> str:
        """Return the path at which DuckDB reads a file; raises where it is damaged or in another encoding.

        A file that was made readable already stays as it is.
        """
        known = self._ready.get((file, encoding))
        if known is not None:
            return known
        path = file.path
        if not is_utf8(encoding, file):
            path = self._rewritten(file, encoding)
        elif file.packing == "gzip":  # DuckDB reads it, but does not look at its checksum
            check_whole(file.name, file.path)
        elif file.packing:
            path = str(self.fresh("file" + file.ending))
            unpack(file.name, file.path, Path(path))
        self.files[path] = file
        self._ready[file, encoding] = path
        return path

    def fresh(self, name: str) -> Path:
        """Return a path for a new file."""
        self._count += 1
        path = Path(self._folder.name) / str(self._count) / name
        path.parent.mkdir(parents=True)
        return path

    def instead(self, file: File, path: Path) -> File:
        """Return a file that was made of another one and is read in its place, under its name."""
        found = path.stat()
        return replace(file, path=str(path), bytes=found.st_size, modified_at=found.st_mtime)

    def _rewritten(self, file: File, encoding: str) -> str:
        path = self.fresh("file" + file.ending)
        with path.open("wb") as out:
            for text in _decoded(file, encoding):
                out.write(text.encode())
        return str(path)


def opened(file: File) -> IO[bytes]:
    """Open a file for reading its bytes, unpacked."""
    return unpacked(file.path)


def is_utf8(encoding: str, file: File) -> bool:
    """Tell whether an encoding needs no rewriting; raises for one that does not exist."""
    try:
        return codecs.lookup(encoding).name in ("utf-8", "ascii", "utf-8-sig")
    except LookupError as error:
        what = f"there is no encoding {encoding!r}"
        raise Mistake("LOAD_ENCODING", what, at=file.name, fix="use utf-8, latin-1, cp1252, utf-16, gbk ...") from error


def _decoded(file: File, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    lines = 1
    with whole(file.name, file.path), opened(file) as stream:
        while True:
            chunk = stream.read(_CHUNK)
            try:
                yield decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line = lines + error.object[: error.start].count(b"\n")
                what = f"{file.name}, line {line}: byte 0x{error.object[error.start]:02x} is not {encoding}"
                raise Mistake(
                    "LOAD_ENCODING", what, at=f"{file.name}:{line}", fix="name the right --encoding"
                ) from error
            if not chunk:
                return
            lines += chunk.count(b"\n")
