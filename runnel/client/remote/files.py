"""Put files into a lake behind a service in one archive and one commit; get them one by one, verified; remove them."""

import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from runnel.client.remote.json_values import parse_commit, parse_file
from runnel.lake.files.disk_paths import DiskFile, collect_files
from runnel.lake.files.get import GetResult, RequestedFile, check_paths, find_unchanged, no_match_error, verify_contents
from runnel.lake.files.put import PutResult
from runnel.lake.files.remove import RemoveResult
from runnel.lake.files.safe_folder import SafeFolder

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.lake.files.ls import FileRow
    from runnel.names import TableName

_CHUNK_BYTES = 2**20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def put(connection: "ServiceConnection", table: "TableName", paths: list[Path], branch: str, prefix: str) -> PutResult:
    """Put files and folders into a file table, in one commit."""
    files = collect_files(paths, prefix)
    with tempfile.TemporaryFile(prefix="runnel-put-") as archive:
        _pack_files(archive, files)

        def rewind_archive() -> IO[bytes]:
            archive.seek(0)
            return archive

        headers = {"Content-Type": "application/x-tar"}
        body = connection.send(
            "PUT", f"/files/{table}", params={"branch": branch}, data=rewind_archive, headers=headers
        ).json()
    commit = parse_commit(connection.get(f"/commits/{body['commit']}")) if body["commit"] else None
    return PutResult(commit, body["added"], body["replaced"], body["unchanged"], body["bytes"])


def ls(connection: "ServiceConnection", table: "TableName", glob: str | None, at: str) -> "Iterator[FileRow]":
    """Yield the files of a table that match a glob, by path."""
    for item in connection.iter_items(f"/files/{table}", "after", glob=glob, at=at):
        yield parse_file(item)


def rm(connection: "ServiceConnection", table: "TableName", glob: str, branch: str) -> RemoveResult:
    """Remove the files that a glob matches from a file table, in one commit."""
    body = connection.delete(f"/files/{table}", glob=glob, branch=branch)
    commit = parse_commit(connection.get(f"/commits/{body['commit']}")) if body["commit"] else None
    return RemoveResult(commit, tuple(body["paths"]), body["bytes"])


def get(connection: "ServiceConnection", table: "TableName", out: Path, glob: str | None, at: str) -> GetResult:
    """Get files out of a file table into a folder, each one verified."""
    response = connection.send("GET", f"/files/{table}", params={"at": at, "limit": 1})
    commit = response.headers["Runnel-At"]  # the same commit for all files
    files = [
        RequestedFile(row.path, row.size, row.sha256, _microseconds(row), None)
        for row in ls(connection, table, glob, commit)
    ]
    if not files:
        raise no_match_error(table, glob, (row.path for row in ls(connection, table, None, commit)))
    check_paths(table, files)
    folder = SafeFolder(out)
    present_paths = find_unchanged(folder, files)
    missing_files = [file for file in files if file.path not in present_paths]
    for file in missing_files:
        folder.write_file(
            file.path, verify_contents(file, _iter_contents(connection, table, file.path, commit)), file.modified_at
        )
    return GetResult(len(missing_files), len(present_paths), sum(file.size or 0 for file in missing_files))


def _iter_contents(connection: "ServiceConnection", table: "TableName", path: str, commit: str) -> Iterator[bytes]:
    url_path = f"/files/{table}/{quote(path)}"
    with connection.send("GET", url_path, params={"at": commit}, stream=True) as response:
        try:
            yield from response.iter_content(_CHUNK_BYTES)
        except OSError as error:  # includes errors of requests: the connection was lost while reading
            raise connection.unreachable_error(error) from error


def _pack_files(archive: IO[bytes], files: list[DiskFile]) -> None:
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            member = tar.gettarinfo(file.disk_path, file.path)
            member.type = tarfile.REGTYPE  # a file with several hard links is packed as a regular file
            member.mode, member.uid, member.gid, member.uname, member.gname = 0o600, 0, 0, "", ""
            with Path(file.disk_path).open("rb") as stream:
                tar.addfile(member, stream)


def _microseconds(file: "FileRow") -> int | None:
    if file.modified_at is None:
        return None
    return (file.modified_at - _EPOCH) // timedelta(microseconds=1)
