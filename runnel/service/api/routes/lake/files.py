"""Files in tables: listed, downloaded, uploaded."""

import shutil
import tarfile
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse
from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect

from runnel import temp_dirs
from runnel.errors import Mistake
from runnel.lake.store import Store
from runnel.names import TableName, shown
from runnel.service.api.dependencies import LakeHere, StoreHere
from runnel.service.api.etags import tag
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, NO_NUL, At, Branch, Cursor, Limit, Ref, TablePath, Text
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["files"])
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_BINARY_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
_NAME_BYTES = 255
Globbed = Annotated[Ref | None, Query(description="Which files: `*` stays within a folder, `**` crosses folders.")]
Where = Annotated[str, PathParameter(min_length=1, max_length=2000, pattern=NO_NUL, description="The file's path.")]
Message = Annotated[Text | None, Query(description="What the commit says.")]


class FileShown(BaseModel):
    """A file of a table; what another engine left out is null."""

    path: str
    size: int | None
    modified_at: str | None
    sha256: str | None


class PutDone(BaseModel):
    """What an upload did; `commit` is null where the same contents were there."""

    table: str
    commit: str | None
    added: int
    replaced: int
    unchanged: int
    bytes: int


@router.get("/files/{table}", response_model=Page[FileShown], summary="List files", responses=problems(304, 404))
def files(
    request: Request,
    response: Response,
    lake: LakeHere,
    table: TablePath,
    glob: Globbed = None,
    at: At = "main",
    limit: Limit = DEFAULT,
    after: Cursor = None,
) -> dict[str, Any]:
    """Return the files of a table by path."""
    from runnel.lake.files.ls import ls

    commit, name = lake.store.commit(at), TableName.parse(table)
    found = ls(lake.store, name, glob, at=commit.id)
    tag(request, response, commit.id)
    response.headers["Runnel-At"] = commit.id
    wanted = (one for one in found if after is None or one.path > after)
    return page(list(islice(wanted, limit + 1)), limit, lambda one: str(one.path), _json)


@router.get(
    "/files/{table}/{path:path}",
    summary="Download a file",
    response_class=FileResponse,
    responses={**problems(304, 404), 200: {"content": _BINARY, "description": "The contents, verified"}},
)
def download(request: Request, lake: LakeHere, table: TablePath, path: Where, at: At = "main") -> Response:
    """Return the contents of a file at a version."""
    from runnel.lake.files.get import get

    commit, name, headers = lake.store.commit(at), TableName.parse(table), Response()
    _check(lake.store, name, path, commit.id)
    tag(request, headers, commit.id)
    folder = Path(temp_dirs.path("get"))
    try:
        get(lake.store, name, _exactly(path), folder, at=commit.id)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    told = {**{key: headers.headers[key] for key in ("etag", "cache-control")}, "X-Content-Type-Options": "nosniff"}
    gone = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    kind = "application/octet-stream"
    return FileResponse(folder / path, media_type=kind, headers=told, filename=path.rpartition("/")[2], background=gone)


@router.put(
    "/files/{table}/{path:path}",
    response_model=PutDone,
    summary="Upload a file",
    responses=problems(404, 409),
    openapi_extra={"requestBody": {"content": _BINARY, "required": True}},
)
async def upload(
    request: Request,
    store: StoreHere,
    table: TablePath,
    path: Where,
    branch: Branch = "main",
    message: Message = None,
) -> dict[str, Any]:
    """Put a file into a table, which is created where it does not exist, as one commit; then it is safe."""
    name = TableName.parse(table)
    _allowed(path)
    folder = Path(temp_dirs.path("put"))
    try:
        file = folder / path.rpartition("/")[2]
        await _received(request, file)
        return await to_thread.run_sync(lambda: _put(store, name, file, path, branch, message))
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


