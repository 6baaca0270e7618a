"""Blobs: large contents, stored once below the warehouse under the sha256 of their bytes.

A row's `blob` is relative to the warehouse, so that a lake that was moved still finds it. A blob never changes. The
garbage collector deletes one only if it was listed as garbage before every open write began; so a write that holds
its pin may rely on a blob that was not listed when it looked, and makes a copy of one that was.
"""

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.errors import Broken
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.files.file_rows import Part, reading, values
from runnel.lake.iceberg.file_io import local_path, plain, sync
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.table_properties import is_file_table

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

FOLDER = ".blobs"
CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"\.blobs/(?P<start>[0-9a-f]{2})/(?P<rest>[0-9a-f]{62})(?:-[0-9a-f]{8})?\Z", re.ASCII)


def name_of(sha256: str) -> str:
    """Return the first name that contents get.

    >>> name_of("ab" + "0" * 62)
    '.blobs/ab/00000000000000000000000000000000000000000000000000000000000000'
    """
    return f"{FOLDER}/{sha256[:2]}/{sha256[2:]}"


def sha256_of(blob: str) -> str | None:
    """Return the checksum that a blob's name promises, or None where it is no blob's name."""
    found = _NAME.match(blob)
    return found["start"] + found["rest"] if found else None


def location(store: "Store", blob: str) -> str:
    """Return where a blob stands; a local one as a plain path."""
    return plain(f"{store.warehouse}/{blob}")


def chunks(store: "Store", blob: str) -> Iterator[bytes]:
    """Yield the bytes of a blob; FileNotFoundError where it is gone."""
    with store.io.new_input(location(store, blob)).open() as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def damage(store: "Store", blob: str) -> str | None:
    """Return what is wrong with a blob, having read it whole, or None."""
    promised = sha256_of(blob)
    if promised is None:
        return "is no blob of this lake"
    digest = hashlib.sha256()
    try:
        for chunk in chunks(store, blob):
            digest.update(chunk)
    except FileNotFoundError:
        return "is gone"
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    return None if digest.hexdigest() == promised else "has other bytes than its sha256 says"


def damaged(path: str, blob: str | None, what: str) -> Broken:
    """Return the error for a file whose contents are not what its row promises."""
    where = f" (blob {blob})" if blob else ""
    fix = "run `runnel fsck` to see which commits are affected, and restore it from a backup or put it again"
    return Broken("FILES_DAMAGED", f"the contents of `{path}`{where} {what}", fix=fix)


def referenced(store: "Store", metadata: "TableMetadata", seen: set[str] | None = None) -> Iterator[str]:
    """Yield the location of every blob that a version references; a few may come twice.

    Only the blob column is read, of data files that have blobs at all. Data files in `seen` are skipped, and those
    looked at are added: over many versions of a table each is read once.
    """
    if not is_file_table(metadata):
        return
    field = next((field.field_id for field in metadata.schema().fields if field.name == "blob"), None)
    for entry in entries(store, metadata):
        if not entry.is_data or (seen is not None and entry.path in seen):
            continue
        if seen is not None:
            seen.add(entry.path)
        nulls = (entry.file.null_value_counts or {}).get(field or -1)
        if nulls != entry.file.record_count:
            yield from (location(store, blob) for blob in _blobs_in(store, metadata, Part(entry)))


def _blobs_in(store: "Store", metadata: "TableMetadata", part: Part) -> Iterable[str]:
    with reading(store, metadata, part) as reader:
        for group in range(reader.file.metadata.num_row_groups):
            for table in reader.read(group, ["blob"]):
                yield from {blob for blob in values(table, "blob") if blob}


class Uploads:
    """The blobs that one write makes or relies on; its pin must be held from before until it is published."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._names: dict[str, str] = {}

    def keep(self, sha256: str, size: int, read: Callable[[], Iterator[bytes]]) -> str:
        """Return the blob that holds these contents, having written it where there is none to rely on."""
        with self._guard:
            lock = self._locks.setdefault(sha256, threading.Lock())
        with lock:  # the same contents twice in one write are uploaded once
            if sha256 not in self._names:
                self._names[sha256] = self._kept(sha256, size, read)
            return self._names[sha256]

    def _kept(self, sha256: str, size: int, read: Callable[[], Iterator[bytes]]) -> str:
        blob = name_of(sha256)
        if self._is_garbage(blob):
            blob = f"{blob}-{secrets.token_hex(4)}"
        else:
            there = self.store.io.new_input(location(self.store, blob))
            if there.exists():
                if len(there) == size:
                    return blob
                blob = f"{blob}-{secrets.token_hex(4)}"  # a damaged one is left for `fsck` to find
        upload(self.store, blob, read())
        return blob

    def _is_garbage(self, blob: str) -> bool:
        place = location(self.store, blob)
        spellings = {place, re.sub(r"^s3[an]://", "s3://", place)}  # the garbage collector knows one scheme of S3
        query = sa.select(schema.garbage.c.path).where(schema.garbage.c.path.in_(spellings))
        return self.store.db.read(lambda connection: connection.execute(query).first() is not None)


def upload(store: "Store", blob: str, contents: Iterable[bytes]) -> None:
    """Write a blob whole or not at all; once this returns it survives a power cut."""
    path = local_path(location(store, blob))
    if path is None:  # an object store shows an object when it is complete
        with store.io.new_output(location(store, blob)).create(overwrite=True) as stream:
            for chunk in contents:
                stream.write(chunk)
        failpoints.reach(failpoints.FILES_BLOB_IN_PLACE)
        return
    folders = [path.parent] if path.parent.exists() else [path.parent, *path.parents[1:3]]
    passing = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with store.io.new_output(str(passing)).create() as stream:
            for chunk in contents:
                stream.write(chunk)
        failpoints.reach(failpoints.FILES_BLOB_WRITTEN)
        passing.replace(path)
    except BaseException:
        with suppress(OSError):
            passing.unlink()
        raise
    for folder in folders:  # a folder that is new needs its own name on disk, too
        sync(folder)
    failpoints.reach(failpoints.FILES_BLOB_IN_PLACE)
