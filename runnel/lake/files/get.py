"""Read files of the lake, verified: one as a stream, or many to a folder, atomically and nowhere outside of it."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata

from runnel.errors import CorruptData, Mistake, close_hint, join_names
from runnel.lake.files.blobs import damage_error, parse_sha256, read_chunks
from runnel.lake.files.file_rows import LiveFile, column_values, list_live_files, open_live_file, scan_rows
from runnel.lake.files.file_table import load_at_ref
from runnel.lake.files.ls import list_files
from runnel.lake.files.paths import Glob, escape_glob, find_nearest_path, find_path_problem
from runnel.lake.files.safe_folder import SafeFolder
from runnel.lake.leases.pins import acquire_pin
from runnel.model.progress import Progress
from runnel.names import quote_value

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_BATCH_ROWS = 64  # of inline contents
_COLUMNS = ("path", "size", "sha256", "modified_at", "blob")


@dataclass(frozen=True)
class GetResult:
    """The result of a get; `unchanged` counts files that already existed with the same contents."""

    written: int
    unchanged: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RequestedFile:
    """A file to be written; `modified_at` is in microseconds since the epoch."""

    path: str
    size: int | None
    sha256: str | None
    modified_at: int | None
    blob: str | None


_RowGroup = tuple[LiveFile, int]  # a data file and a row group in it


def get_files(
    store: "Store",
    table: "TableName",
    glob: str | None,
    out: Path,
    *,
    at: str = "main",
    overwrite: bool = False,
    report_progress: Progress | None = None,
) -> GetResult:
    """Write the files that a glob matches below `out`, which is created if it does not exist.

    If a file already exists with other contents, raise before anything is written, unless `overwrite`.
    """
    commit, _ = load_at_ref(store, table, at)
    with acquire_pin(store.db, "read", commit.id):
        _, metadata = load_at_ref(store, table, commit.id)
        requested = _find_requested(store, table, metadata, glob, commit.id)
        folder = SafeFolder(out)
        unchanged = find_unchanged(folder, (file for files in requested.values() for file in files), overwrite)
        total, done, size = sum(map(len, requested.values())), 0, 0
        for file, contents in _read_contents(store, metadata, requested, unchanged):
            folder.write_file(file.path, verify_contents(file, contents), file.modified_at)
            done, size = done + 1, size + (file.size or 0)
            if report_progress:
                report_progress("get", done + len(unchanged), total)
    return GetResult(done, len(unchanged), size)


@contextmanager
def open_file(
    store: "Store", table: "TableName", path: str, *, at: str = "main"
) -> Iterator[tuple[RequestedFile, Iterator[bytes]]]:
    """Yield a file and its contents, which are read as the caller asks for them, while the block runs.

    The last chunk comes after all contents were verified: a caller who has it has what was put.
    """
    commit, _ = load_at_ref(store, table, at)
    with acquire_pin(store.db, "read", commit.id):
        _, metadata = load_at_ref(store, table, commit.id)
        requested = _find_requested(store, table, metadata, escape_glob(path), commit.id)
        for file, contents in _read_contents(store, metadata, requested, set()):
            if file.path == path:
                if file.size is None:
                    raise damage_error(path, file.blob, "have no size in their row")
                yield file, _delay_last(verify_contents(file, contents))
                return
        raise no_match_error(table, path, (row.path for row in list_files(store, table, at=commit.id)))


def _delay_last(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield each chunk when the next one, or the end, is known."""
    previous_chunk: bytes | None = None
    for chunk in chunks:
        if previous_chunk is not None:
            yield previous_chunk
        previous_chunk = chunk
    if previous_chunk is not None:
        yield previous_chunk


def _find_requested(
    store: "Store", table: "TableName", metadata: TableMetadata, text: str | None, commit_id: str
) -> dict[_RowGroup, list[RequestedFile]]:
    glob = Glob(text) if text is not None else None
    requested: dict[_RowGroup, list[RequestedFile]] = {}
    may_contain = glob.may_match_between if glob else None
    for live_file, group, rows in scan_rows(store, metadata, list_live_files(store, metadata), _COLUMNS, may_contain):
        chosen = rows.filter(glob.matches(rows["path"])) if glob else rows
        if chosen.num_rows:
            files = zip(*(column_values(chosen, name) for name in _COLUMNS), strict=True)
            requested.setdefault((live_file, group), []).extend(RequestedFile(*file) for file in files)
    if not requested:
        raise no_match_error(table, text, (row.path for row in list_files(store, table, at=commit_id)))
    check_paths(table, (file for files in requested.values() for file in files))
    return requested