@router.put(
    "/files/{table}",
    response_model=PutDone,
    summary="Upload several files",
    responses=problems(404, 409),
    openapi_extra={"requestBody": {"content": {"application/x-tar": _BINARY_SCHEMA}, "required": True}},
)
async def upload_all(
    request: Request, store: StoreHere, table: TablePath, branch: Branch = "main", message: Message = None
) -> dict[str, Any]:
    """Put the files of a tar archive into a table, all in one commit; then they are safe."""
    name = TableName.parse(table)
    folder = Path(temp_dirs.path("put"))
    try:
        await _received(request, folder / "archive.tar")
        return await to_thread.run_sync(lambda: _put_all(store, name, folder, branch, message))
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


async def _received(request: Request, file: Path) -> None:
    """Write the body of a request to a file."""
    try:
        with file.open("wb") as target:
            async for chunk in request.stream():
                await to_thread.run_sync(target.write, chunk)
    except ClientDisconnect as error:
        raise Mistake("REQUEST_CUT", "the upload ended in the middle", fix="send it again") from error


def _put_all(store: Store, table: TableName, folder: Path, branch: str, message: str | None) -> dict[str, Any]:
    files = folder / "files"
    try:
        with tarfile.open(folder / "archive.tar", "r:") as archive:
            for member in archive:
                if not member.isreg():
                    what = f"{shown(member.name)} of the archive is no file"
                    raise Mistake("FILES_ARCHIVE", what, fix="send files only, each with its whole path")
                _allowed(member.name)
                archive.extract(member, files, filter="data")
    except (tarfile.TarError, UnicodeError, ValueError) as error:
        what = f"the body is no tar archive: {error}"
        raise Mistake("FILES_ARCHIVE", what, fix="send an archive that is not compressed") from error
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        what = "a path of the archive is both a file and a folder"
        raise Mistake("FILES_ARCHIVE", what, fix="send each file once, with its whole path") from error
    (folder / "archive.tar").unlink()
    files.mkdir(exist_ok=True)
    return _put(store, table, files, "", branch, message)


def _put(store: Store, table: TableName, file: Path, path: str, branch: str, message: str | None) -> dict[str, Any]:
    from runnel.lake.files.put import put

    done = put(store, table, [file], branch=branch, prefix=path.rpartition("/")[0], message=message)
    counts = {"added": done.added, "replaced": done.replaced, "unchanged": done.unchanged, "bytes": done.bytes}
    return {"table": str(table), "commit": done.commit.id if done.commit else None, **counts}


def _allowed(path: str) -> None:
    """Refuse a path that the lake, or a disk that it passes through, could not hold."""
    from runnel.lake.files.paths import checked

    if any(len(name.encode()) > _NAME_BYTES for name in checked(path).split("/")):
        what = f"a name in {shown(path)} is too long"
        raise Mistake("FILES_PATH", what, fix=f"choose one of at most {_NAME_BYTES} bytes")


def _check(store: Store, table: TableName, path: str, commit: str) -> None:
    """Raise where there is no such file; a folder is none."""
    from runnel.lake.files.ls import ls
    from runnel.lake.files.paths import nearest_path

    if any(one.path == path for one in ls(store, table, _exactly(path), at=commit)):
        return
    close = nearest_path(path, (one.path for one in ls(store, table, at=commit)))
    what = f"there is no file {shown(path)} in `{table}`" + (f"; close: `{close}`" if close else "")
    raise Mistake("FILE_UNKNOWN", what, fix=f"`runnel ls {table}` lists them")


def _exactly(path: str) -> str:
    """Return the glob that matches just this path, and nothing below it.

    >>> _exactly("in/a*.csv"), _exactly("in/a.csv")
    ('in/a[*].csv', '[i]n/a.csv')
    """
    escaped = "".join(f"[{one}]" if one in "*?[" else one for one in path)
    at = next((at for at, one in enumerate(path) if one not in "!]/"), None)
    if escaped != path or at is None:
        return escaped
    return f"{path[:at]}[{path[at]}]{path[at + 1 :]}"


def _json(one: Any) -> dict[str, Any]:
    modified_at = one.modified_at.isoformat() if one.modified_at else None
    return {"path": one.path, "size": one.size, "modified_at": modified_at, "sha256": one.sha256}
