"""What a lake behind a service holds, and its history: the face of `runnel.client.lake_reader`, over HTTP."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote, urlsplit

from runnel.client.remote import json_values
from runnel.client.remote.connection import ServiceConnection
from runnel.client.remote.token import find_token
from runnel.errors import Mistake
from runnel.names import TableName, quote_value

if TYPE_CHECKING:
    from runnel.client.json_views.check import TableChecks
    from runnel.client.json_views.table import TableFacts
    from runnel.connect.load.load import LoadResult
    from runnel.lake.diff.lake_diff import LakeDiff
    from runnel.lake.files.get import GetResult
    from runnel.lake.files.ls import FileRow
    from runnel.lake.files.put import PutResult
    from runnel.lake.files.remove import RemoveResult
    from runnel.lake.flow_state.runs import Run
    from runnel.lake.history.branches import Branch
    from runnel.lake.history.commits import Commit
    from runnel.lake.history.tags import Tag
    from runnel.lake.provenance.commit_files import CommitFile
    from runnel.lake.provenance.row_provenance import RowProvenance
    from runnel.lake.provenance.table_provenance import Provenance


class RemoteLakeReader:
    """Access to the contents of a lake behind a service; each method sends one request or a few."""

    def __init__(self, url: str, token: str | None = None, overrides: Sequence[str] = ()) -> None:
        self.url = _normalize_url(url)
        self.overrides = tuple(overrides)
        self._connection = ServiceConnection(self.url, find_token(self.url, token))
        self.project = str(self._connection.check_service()["project"])

    def tables(self, *, at: str = "main") -> list[str]:
        """Return the names of the tables at a ref."""
        return [item["table"] for item in self._connection.iter_items("/tables", "after", at=at)]

    def table(self, name: str, *, at: str = "main", versions: int = 5) -> "TableFacts":
        """Return what is known of a table at a ref: size, columns, newest versions."""
        from runnel.client.json_views.table import TableFacts

        return TableFacts.from_json(self._connection.get(f"/tables/{TableName.parse(name)}", at=at, versions=versions))

    def checks(self, table: str, *, at: str = "main") -> "TableChecks":
        """Return the check results of a table at a ref, and the newest run that was to compute it."""
        from runnel.client.json_views.check import TableChecks

        return TableChecks.from_json(self._connection.get(f"/tables/{TableName.parse(table)}/checks", at=at))

    def log(self, ref: str = "main", *, table: str | None = None, limit: int | None = None) -> "list[Commit]":
        """Return the history of a ref, newest first."""
        name = str(TableName.parse(table)) if table else None
        items = self._connection.iter_items("/commits", "before", limit, ref=ref, table=name)
        return [json_values.parse_commit(item) for item in items]

    def branch(self, name: str, *, at: str = "main") -> "Branch":
        """Create a branch."""
        return json_values.parse_branch(self._connection.post("/branches", {"name": name, "from": at}))

    def branches(self) -> "list[Branch]":
        """Return all branches, main first."""
        return [json_values.parse_branch(item) for item in self._connection.get("/branches")["items"]]

    def tag(self, name: str, ref: str = "main") -> "Tag":
        """Give a commit a name that keeps it for ever."""
        return json_values.parse_tag(self._connection.post("/tags", {"name": name, "ref": ref}))

    def tags(self) -> "list[Tag]":
        """Return all tags by name."""
        return [json_values.parse_tag(item) for item in self._connection.get("/tags")["items"]]

    def diff(self, a: str, b: str, table: str | None = None) -> "LakeDiff":
        """Compare two versions of the lake."""
        from runnel.lake.diff.lake_diff import LakeDiff

        name = str(TableName.parse(table)) if table else None
        body = self._connection.get("/diff", a=a, b=b, table=name)
        before, after = (self._get_commit(body[side]) for side in ("before", "after"))
        return LakeDiff(before, after, tuple(json_values.parse_table_diff(item) for item in body["tables"]))

    def revert(self, commit: str, *, branch: str = "main") -> "Commit":
        """Undo a commit with a new one."""
        body = self._connection.post(f"/commits/{quote(commit, safe='')}/revert", {"branch": branch})
        return self._get_commit(body["commit"])

    def load(self, table: str, *files: str | Path, branch: str = "main", **options: Any) -> "LoadResult":
        """Refuse: loading files needs the project's folder."""
        raise self._unsupported_error(
            "load", f"`runnel load {table} FILE...` in the project's folder; lake.put stores files"
        )

    def put(self, table: str, *paths: str | Path, branch: str = "main", prefix: str = "") -> "PutResult":
        """Put files and folders into a file table, in one commit."""
        from runnel.client.remote.files import put

        return put(self._connection, TableName.parse(table), [Path(path) for path in paths], branch, prefix)

    def get(self, table: str, out: str | Path, glob: str | None = None, *, at: str = "main") -> "GetResult":
        """Get files out of a file table into a folder, each one verified."""
        from runnel.client.remote.files import get

        return get(self._connection, TableName.parse(table), Path(out), glob, at)

    def ls(self, table: str, glob: str | None = None, *, at: str = "main") -> "list[FileRow]":
        """Return the files of a file table."""
        from runnel.client.remote.files import ls

        return list(ls(self._connection, TableName.parse(table), glob, at))

    def rm(self, table: str, glob: str, *, branch: str = "main") -> "RemoveResult":
        """Remove the files that a glob matches from a file table, in one commit; older commits keep them."""
        from runnel.client.remote.files import rm

        return rm(self._connection, TableName.parse(table), glob, branch)

    @overload
    def why(self, table: str, *, at: str = "main") -> "Provenance": ...
    @overload
    def why(self, table: str, *, row: str, at: str = "main") -> "RowProvenance": ...
    def why(self, table: str, *, row: str | None = None, at: str = "main") -> "Provenance | RowProvenance":
        """Return where the contents of a table come from: what computed it, from which inputs, with which code.

        With `row`, a condition such as "order_id = 7", return where the rows that match come from.
        """
        from runnel.client.remote.provenance import fetch_row_provenance, fetch_why

        name = TableName.parse(table)
        return (
            fetch_why(self._connection, name, at)
            if row is None
            else fetch_row_provenance(self._connection, name, row, at)
        )

    def files_of(self, commit: str) -> "list[CommitFile]":
        """Return the files that a commit ingested or loaded, with their sizes and rows."""
        from runnel.lake.provenance.commit_files import CommitFile

        body = self._connection.get(f"/commits/{quote(commit, safe='')}/files")
        return [CommitFile(**item) for item in body["items"]]

    def runs(self, run: str | None = None, *, limit: int | None = None) -> "list[Run]":
        """Return runs, newest first, or only the given run."""
        if run is not None:
            return [json_values.parse_run(self._connection.get(f"/runs/{quote(run, safe='')}"))]
        return [
            json_values.parse_run(item) for item in islice(self._connection.iter_items("/runs", "before", limit), limit)
        ]

    def _get_commit(self, commit: str) -> "Commit":
        return json_values.parse_commit(self._connection.get(f"/commits/{commit}"))

    def _unsupported_error(self, operation: str, instead: str) -> Mistake:
        """Return the error for an operation that needs the project's folder."""
        message = f"`{operation}` needs a project's folder, but this lake is served by {self.url}"
        return Mistake("REMOTE_UNSUPPORTED", message, fix=instead)


def _normalize_url(url: str) -> str:
    """Return a service's URL without trailing slash and API prefix; raise if it is invalid."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or parts.username:
        fix = "write http://HOST:PORT or https://HOST; the token goes into token="
        raise Mistake("OPEN_ADDRESS", f"{quote_value(url)} is not the address of a service", fix=fix)
    return url.rstrip("/").removesuffix("/api/v1")
