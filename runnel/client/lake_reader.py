"""What a lake holds, and its history: tables, files, commits, branches, tags, runs. Needs no Spark."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.declare.settings import Settings
from runnel.names import TableName

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
    from runnel.lake.store import Store


class Contents:
    """The contents of the lake of a project; thin, each method one call into the room that does the work."""

    def __init__(self, settings: Settings, *, moved: bool = False, adopt: bool = False) -> None:
        self.settings = settings
        self._moved = moved
        self._adopt = adopt

    @cached_property
    def store(self) -> "Store":
        """Return the handle that the lake's own functions take."""
        from runnel.lake.store import Store

        settings, storage = self.settings, dict(self.settings.storage)
        return Store.open(settings.catalog, settings.warehouse, storage=storage, moved=self._moved, adopt=self._adopt)

    def tables(self, *, at: str = "main") -> list[str]:
        """Return the names of the tables at a ref."""
        return [str(name) for name in self.store.state(at)]

    def table(self, name: str, *, at: str = "main", versions: int = 5) -> "TableFacts":
        """Return what is known of a table at a ref: size, columns, newest versions."""
        from runnel.client.json_views.table import table_facts

        return table_facts(self.store, TableName.parse(name), self.store.commit(at), versions)

    def checks(self, table: str, *, at: str = "main") -> "TableChecks":
        """Return how the checks of a table at a ref went, and how the newest run did that was to make it."""
        from runnel.client.json_views.check import table_checks

        return table_checks(self.store, TableName.parse(table), self.store.commit(at))

    def log(self, ref: str = "main", *, table: str | None = None, limit: int | None = None) -> "list[Commit]":
        """Return the history of a ref, newest first."""
        from runnel.lake.history.commits import history

        commit, name = self.store.commit(ref), TableName.parse(table) if table else None
        return self.store.db.read(lambda connection: history(connection, commit, table=name, limit=limit))

    def branch(self, name: str, *, at: str = "main") -> "Branch":
        """Create a branch."""
        from runnel.lake.history.branches import fork

        return fork(self.store.db, name, self.store.commit(at), self.store.author)

    def branches(self) -> "list[Branch]":
        """Return all branches, main first."""
        from runnel.lake.history.branches import branches

        return self.store.db.read(branches)

    def tag(self, name: str, ref: str = "main") -> "Tag":
        """Give a commit a name that keeps it for ever."""
        from runnel.lake.history.tags import tag

        return tag(self.store, name, ref)

    def tags(self) -> "list[Tag]":
        """Return all tags by name."""
        from runnel.lake.history.tags import tags

        return self.store.db.read(tags)

    def diff(self, a: str, b: str, table: str | None = None) -> "Diff":
        """Compare two versions of the lake."""
        from runnel.lake.diff.lake_diff import diff

        return diff(self.store, a, b, TableName.parse(table) if table else None)

    def revert(self, commit: str, *, branch: str = "main") -> "Commit":
        """Undo a commit with a new one."""
        from runnel.lake.merge.revert import revert

        return revert(self.store, commit, branch)

    def load(self, table: str, *files: str | Path, branch: str = "main", **options: Any) -> "Loaded":
        """Add the rows of CSV, JSON lines or Parquet files to a table, creating it where it is missing."""
        from runnel.connect.load.load import load

        patterns: Sequence[str] = [str(file) for file in files]
        for name in ("key", "partition"):  # one column may be given by itself
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        return load(self.store, TableName.parse(table), patterns, branch=branch, **options)

    def put(self, table: str, *paths: str | Path, branch: str = "main", prefix: str = "") -> "Put":
        """Put files and folders into a file table, in one commit."""
        from runnel.lake.files.put import put

        return put(self.store, TableName.parse(table), [Path(path) for path in paths], branch=branch, prefix=prefix)

    def get(self, table: str, out: str | Path, glob: str | None = None, *, at: str = "main") -> "Got":
        """Get files out of a file table into a folder, each one verified."""
        from runnel.lake.files.get import get

        return get(self.store, TableName.parse(table), glob, Path(out), at=at)

    def ls(self, table: str, glob: str | None = None, *, at: str = "main") -> "list[FileRow]":
        """Return the files of a file table."""
        from runnel.lake.files.ls import ls

        return list(ls(self.store, TableName.parse(table), glob, at=at))

    def why(self, table: str, *, at: str = "main") -> "Why":
        """Return why a table holds what it holds: what made it, from which inputs, with which code."""
        from runnel.lake.flow_state.provenance import why

        return why(self.store, TableName.parse(table), at)

    def runs(self, run: str | None = None, *, limit: int | None = None) -> "list[Run]":
        """Return runs, newest first, or the one that is named."""
        from runnel.lake.control import run_history

        return self.store.db.read(
            lambda c: [run_history.find(c, run)] if run is not None else run_history.recent(c, limit)
        )
