"""Make files readable for DuckDB: verified, decompressed and in UTF-8.

Most files are read where they are. Files that have to be rewritten go to a folder that is removed afterwards.
"""

import codecs
import io
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.compression import (
    decompress_file,
    describe_read_errors,
    open_decompressed,
    verify_compressed_file,
)
from runnel.connect.files.file_patterns import LocalFile
from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.connect.files.csv_text.csv_header import CsvHeader

_CHUNK = 1 << 20
_SMALL_BYTES = 1 << 16


class ScratchFiles:
    """A temporary folder for one load, and the paths from which its files are read."""

    def __init__(self) -> None:
        self._folder = temp_dirs.create_scoped("load")
        self._count = 0
        self._readable_paths: dict[tuple[LocalFile, str], str] = {}
        self.files_by_path: dict[str, LocalFile] = {}
        self.headers: dict[LocalFile, CsvHeader] = {}  # of CSV files, as they were inspected

    def __enter__(self) -> "ScratchFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def make_readable(self, file: LocalFile, encoding: str = "utf-8") -> str:
        """Return the path from which DuckDB reads a file; raises if it is damaged or in another encoding.

        A file that was already made readable is not rewritten.
        """
        readable_path = self._readable_paths.get((file, encoding))
        if readable_path is not None:
            return readable_path
        path = file.path
        if not is_utf8(encoding, file):
            path = self._write_utf8_copy(file, encoding)
        elif file.compression == "gzip":  # DuckDB reads it, but does not look at its checksum
            verify_compressed_file(file.name, file.path)
        elif file.compression:
            path = str(self.new_path("file" + file.extension))
            decompress_file(file.name, file.path, Path(path))
        self.files_by_path[path] = file
        self._readable_paths[file, encoding] = path
        return path

    def new_path(self, name: str) -> Path:
        """Return a path for a new file."""
        self._count += 1
        path = Path(self._folder.name) / str(self._count) / name
        path.parent.mkdir(parents=True)
        return path

    def new_parquet_path(self, file: LocalFile) -> Path:
        """Return a path for a file converted to Parquet, with the Hive-style folders of its path, such as `day=1/`."""
        parts = [part for part in Path(file.path).parent.parts if part.partition("=")[1]]
        return self.new_path("/".join([*parts, "rows.parquet"]))

    def replace_file(self, file: LocalFile, path: Path) -> LocalFile:
        """Return the file at `path`, which is read in the place of `file` and keeps its name."""
        file_stat = path.stat()
        return replace(file, path=str(path), bytes=file_stat.st_size, modified_at=file_stat.st_mtime)

    def _write_utf8_copy(self, file: LocalFile, encoding: str) -> str:
        path = self.new_path("file" + file.extension)
        with path.open("wb") as out:
            for text in _decode_chunks(file, encoding):
                out.write(text.encode())
        return str(path)


def open_file(file: LocalFile) -> IO[bytes]:
    """Open a file for reading its decompressed bytes; a small one that was just read is not read again."""
    if file.compression is None and file.bytes <= _SMALL_BYTES:
        return io.BytesIO(_read_small_file(file))
    return open_decompressed(file.path)


@lru_cache(maxsize=1)
def _read_small_file(file: LocalFile) -> bytes:
    return Path(file.path).read_bytes()


def is_utf8(encoding: str, file: LocalFile) -> bool:
    """Tell whether an encoding is UTF-8 or ASCII; raises if the encoding does not exist."""
    try:
        return codecs.lookup(encoding).name in ("utf-8", "ascii", "utf-8-sig")
    except LookupError as error:
        what = f"there is no encoding {encoding!r}"
        raise Mistake("LOAD_ENCODING", what, at=file.name, fix="use utf-8, latin-1, cp1252, utf-16, gbk ...") from error


def _decode_chunks(file: LocalFile, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    lines = 1
    with describe_read_errors(file.name, file.path), open_file(file) as stream:
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
