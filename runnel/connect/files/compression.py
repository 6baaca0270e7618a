"""Compressed files: which way one is packed by its name, and its bytes unpacked.

Whoever reads to the end knows that the file was whole: one that is cut off or damaged raises.
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

ENDINGS = {".gz": "gzip", ".zst": "Zstandard", ".bz2": "bzip2", ".xz": "xz", ".zip": "zip"}
_CODES = {"gzip": "LOAD_GZIP"}
_CHUNK = 1 << 20
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def packing_of(path: str) -> str | None:
    """Return how a file is packed, by its name.

    >>> packing_of("a.CSV.GZ"), packing_of("a.csv")
    ('gzip', None)
    """
    return ENDINGS.get(Path(path.lower()).suffix)


def unpacked(path: str) -> IO[bytes]:
    """Open a file for reading its bytes, unpacked."""
    packing = packing_of(path)
    if packing == "gzip":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if packing == "bzip2":
        return bz2.open(path, "rb")
    if packing == "xz":
        return lzma.open(path, "rb")
    if packing == "zip":
        return _zipped(path)
    if packing == "Zstandard":
        import io

        import pyarrow as pa

        return cast(IO[bytes], io.BufferedReader(pa.input_stream(path, compression="zstd"), _CHUNK))
    return Path(path).open("rb")


@contextmanager
def whole(name: str, path: str) -> Iterator[None]:
    """Raise a Mistake where the bytes of a file can't be had; `name` is how its user calls it."""
    packing = packing_of(path)
    try:
        yield
    except _BROKEN as error:
        number = error.errno if isinstance(error, OSError) else None
        if number is not None:
            what = f"{name} can't be read: {os.strerror(number)}"
            raise Mistake("LOAD_FILE_UNREADABLE", what, at=name, fix="check its permissions") from error
        if packing is None:
            raise
        text = str(error)
        short = isinstance(error, EOFError) or "Truncated" in text or "end-of-stream" in text
        what = f"{name} is not a whole {packing} file: {'it ends too early' if short else text}"
        raise Mistake(_CODES.get(packing, "LOAD_PACKED"), what, at=name, fix="copy or download it again") from error


def check_whole(name: str, path: str) -> None:
    """Raise where a packed file is cut off or damaged."""
    with whole(name, path), unpacked(path) as stream:
        while stream.read(_CHUNK):
            pass


def unpack(name: str, path: str, target: Path) -> None:
    """Write the bytes of a packed file to another one."""
    with whole(name, path), unpacked(path) as stream, target.open("wb") as out:
        while chunk := stream.read(_CHUNK):
            out.write(chunk)


def _zipped(path: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:
        inside = [entry for entry in archive.infolist() if not entry.is_dir() and not _is_extra(entry.filename)]
        if len(inside) != 1:
            raise zipfile.BadZipFile(f"it has {len(inside)} files in it, not one")
        return archive.open(inside[0])


def _is_extra(name: str) -> bool:
    return name.startswith("__MACOSX/") or Path(name).name.startswith(".")
