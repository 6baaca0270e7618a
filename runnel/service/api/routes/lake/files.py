"""Routes for files in tables: list, download, upload and remove."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel

from runnel import temp_dirs
from runnel.errors import Mistake, close_hint
from runnel.lake.store import Store
from runnel.names import TableName, quote_value
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.etags import set_etag
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import (
    DEFAULT_LIMIT,
    NO_NUL,
    BranchQuery,
    Cursor,
    Limit,
    Ref,
    RefQuery,
    TablePath,
    Text,
)
from runnel.service.api.problem_json import error_responses, to_problem_response
from runnel.service.api.streamed_response import DownloadRange, StreamedResponse
from runnel.service.api.uploads import check_upload_path, receive_body, unpack_archive

router = APIRouter(tags=["files"])
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_BINARY_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
GlobQuery = Annotated[Ref | None, Query(description="Which files: `*` stays within a folder, `**` crosses folders.")]
RemovedGlobQuery = Annotated[
    Text, Query(description="Which files: `*` stays within a folder, `**` crosses folders.", examples=["2026/*"])
]
FilePath = Annotated[str, PathParameter(min_length=1, max_length=2000, pattern=NO_NUL, description="The file's path.")]
MessageQuery = Annotated[Text | None, Query(description="The message of the commit.")]


class FileView(BaseModel):
    """A file of a table; fields that another engine did not write are null."""

    path: str
    size: int | None
    modified_at: str | None
    sha256: str | None


class UploadResultView(BaseModel):
    """What an upload did; `commit` is null if the table already held the same contents."""

    table: str
    commit: str | None
    added: int
    replaced: int
    unchanged: int
    bytes: int


class RemovalView(BaseModel):
    """What a removal did; `commit` is null if another request had removed the same files meanwhile."""

    table: str
    commit: str | None
    removed: int
    bytes: int
    paths: list[str]


@router.get(
    "/files/{table}", response_model=ListPage[FileView], summary="List files", responses=error_responses(304, 404)
)
def list_files(
    request: Request,
    response: Response,
    lake: LakeDependency,
    table: TablePath,
    glob: GlobQuery = None,
    at: RefQuery = "main",
    limit: Limit = DEFAULT_LIMIT,
    after: Cursor = None,
) -> dict[str, Any]:
    """Return the files of a table by path."""
    from runnel.lake.files.ls import list_files

    commit, name = lake.store.commit(at), TableName.parse(table)
    table_files = list_files(lake.store, name, glob, at=commit.id)
    set_etag(request, response, commit.id)
    response.headers["Runnel-At"] = commit.id
    files_after = (file for file in table_files if after is None or file.path > after)
    return build_page(list(islice(files_after, limit + 1)), limit, lambda file: str(file.path), _file_to_json)


@router.get(
    "/files/{table}/{path:path}",
    summary="Download a file",
    response_class=StreamedResponse,
    responses={
        **error_responses(304, 404, 416),
        200: {"content": _BINARY, "description": "The contents, verified"},
        206: {"content": _BINARY, "description": "The part that the header `Range` names"},
    },
)
def download_file(
    request: Request, lake: LakeDependency, table: TablePath, path: FilePath, at: RefQuery = "main"
) -> Response:
    """Return the contents of a file at a version, or a range of them; if they are damaged, the answer is cut off."""
    from runnel.lake.files.get import open_file

    commit, name, tagged = lake.store.commit(at), TableName.parse(table), Response()
    _check_file_exists(lake.store, name, path, commit.id)
    set_etag(request, tagged, commit.id)
    with ExitStack() as opened:
        file, chunks = opened.enter_context(open_file(lake.store, name, path, at=commit.id))
        requested = None if "if-range" in request.headers else request.headers.get("range")  # our ETags are weak
        download_range = DownloadRange.parse(requested, file.size or 0)
        if download_range is not None and not download_range.is_satisfiable:
            return _refuse_range(path, download_range)
        first_chunk = next(chunks, b"")  # an error in it is answered as one
        headers = {key: tagged.headers[key] for key in ("etag", "cache-control")}
        headers["Content-Disposition"] = _attachment(path.rpartition("/")[2])
        close = opened.pop_all().close
    return _stream_file(chain([first_chunk], chunks), close, file.size or 0, download_range, headers)


@router.put(
    "/files/{table}/{path:path}",
    response_model=UploadResultView,
    summary="Upload a file",
    responses=error_responses(404, 409, 413),
    openapi_extra={"requestBody": {"content": _BINARY, "required": True}},
)
async def upload_file(
    request: Request,
    lake: LakeDependency,
    store: StoreDependency,
    table: TablePath,
    path: FilePath,
    branch: BranchQuery = "main",
    message: MessageQuery = None,
) -> dict[str, Any]:
    """Put a file into a table as one commit; the table is created if it does not exist. The file is durable then."""
    name = TableName.parse(table)
    check_upload_path(path)
    folder = Path(temp_dirs.create("put"))
    try:
        file = folder / path.rpartition("/")[2]
        await receive_body(request, file, lake.settings.max_upload_bytes)
        return await to_thread.run_sync(lambda: _put_path(store, name, file, path, branch, message))
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


@router.put(
    "/files/{table}",
    response_model=UploadResultView,
    summary="Upload several files",
    responses=error_responses(404, 409, 413),
    openapi_extra={"requestBody": {"content": {"application/x-tar": _BINARY_SCHEMA}, "required": True}},
)
async def upload_archive(
    request: Request,
    lake: LakeDependency,
    store: StoreDependency,
    table: TablePath,
    branch: BranchQuery = "main",
    message: MessageQuery = None,
) -> dict[str, Any]:
    """Put the files of a tar archive into a table, all in one commit. The files are durable then."""
    name = TableName.parse(table)
    folder = Path(temp_dirs.create("put"))
    try:
        await receive_body(request, folder / "archive.tar", lake.settings.max_upload_bytes)
        return await to_thread.run_sync(lambda: _put_archive(store, name, folder, branch, message))
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


@router.delete(
    "/files/{table}", response_model=RemovalView, summary="Remove files", responses=error_responses(400, 404, 409, 413)
)
def remove_files(
    store: StoreDependency,
    table: TablePath,
    glob: RemovedGlobQuery,
    branch: BranchQuery = "main",
    message: MessageQuery = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Remove the files that a glob matches, as one commit; older commits keep them."""
    from runnel.lake.files.remove import remove_files

    result = remove_files(store, TableName.parse(table), [glob], branch=branch, message=message)
    commit = result.commit.id if result.commit else None
    return {
        "table": table,
        "commit": commit,
        "removed": len(result.paths),
        "bytes": result.bytes,
        "paths": list(result.paths),
    }


