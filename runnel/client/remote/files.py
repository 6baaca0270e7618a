"""Files in and out of a lake behind a service: sent in one archive, so in one commit; taken one by one, verified."""

import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from runnel.client.remote.json_values import commit_of, file_of
from runnel.lake.files.disk_paths import Found, collect
from runnel.lake.files.get import Got, Wanted, check, no_match, present, verified
from runnel.lake.files.put import Put
from runnel.lake.files.safe_folder import Outlet

if TYPE_CHECKING:
    from runnel.client.remote.connection import Connection
    from runnel.lake.files.ls import FileRow
    from runnel.names import TableName

_CHUNK_BYTES = 2**20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def put(connection: "Connection", table: "TableName", paths: list[Path], branch: str, prefix: str) -> Put:
    """Put files and folders into a file table, in one commit."""
    found = collect(paths, prefix)
    with tempfile.TemporaryFile(prefix="runnel-put-") as archive:
        _pack(archive, found)

        def rewound() -> IO[bytes]:
            archive.seek(0)
            return archive

        headers = {"Content-Type": "application/x-tar"}
        done = connection.ask("PUT", f"/files/{table}", params={"branch": branch}, data=rewound, headers=headers).json()
    commit = commit_of(connection.get(f"/commits/{done['commit']}")) if done["commit"] else None
    return Put(commit, done["added"], done["replaced"], done["unchanged"], done["bytes"])


def ls(connection: "Connection", table: "TableName", glob: str | None, at: str) -> "Iterator[FileRow]":
    """Yield the files of a table that match a glob, by path."""
    for one in connection.pages(f"/files/{table}", "after", glob=glob, at=at):
        yield file_of(one)


def get(connection: "Connection", table: "TableName", out: Path, glob: str | None, at: str) -> Got:
    """Get files out of a file table into a folder, each one verified."""
    first = connection.ask("GET", f"/files/{table}", params={"at": at, "limit": 1})
    commit = first.headers["Runnel-At"]  # one version for all of them
    wanted = [
        Wanted(one.path, one.size, one.sha256, _microseconds(one), None) for one in ls(connection, table, glob, commit)
    ]
    if not wanted:
        raise no_match(table, glob, (one.path for one in ls(connection, table, None, commit)))
    check(table, wanted)
    outlet = Outlet(out)
    same = present(outlet, wanted)
    rest = [file for file in wanted if file.path not in same]
    for file in rest:
        outlet.write(file.path, verified(file, _contents(connection, table, file.path, commit)), file.modified_at)
    return Got(len(rest), len(same), sum(file.size or 0 for file in rest))


def _contents(connection: "Connection", table: "TableName", path: str, commit: str) -> Iterator[bytes]:
    place = f"/files/{table}/{quote(path)}"
    with connection.ask("GET", place, params={"at": commit}, stream=True) as answer:
        try:
            yield from answer.iter_content(_CHUNK_BYTES)
        except OSError as error:  # also of requests: the connection was lost in the middle
            raise connection.lost(error) from error


def _pack(archive: IO[bytes], found: list[Found]) -> None:
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in found:
            member = tar.gettarinfo(file.file, file.path)
            member.type = tarfile.REGTYPE  # one that has a second link on this disk is a file all the same
            member.mode, member.uid, member.gid, member.uname, member.gname = 0o600, 0, 0, "", ""
            with Path(file.file).open("rb") as stream:
                tar.addfile(member, stream)


def _microseconds(file: "FileRow") -> int | None:
    if file.modified_at is None:
        return None
    return (file.modified_at - _EPOCH) // timedelta(microseconds=1)
