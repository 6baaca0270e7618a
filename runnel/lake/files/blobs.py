"""Store blobs: large file contents, stored once below the warehouse under the sha256 of their bytes.

A row's `blob` is relative to the warehouse, so that a moved lake still finds it. A blob never changes. The garbage
collector deletes a blob only if it was listed as garbage before every open write began. So a write that holds a pin
may use an existing blob that was not listed as garbage when it checked, and copies one that was.
"""

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.errors import CorruptData
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.files.file_rows import LiveFile, column_values, open_live_file
from runnel.lake.iceberg.file_io import fsync_path, local_path, normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_properties import is_file_table

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.lake.warehouse_files import FileAccess

IsGarbage = Callable[[set[str]], bool]
"""Returns whether one of some locations of a blob is listed as garbage."""
FOLDER = ".blobs"
CHUNK_BYTES = 1024 * 1024
_NAME_PATTERN = re.compile(r"\.blobs/(?P<start>[0-9a-f]{2})/(?P<rest>[0-9a-f]{62})(?:-[0-9a-f]{8})?\Z", re.ASCII)


def blob_name(sha256: str) -> str:
    """Return the default name of the blob with these contents.

    >>> blob_name("ab" + "0" * 62)
    '.blobs/ab/00000000000000000000000000000000000000000000000000000000000000'
    """
    return f"{FOLDER}/{sha256[:2]}/{sha256[2:]}"


def parse_sha256(blob: str) -> str | None:
    """Return the checksum in a blob's name, or None if it is not the name of a blob."""
    match = _NAME_PATTERN.match(blob)
    return match["start"] + match["rest"] if match else None


def blob_location(store: "FileAccess", blob: str) -> str:
    """Return the location of a blob, as a plain path if it is local."""
    return normalize_location(f"{store.warehouse}/{blob}")


def read_chunks(store: "Store", blob: str) -> Iterator[bytes]:
    """Yield the bytes of a blob; raise FileNotFoundError if it does not exist."""
    with store.io.new_input(blob_location(store, blob)).open() as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def find_damage(store: "Store", blob: str) -> str | None:
    """Read a whole blob and return what is wrong with it, or None."""
    promised = parse_sha256(blob)
    if promised is None:
        return "is not a blob of this lake"
    digest = hashlib.sha256()
    try:
        for chunk in read_chunks(store, blob):
            digest.update(chunk)
    except FileNotFoundError:
        return "is gone"
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    return None if digest.hexdigest() == promised else "does not match its sha256"


def damage_error(path: str, blob: str | None, what: str) -> CorruptData:
    """Return the error for a file whose contents don't match its row."""
    blob_text = f" (blob {blob})" if blob else ""
    fix = "run `runnel fsck` to see which commits are affected, and restore it from a backup or put it again"
    return CorruptData("FILES_DAMAGED", f"the contents of `{path}`{blob_text} {what}", fix=fix)


def find_referenced(store: "Store", metadata: "TableMetadata", scanned_files: set[str] | None = None) -> Iterator[str]:
    """Yield the location of every blob that a version references; some may be yielded twice.

    Reads only the blob column, of data files that have blobs. Data files in `scanned_files` are skipped, and those
    that were read are added to it: over many versions of a table each data file is read once.
    """
    if not is_file_table(metadata):
        return
    field = next((field.field_id for field in metadata.schema().fields if field.name == "blob"), None)
    for entry in read_entries(store, metadata):
        if not entry.is_data or (scanned_files is not None and entry.path in scanned_files):
            continue
        if scanned_files is not None:
            scanned_files.add(entry.path)
        nulls = (entry.file.null_value_counts or {}).get(field or -1)
        if nulls != entry.file.record_count:
            yield from (blob_location(store, blob) for blob in _read_blobs(store, metadata, LiveFile(entry)))


def _read_blobs(store: "Store", metadata: "TableMetadata", live_file: LiveFile) -> Iterable[str]:
    with open_live_file(store, metadata, live_file) as reader:
        for group in range(reader.file.metadata.num_row_groups):
            for table in reader.read_group(group, ["blob"]):
                yield from {blob for blob in column_values(table, "blob") if blob}


class BlobUploads:
    """The blobs that one write creates or uses; hold its pin from before the first one until it is published."""

    def __init__(self, files: "FileAccess", is_garbage: IsGarbage) -> None:
        self.files = files
        self._is_garbage = is_garbage
        self._locks_guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._names: dict[str, str] = {}

    def ensure_blob(self, sha256: str, size: int, read: Callable[[], Iterator[bytes]]) -> str:
        """Return the blob with these contents; write it if there is no usable one."""
        with self._locks_guard:
            lock = self._locks.setdefault(sha256, threading.Lock())
        with lock:  # the same contents twice in one write are uploaded once
            if sha256 not in self._names:
                self._names[sha256] = self._find_or_upload(sha256, size, read)
            return self._names[sha256]

    def _find_or_upload(self, sha256: str, size: int, read: Callable[[], Iterator[bytes]]) -> str:
        blob = blob_name(sha256)
        if self._is_garbage(_spell_location(self.files, blob)):
            blob = f"{blob}-{secrets.token_hex(4)}"
        else:
            blob_file = self.files.io.new_input(blob_location(self.files, blob))
            if blob_file.exists():
                if len(blob_file) == size:
                    return blob
                blob = f"{blob}-{secrets.token_hex(4)}"  # leave the damaged blob for `fsck` to report
        upload_blob(self.files, blob, read())
        return blob


def _spell_location(files: "FileAccess", blob: str) -> set[str]:
    blob_path = blob_location(files, blob)
    return {blob_path, re.sub(r"^s3[an]://", "s3://", blob_path)}  # the garbage collector uses s3:// only


def make_garbage_test(store: "Store") -> IsGarbage:
    """Return a test that asks the catalog database whether one of some locations is listed as garbage."""

    def is_garbage(locations: set[str]) -> bool:
        query = sa.select(schema.garbage.c.path).where(schema.garbage.c.path.in_(locations))
        return store.db.read(lambda connection: connection.execute(query).first() is not None)

    return is_garbage


def read_garbage_blobs(store: "Store") -> frozenset[str]:
    """Return the locations of all blobs that are listed as garbage."""
    query = sa.select(schema.garbage.c.path).where(schema.garbage.c.path.contains(f"/{FOLDER}/", autoescape=True))
    return frozenset(store.db.read(lambda connection: list(connection.execute(query).scalars())))


def upload_blob(store: "FileAccess", blob: str, contents: Iterable[bytes]) -> None:
    """Write a blob atomically; once this returns it survives a power failure."""
    path = local_path(blob_location(store, blob))
    if path is None:  # an object store makes an object visible when it is complete
        with store.io.new_output(blob_location(store, blob)).create(overwrite=True) as stream:
            for chunk in contents:
                stream.write(chunk)
        failpoints.reach(failpoints.FILES_BLOB_IN_PLACE)
        return
    folders = [path.parent] if path.parent.exists() else [path.parent, *path.parents[1:3]]
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with store.io.new_output(str(temporary_path)).create() as stream:
            for chunk in contents:
                stream.write(chunk)
        failpoints.reach(failpoints.FILES_BLOB_WRITTEN)
        temporary_path.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary_path.unlink()
        raise
    for folder in folders:  # a new folder's own entry must be synced, too
        fsync_path(folder)
    failpoints.reach(failpoints.FILES_BLOB_IN_PLACE)