def no_match_error(table: "TableName", text: str | None, existing_paths: Iterable[str]) -> Mistake:
    """Return the error for a glob that matches none of the existing files."""
    if text is None:
        return Mistake("FILES_NO_MATCH", f"`{table}` has no files", fix="put some: runnel put TABLE PATH...")
    close = find_nearest_path(text, existing_paths)
    what = f"no file of `{table}` matches {quote_value(text)}" + close_hint(close)
    return Mistake("FILES_NO_MATCH", what, fix=f"`runnel ls {table}` lists them")


def check_paths(table: "TableName", files: Iterable[RequestedFile]) -> None:
    """Raise for rows of another engine that can't be files: unsafe paths, or two rows with one path."""
    seen: set[str] = set()
    for file in files:
        path_problem = find_path_problem(file.path)
        if path_problem:
            what = f"`{table}` has the path {quote_value(file.path)}, which {path_problem}; nothing was written"
            raise CorruptData("FILES_PATH_UNSAFE", what, fix="leave it out with a narrower glob, or remove the row")
        if file.path in seen:
            what = f"`{table}` has the path `{file.path}` twice; nothing was written"
            raise CorruptData("FILES_PATH_TWICE", what, fix="put the file again: it replaces both")
        seen.add(file.path)


def find_unchanged(folder: SafeFolder, files: Iterable[RequestedFile], overwrite: bool = False) -> set[str]:
    """Return the paths that exist on disk with the same contents; raise if others exist, unless `overwrite`."""
    unchanged, differing = set(), []
    for file in files:
        existing_sha256 = folder.read_sha256(file.path, file.size)
        if existing_sha256 is not None and existing_sha256 == file.sha256:
            unchanged.add(file.path)
        elif existing_sha256 is not None and not overwrite:
            differing.append(file.path)
    if differing:
        what = f"{folder.root} already has {join_names(sorted(differing))} with other contents; nothing was written"
        raise Mistake("FILES_EXISTS", what, fix="choose another folder, or pass --overwrite")
    return unchanged


def _read_contents(
    store: "Store", metadata: TableMetadata, requested: dict[_RowGroup, list[RequestedFile]], skipped: set[str]
) -> Iterator[tuple[RequestedFile, Iterator[bytes]]]:
    for (live_file, group), files in requested.items():
        inline = {file.path: file for file in files if file.blob is None and file.path not in skipped}
        if inline:
            with open_live_file(store, metadata, live_file) as reader:
                for rows in reader.read_group(group, ("path", "content"), _BATCH_ROWS):
                    for row, path in enumerate(column_values(rows, "path")):
                        if path in inline:
                            content = rows["content"][row].as_py()
                            yield inline[path], iter(() if content is None else (content,))
        for file in files:
            if file.blob is not None and file.path not in skipped:
                yield file, _read_blob(store, file)


def _read_blob(store: "Store", file: RequestedFile) -> Iterator[bytes]:
    assert file.blob is not None
    if parse_sha256(file.blob) is None:  # another engine may have written the row; open only blobs
        raise damage_error(file.path, file.blob, "are not a blob of this lake")
    try:
        yield from read_chunks(store, file.blob)
    except FileNotFoundError as error:
        raise damage_error(file.path, file.blob, "are gone") from error
    except OSError as error:
        raise damage_error(file.path, file.blob, f"can't be read: {error.strerror or error}") from error


def verify_contents(file: RequestedFile, contents: Iterator[bytes]) -> Iterator[bytes]:
    """Yield contents, and raise at their end if they don't match the row."""
    digest, size = hashlib.sha256(), 0
    for chunk in contents:
        digest.update(chunk)
        size += len(chunk)
        if file.size is not None and size > file.size:
            raise damage_error(file.path, file.blob, f"have more than the {file.size} bytes that their row says")
        yield chunk
    if file.sha256 is None:
        raise damage_error(file.path, file.blob, "have no checksum")
    if digest.hexdigest() != file.sha256:
        raise damage_error(file.path, file.blob, "do not match the checksum in their row")
    if size != file.size:
        raise damage_error(file.path, file.blob, f"have {size} bytes, their row says {file.size}")