def _put_archive(store: Store, table: TableName, folder: Path, branch: str, message: str | None) -> dict[str, Any]:
    archive, files = folder / "archive.tar", folder / "files"
    unpack_archive(archive, files)
    archive.unlink()
    return _put_path(store, table, files, "", branch, message)


def _put_path(
    store: Store, table: TableName, file: Path, path: str, branch: str, message: str | None
) -> dict[str, Any]:
    from runnel.lake.files.put import put_files

    result = put_files(store, table, [file], branch=branch, prefix=path.rpartition("/")[0], message=message)
    counts = {"added": result.added, "replaced": result.replaced, "unchanged": result.unchanged, "bytes": result.bytes}
    return {"table": str(table), "commit": result.commit.id if result.commit else None, **counts}


def _check_file_exists(store: Store, table: TableName, path: str, commit: str) -> None:
    """Raise if there is no such file; a folder doesn't count."""
    from runnel.lake.files.ls import list_files
    from runnel.lake.files.paths import escape_glob, find_nearest_path

    if any(file.path == path for file in list_files(store, table, escape_glob(path), at=commit)):
        return
    suggestion = find_nearest_path(path, (file.path for file in list_files(store, table, at=commit)))
    what = f"there is no file {quote_value(path)} in `{table}`" + close_hint(suggestion)
    raise Mistake("FILE_UNKNOWN", what, fix=f"`runnel ls {table}` lists them")


def _stream_file(
    chunks: Iterator[bytes],
    close: Callable[[], object],
    size: int,
    download_range: DownloadRange | None,
    headers: dict[str, str],
) -> StreamedResponse:
    headers |= {"Accept-Ranges": "bytes", "Content-Length": str(size)}
    media_type = "application/octet-stream"
    if download_range is None:
        return StreamedResponse(chunks, close, media_type=media_type, headers=headers)
    headers |= {
        "Content-Length": str(download_range.end - download_range.start),
        "Content-Range": f"bytes {download_range.start}-{download_range.end - 1}/{size}",
    }
    return StreamedResponse(
        download_range.select(chunks), close, media_type=media_type, headers=headers, status_code=206
    )


def _refuse_range(path: str, download_range: DownloadRange) -> Response:
    what = f"{quote_value(path)} has {download_range.size} bytes, and the header `Range` names none of them"
    error = Mistake("RANGE_BEYOND_END", what, fix="leave out the header, or choose an earlier start")
    return to_problem_response(error, 416, {"Content-Range": f"bytes */{download_range.size}"})


def _attachment(name: str) -> str:
    """Return the header that lets a browser save a file under its name.

    >>> _attachment("a.csv"), _attachment("a b.csv")
    ('attachment; filename="a.csv"', "attachment; filename*=utf-8''a%20b.csv")
    """
    quoted_name = quote(name, safe="")
    return f'attachment; filename="{name}"' if quoted_name == name else f"attachment; filename*=utf-8''{quoted_name}"


def _file_to_json(file: Any) -> dict[str, Any]:
    modified_at = file.modified_at.isoformat() if file.modified_at else None
    return {"path": file.path, "size": file.size, "modified_at": modified_at, "sha256": file.sha256}
