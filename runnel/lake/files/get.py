"""Write files of the lake to a folder: verified, each one whole or not at all, and nothing outside of that folder."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata

from runnel.errors import Broken, Mistake, listed
from runnel.lake.files.blobs import chunks, damaged, sha256_of
from runnel.lake.files.file_rows import Part, parts, reading, scan, values
from runnel.lake.files.file_table import at_ref
from runnel.lake.files.ls import ls
from runnel.lake.files.paths import Glob, nearest_path, problem
from runnel.lake.files.put import Progress
from runnel.lake.files.safe_folder import Outlet
from runnel.lake.leases.pins import pinned
from runnel.names import shown

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_BATCH_ROWS = 64  # of inline contents
_COLUMNS = ("path", "size", "sha256", "modified_at", "blob")


@dataclass(frozen=True)
class Got:
    """What a get did; `unchanged` files were there already with the same contents."""

    written: int
    unchanged: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to be written; `modified_at` is in microseconds since the epoch."""

    path: str
    size: int | None
    sha256: str | None
    modified_at: int | None
    blob: str | None


_Place = tuple[Part, int]  # a data file and a row group in it


def get(
    store: "Store",
    table: "TableName",
    glob: str | None,
    out: Path,
    *,
    at: str = "main",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Got:
    """Write the files that a glob matches below `out`, which is made where it does not exist.

    A file that is there with other contents is an error before anything is written, unless `overwrite`.
    """
    commit, _ = at_ref(store, table, at)
    with pinned(store.db, "read", commit.id):
        _, metadata = at_ref(store, table, commit.id)
        wanted = _wanted(store, table, metadata, glob, commit.id)
        outlet = Outlet(out)
        same = present(outlet, (file for files in wanted.values() for file in files), overwrite)
        total, done, size = sum(map(len, wanted.values())), 0, 0
        for file, contents in _contents(store, metadata, wanted, same):
            outlet.write(file.path, verified(file, contents), file.modified_at)
            done, size = done + 1, size + (file.size or 0)
            if progress:
                progress("get", done + len(same), total)
    return Got(done, len(same), size)


def _wanted(
    store: "Store", table: "TableName", metadata: TableMetadata, text: str | None, commit_id: str
) -> dict[_Place, list[Wanted]]:
    glob = Glob(text) if text is not None else None
    found: dict[_Place, list[Wanted]] = {}
    span = glob.may_span if glob else None
    for part, group, rows in scan(store, metadata, parts(store, metadata), _COLUMNS, span):
        chosen = rows.filter(glob.matches(rows["path"])) if glob else rows
        if chosen.num_rows:
            files = zip(*(values(chosen, name) for name in _COLUMNS), strict=True)
            found.setdefault((part, group), []).extend(Wanted(*file) for file in files)
    if not found:
        raise no_match(table, text, (row.path for row in ls(store, table, at=commit_id)))
    check(table, (file for files in found.values() for file in files))
    return found


def no_match(table: "TableName", text: str | None, known: Iterable[str]) -> Mistake:
    """Return the error for a glob that matches none of the files that are known."""
    if text is None:
        return Mistake("FILES_NO_MATCH", f"`{table}` has no files", fix="put some: runnel put TABLE PATH...")
    close = nearest_path(text, known)
    what = f"no file of `{table}` matches {shown(text)}" + (f"; close: `{close}`" if close else "")
    return Mistake("FILES_NO_MATCH", what, fix=f"`runnel ls {table}` lists them")


def check(table: "TableName", files: Iterable[Wanted]) -> None:
    """Refuse rows that another engine wrote and that can't be files: unsafe paths, two of one path."""
    seen: set[str] = set()
    for file in files:
        wrong = problem(file.path)
        if wrong:
            what = f"`{table}` has the path {shown(file.path)}, which {wrong}; nothing was written"
            raise Broken("FILES_PATH_UNSAFE", what, fix="leave it out with a narrower glob, or remove the row")
        if file.path in seen:
            what = f"`{table}` has the path `{file.path}` twice; nothing was written"
            raise Broken("FILES_PATH_TWICE", what, fix="put the file again: it replaces both")
        seen.add(file.path)


def present(outlet: Outlet, files: Iterable[Wanted], overwrite: bool = False) -> set[str]:
    """Return the paths that are on disk already with the right contents; raise for others, unless `overwrite`."""
    same, other = set(), []
    for file in files:
        there = outlet.sha256(file.path, file.size)
        if there is not None and there == file.sha256:
            same.add(file.path)
        elif there is not None and not overwrite:
            other.append(file.path)
    if other:
        what = f"{outlet.root} already has {listed(sorted(other))} with other contents; nothing was written"
        raise Mistake("FILES_EXISTS", what, fix="choose another folder, or pass --overwrite")
    return same


def _contents(
    store: "Store", metadata: TableMetadata, wanted: dict[_Place, list[Wanted]], skipped: set[str]
) -> Iterator[tuple[Wanted, Iterator[bytes]]]:
    for (part, group), files in wanted.items():
        inline = {file.path: file for file in files if file.blob is None and file.path not in skipped}
        if inline:
            with reading(store, metadata, part) as reader:
                for rows in reader.read(group, ("path", "content"), _BATCH_ROWS):
                    for row, path in enumerate(values(rows, "path")):
                        if path in inline:
                            content = rows["content"][row].as_py()
                            yield inline[path], iter(() if content is None else (content,))
        for file in files:
            if file.blob is not None and file.path not in skipped:
                yield file, _blob(store, file)


def _blob(store: "Store", file: Wanted) -> Iterator[bytes]:
    assert file.blob is not None
    if sha256_of(file.blob) is None:  # a row may say anything; only names of blobs are opened
        raise damaged(file.path, file.blob, "are not a blob of this lake")
    try:
        yield from chunks(store, file.blob)
    except FileNotFoundError as error:
        raise damaged(file.path, file.blob, "are gone") from error
    except OSError as error:
        raise damaged(file.path, file.blob, f"can't be read: {error.strerror or error}") from error


def verified(file: Wanted, contents: Iterator[bytes]) -> Iterator[bytes]:
    """Yield contents, and raise at their end where they are not what the row promises."""
    digest, size = hashlib.sha256(), 0
    for chunk in contents:
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    if file.sha256 is None:
        raise damaged(file.path, file.blob, "have no checksum")
    if digest.hexdigest() != file.sha256:
        raise damaged(file.path, file.blob, "have another checksum than their row")
    if size != file.size:
        raise damaged(file.path, file.blob, f"have {size} bytes, their row says {file.size}")
