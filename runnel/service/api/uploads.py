"""Receive uploads within limits: bodies of requests, and the files of tar archives.

The standard library reads single headers of an archive, but does not walk it: depending on its version, a sparse member
becomes larger than all that was sent, a negative size leads back in the archive without end, and a long header fills
the memory.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from anyio import to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from runnel.errors import Mistake
from runnel.lake.files.paths import check_path
from runnel.names import quote_value
from runnel.text_tables import format_bytes

_BLOCK_BYTES = tarfile.BLOCKSIZE
_MAX_NAME_BYTES, _MAX_NAMES = 255, 100  # of a path: more can't be staged on every disk
_MAX_FILES = 100_000
_MAX_HEADER_BYTES = 1 << 20  # of an extended header: it holds a path, a time and attributes
_FILE_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_PAX_TYPES = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_CHUNK_BYTES = 1 << 20
_NUMBER = re.compile(rb"[0-9]{1,18}")


@dataclass(frozen=True)
class ArchiveFile:
    """A file of an archive; its contents are the next `size` bytes of the archive."""

    path: str
    size: int
    modified_at: float


async def receive_body(request: Request, file: Path, max_bytes: int) -> None:
    """Write the body of a request to a file; raise as soon as it is too large."""
    announced = request.headers.get("content-length", "")
    received = 0
    _check_size(int(announced) if announced.isdecimal() else 0, max_bytes)
    try:
        with file.open("wb") as target:
            async for chunk in request.stream():
                received += len(chunk)
                _check_size(received, max_bytes)
                await to_thread.run_sync(target.write, chunk)
    except ClientDisconnect as error:
        raise Mistake("REQUEST_CUT", "the upload is incomplete", fix="send it again") from error


def check_upload_path(path: str) -> None:
    """Refuse a path that the lake, or the disk on which uploads are staged, can't hold."""
    names = check_path(path).split("/")
    if any(len(name.encode()) > _MAX_NAME_BYTES for name in names):
        what = f"a name in {quote_value(path)} is too long"
        raise Mistake("FILES_PATH", what, fix=f"choose one of at most {_MAX_NAME_BYTES} bytes")
    if len(names) > _MAX_NAMES:
        what = f"the path {quote_value(path)} has {len(names)} names"
        raise Mistake("FILES_PATH", what, fix=f"choose one of at most {_MAX_NAMES} names, that is fewer folders")


def unpack_archive(archive: Path, folder: Path) -> None:
    """Write the files of a tar archive below a folder; raise if it contains anything else."""
    folder.mkdir(exist_ok=True)
    with archive.open("rb") as stream:
        for number, file in enumerate(_read_files(stream), start=1):
            if number > _MAX_FILES:
                what = f"the archive has more than {_MAX_FILES:,} files"
                raise Mistake("FILES_ARCHIVE", what, fix="send them in several archives")
            check_upload_path(file.path)
            try:
                _write_file(stream, file, folder / file.path)
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                what = "a path of the archive is both a file and a folder"
                raise Mistake("FILES_ARCHIVE", what, fix="send each file once, with its whole path") from error


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        what = f"the upload has more than {format_bytes(max_bytes)}"
        fix = "send less at once, or raise `service.max_upload` in runnel.toml"
        raise Mistake("FILES_TOO_LARGE", what, fix=fix)


def _read_files(stream: IO[bytes]) -> Iterator[ArchiveFile]:
    """Yield the files of an archive, each with `stream` at the start of its contents."""
    archive_bytes = os.fstat(stream.fileno()).st_size
    extended: dict[str, bytes] = {}  # what the headers before a file say about it
    while (header := _read_header(stream)) is not None:
        is_file = header.type in _FILE_TYPES
        size = int(extended["size"]) if is_file and "size" in extended else header.size
        next_header = stream.tell() + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        if size < 0 or next_header > archive_bytes:
            raise _malformed_error("it ends within a file")
        if is_file:
            yield _build_file(header, size, extended)
            extended = {}
        elif header.type in _PAX_TYPES:
            extended |= _parse_pax_records(_read_extended_header(stream, size))
        elif header.type == tarfile.GNUTYPE_LONGNAME:
            extended["path"] = _read_extended_header(stream, size).partition(b"\0")[0]
        elif header.type != tarfile.XGLTYPE:  # such as the commit of `git archive`
            raise _refused_member_error(header)
        stream.seek(next_header)


def _read_header(stream: IO[bytes]) -> tarfile.TarInfo | None:
    """Return the next header, or None at the end of the archive."""
    block = stream.read(_BLOCK_BYTES)
    if block == bytes(_BLOCK_BYTES) or (not block and stream.tell() > 0):
        return None
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise _malformed_error(str(error)) from error


def _read_extended_header(stream: IO[bytes], size: int) -> bytes:
    if size > _MAX_HEADER_BYTES:
        raise _malformed_error(f"a header of it has {format_bytes(size)}")
    return stream.read(size)


def _parse_pax_records(data: bytes) -> dict[str, bytes]:
    r"""Return the records of an extended header that matter here; each one is `LENGTH KEY=VALUE` and a line end.

    >>> _parse_pax_records(b"16 path=a/b.txt\n13 mtime=1.5\n")
    {'path': b'a/b.txt', 'mtime': b'1.5'}
    """
    records: dict[str, bytes] = {}
    start = 0
    while start < len(data):
        length_text = data[start : start + 10].partition(b" ")[0]
        end = start + int(length_text) if _NUMBER.fullmatch(length_text) else 0
        key, equals, value = data[start + len(length_text) + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise _malformed_error("an extended header is malformed")
        if key in (b"path", b"mtime", b"size"):
            records[key.decode()] = value
        elif key.startswith(b"GNU.sparse."):
            raise Mistake("FILES_ARCHIVE", "a file of the archive is sparse", fix="pack it without --sparse")
        start = end
    if not _NUMBER.fullmatch(records.get("size", b"0")):
        raise _malformed_error("an extended header is malformed")
    return records


def _build_file(header: tarfile.TarInfo, size: int, extended: dict[str, bytes]) -> ArchiveFile:
    path = extended["path"].decode("utf-8", "surrogateescape") if "path" in extended else header.name
    modified_at = float(header.mtime)
    with suppress(ValueError):
        modified_at = float(extended.get("mtime", header.mtime))
    return ArchiveFile(path, size, modified_at)


def _refused_member_error(header: tarfile.TarInfo) -> Mistake:
    if header.type == tarfile.GNUTYPE_SPARSE:
        what = f"{quote_value(header.name)} of the archive is sparse"
        return Mistake("FILES_ARCHIVE", what, fix="pack it without --sparse")
    what = f"{quote_value(header.name)} of the archive is not a file"
    return Mistake("FILES_ARCHIVE", what, fix="send files only, each with its whole path")


def _malformed_error(reason: str) -> Mistake:
    what = f"the body is not a tar archive: {reason}"
    return Mistake("FILES_ARCHIVE", what, fix="send an archive that is not compressed")


def _write_file(stream: IO[bytes], file: ArchiveFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        remaining = file.size
        while remaining:
            chunk = stream.read(min(remaining, _CHUNK_BYTES))
            if not chunk:
                raise _malformed_error("it ends within a file")
            out.write(chunk)
            remaining -= len(chunk)
    with suppress(OSError, OverflowError, ValueError):  # a time that this file system can't hold
        os.utime(target, (file.modified_at, file.modified_at))
