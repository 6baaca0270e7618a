"""Make files readable for DuckDB: whole and in UTF-8.

Most files are read where they are. What has to be rewritten goes to a folder that is removed afterwards.
"""

import codecs
import gzip
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from runnel.connect.globs import File
from runnel.errors import Mistake

_CHUNK = 1 << 20


class Scratch:
    """A folder for the time of one load, and the paths under which its files are read."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="runnel-load-")
        self._count = 0
        self.files: dict[str, File] = {}

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def readable(self, file: File, encoding: str = "utf-8") -> str:
        """Return the path at which DuckDB reads a file; raises where it is damaged or in another encoding."""
        if file.gzipped:
            _whole(file)
        path = file.path
        if not is_utf8(encoding, file):
            path = self._rewritten(file, encoding)
        self.files[path] = file
        return path

    def _fresh(self) -> Path:
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        return folder

    def _rewritten(self, file: File, encoding: str) -> str:
        path = self._fresh() / ("file" + file.ending)
        with path.open("wb") as out:
            for text in _decoded(file, encoding):
                out.write(text.encode())
        return str(path)


def opened(file: File) -> IO[bytes]:
    """Open a file for reading its bytes, unzipped."""
    return cast(IO[bytes], gzip.open(file.path, "rb") if file.gzipped else Path(file.path).open("rb"))


def is_utf8(encoding: str, file: File) -> bool:
    """Tell whether an encoding needs no rewriting; raises for one that does not exist."""
    try:
        return codecs.lookup(encoding).name in ("utf-8", "ascii", "utf-8-sig")
    except LookupError as error:
        what = f"there is no encoding {encoding!r}"
        raise Mistake("LOAD_ENCODING", what, at=file.name, fix="use utf-8, latin-1, cp1252, utf-16, gbk ...") from error


def _whole(file: File) -> None:
    """Raise where a gzip file is cut off or damaged: DuckDB does not look at its checksum."""
    try:
        with opened(file) as stream:
            while stream.read(_CHUNK):
                pass
    except (EOFError, OSError, zlib.error) as error:
        why = "it ends too early" if isinstance(error, EOFError) else str(error)
        what = f"{file.name} is not a whole gzip file: {why}"
        raise Mistake("LOAD_GZIP", what, at=file.name, fix="copy or download it again") from error


def _decoded(file: File, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    done, lines = 0, 1
    with opened(file) as stream:
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
            done, lines = done + len(chunk), lines + chunk.count(b"\n")
