"""Read compressed files: detect the compression by the file's name, and decompress.

Reading to the end proves that a file is complete: one that is truncated or damaged raises.
"""

import bz2
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from runnel.errors import Mistake

EXTENSIONS = {".gz": "gzip", ".zst": "Zstandard", ".bz2": "bzip2", ".xz": "xz", ".zip": "zip"}
_CODES = {"gzip": "LOAD_GZIP"}
_CHUNK = 1 << 20
_READ_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def detect_compression(path: str) -> str | None:
    """Return the compression of a file, by its name.

    >>> detect_compression("a.CSV.GZ"), detect_compression("a.csv")
    ('gzip', None)
    """
    return EXTENSIONS.get(Path(path.lower()).suffix)


def open_decompressed(path: str) -> IO[bytes]:
    """Open a file for reading its decompressed bytes."""
    compression = detect_compression(path)
    if compression == "gzip":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if compression == "bzip2":
        return bz2.open(path, "rb")
    if compression == "xz":
        return lzma.open(path, "rb")
    if compression == "zip":
        return _open_zip_member(path)
    if compression == "Zstandard":
        import io

        import pyarrow as pa

        return cast(IO[bytes], io.BufferedReader(pa.input_stream(path, compression="zstd"), _CHUNK))
    return Path(path).open("rb")


@contextmanager
def describe_read_errors(name: str, path: str) -> Iterator[None]:
    """Turn errors of reading a file within the block into a Mistake; `name` is the user's name for the file."""
    compression = detect_compression(path)
    try:
        yield
    except _READ_ERRORS as error:
        error_number = error.errno if isinstance(error, OSError) else None
        if error_number is not None:
            what = f"{name} can't be read: {os.strerror(error_number)}"
            raise Mistake("LOAD_FILE_UNREADABLE", what, at=name, fix="check its permissions") from error
        if compression is None:
            raise
        text = str(error)
        is_truncated = isinstance(error, EOFError) or "Truncated" in text or "end-of-stream" in text
        what = f"{name} is not a complete {compression} file: {'it ends too early' if is_truncated else text}"
        raise Mistake(_CODES.get(compression, "LOAD_PACKED"), what, at=name, fix="copy or download it again") from error


def verify_compressed_file(name: str, path: str) -> None:
    """Raise if a compressed file is truncated or damaged."""
    with describe_read_errors(name, path), open_decompressed(path) as stream:
        while stream.read(_CHUNK):
            pass


def decompress_file(name: str, path: str, target: Path) -> None:
    """Write the decompressed bytes of a file to another one."""
    with describe_read_errors(name, path), open_decompressed(path) as stream, target.open("wb") as out:
        while chunk := stream.read(_CHUNK):
            out.write(chunk)


def _open_zip_member(path: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:
        members = [
            entry for entry in archive.infolist() if not entry.is_dir() and not _is_archive_metadata(entry.filename)
        ]
        if len(members) != 1:
            raise zipfile.BadZipFile(f"it has {len(members)} files in it, not one")
        return archive.open(members[0])


def _is_archive_metadata(name: str) -> bool:
    return name.startswith("__MACOSX/") or Path(name).name.startswith(".")
