"""What a lake behind a service holds, and its history: the face of `runnel.client.lake_reader`, over HTTP."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from runnel.client.remote import json_values
from runnel.client.remote.connection import Connection
from runnel.client.remote.token import token_for
from runnel.errors import Mistake
from runnel.names import TableName, shown

if TYPE_CHECKING:
    from runnel.client.json_views.check import TableChecks
    from runnel.client.json_views.table import TableFacts
    from runnel.connect.load.load import Loaded
    from runnel.lake.diff.lake_diff import Diff
    from runnel.lake.files.get import Got
    from runnel.lake.files.ls import FileRow
    from runnel.lake.files.put import Put
    from runnel.lake.flow_state.provenance import Why
    from runnel.lake.flow_state.runs import Run
    from runnel.lake.history.branches import Branch
    from runnel.lake.history.commits import Commit
    from runnel.lake.history.tags import Tag


class RemoteContents:
    """The contents of a lake behind a service; thin, each method one request or a few."""

    def __init__(self, url: str, token: str | None = None, overrides: Sequence[str] = ()) -> None:
        self.url = _checked(url)
        self.overrides = tuple(overrides)
        self._connection = Connection(self.url, token_for(self.url, token))
        self.project = str(self._connection.check()["project"])

    def tables(self, *, at: str = "main") -> list[str]:
        """Return the names of the tables at a ref."""
        return [one["table"] for one in self._connection.pages("/tables", "after", at=at)]

    def table(self, name: str, *, at: str = "main", versions: int = 5) -> "TableFacts":
        """Return what is known of a table at a ref: size, columns, newest versions."""
        from runnel.client.json_views.table import TableFacts

        return TableFacts.of(self._connection.get(f"/tables/{TableName.parse(name)}", at=at, versions=versions))

    def checks(self, table: str, *, at: str = "main") -> "TableChecks":
        """Return how the checks of a table at a ref went, and how the newest run did that was to make it."""
        from runnel.client.json_views.check import TableChecks

        return TableChecks.of(self._connection.get(f"/tables/{TableName.parse(table)}/checks", at=at))

    def log(self, ref: str = "main", *, table: str | None = None, limit: int | None = None) -> "list[Commit]":
        """Return the history of a ref, newest first."""
        name = str(TableName.parse(table)) if table else None
        found = self._connection.pages("/commits", "before", limit, ref=ref, table=name)
        return [json_values.commit_of(one) for one in found]

    def branch(self, name: str, *, at: str = "main") -> "Branch":
        """Create a branch."""
        return json_values.branch_of(self._connection.post("/branches", {"name": name, "from": at}))

    def branches(self) -> "list[Branch]":
        """Return all branches, main first."""
        return [json_values.branch_of(one) for one in self._connection.get("/branches")["items"]]

    def tag(self, name: str, ref: str = "main") -> "Tag":
        """Give a commit a name that keeps it for ever."""
        return json_values.tag_of(self._connection.post("/tags", {"name": name, "ref": ref}))

    def tags(self) -> "list[Tag]":
        """Return all tags by name."""
        return [json_values.tag_of(one) for one in self._connection.get("/tags")["items"]]

    def diff(self, a: str, b: str, table: str | None = None) -> "Diff":
        """Compare two versions of the lake."""
        from runnel.lake.diff.lake_diff import Diff

        name = str(TableName.parse(table)) if table else None
        found = self._connection.get("/diff", a=a, b=b, table=name)
        before, after = (self._commit(found[side]) for side in ("before", "after"))
        return Diff(before, after, tuple(json_values.table_diff_of(one) for one in found["tables"]))

    def revert(self, commit: str, *, branch: str = "main") -> "Commit":
        """Undo a commit with a new one."""
        done = self._connection.post(f"/commits/{quote(commit, safe='')}/revert", {"branch": branch})
        return self._commit(done["commit"])

    def load(self, table: str, *files: str | Path, branch: str = "main", **options: Any) -> "Loaded":
        """Refuse: files are loaded where the project is."""
        raise self._here_only("load", f"`runnel load {table} FILE...` in the project's folder; lake.put stores files")

    def put(self, table: str, *paths: str | Path, branch: str = "main", prefix: str = "") -> "Put":
        """Put files and folders into a file table, in one commit."""
        from runnel.client.remote.files import put

        return put(self._connection, TableName.parse(table), [Path(path) for path in paths], branch, prefix)

    def get(self, table: str, out: str | Path, glob: str | None = None, *, at: str = "main") -> "Got":
        """Get files out of a file table into a folder, each one verified."""
        from runnel.client.remote.files import get

        return get(self._connection, TableName.parse(table), Path(out), glob, at)

    def ls(self, table: str, glob: str | None = None, *, at: str = "main") -> "list[FileRow]":
        """Return the files of a file table."""
        from runnel.client.remote.files import ls

        return list(ls(self._connection, TableName.parse(table), glob, at))

    def why(self, table: str, *, at: str = "main") -> "Why":
        """Return why a table holds what it holds: what made it, from which inputs, with which code."""
        from runnel.client.remote.provenance import why

        return why(self._connection, TableName.parse(table), at)

    def runs(self, run: str | None = None, *, limit: int | None = None) -> "list[Run]":
        """Return runs, newest first, or the one that is named."""
        if run is not None:
            return [json_values.run_of(self._connection.get(f"/runs/{quote(run, safe='')}"))]
        return [json_values.run_of(one) for one in islice(self._connection.pages("/runs", "before", limit), limit)]

    def _commit(self, commit: str) -> "Commit":
        return json_values.commit_of(self._connection.get(f"/commits/{commit}"))

    def _here_only(self, what: str, instead: str) -> Mistake:
        """Return the error for what can't be done from afar."""
        told = f"`{what}` works on a project's folder, and this lake is behind {self.url}"
        return Mistake("REMOTE_UNSUPPORTED", told, fix=instead)


def _checked(url: str) -> str:
    """Return an address without what makes no difference, refusing what is none."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or parts.query or parts.fragment or parts.username:
        fix = "write http://HOST:PORT or https://HOST; the token goes into token="
        raise Mistake("OPEN_ADDRESS", f"{shown(url)} is no address of a service", fix=fix)
    return url.rstrip("/").removesuffix("/api/v1")
