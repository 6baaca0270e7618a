"""Read a lake and its history: tables, files, commits, branches, tags, runs. Needs no Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.declare.settings import Settings
from runnel.names import TableName
from runnel.project.home_folder import prepare_home, restrict_home

if TYPE_CHECKING:
    from runnel.client.json_views.check import TableChecks
    from runnel.client.json_views.table import TableFacts
    from runnel.connect.load.load import LoadOptions, LoadResult
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
    from runnel.lake.store import Store
    from runnel.model.progress import Progress


class LakeReader:
    """Access to the contents of a project's lake; each method is one call into the module that does the work."""

    def __init__(
        self, settings: Settings, *, moved: bool = False, adopt: bool = False, store: "Store | None" = None
    ) -> None:
        self.settings = settings
        self._moved = moved
        self._adopt = adopt
        self._store = store
        restrict_home(settings)

    @property
    def store(self) -> "Store":
        """Return the handle that the lake's own functions take, opened on first use."""
        if self._store is None:
            from runnel.lake.store import Store

            prepare_home(self.settings)
            settings, storage = self.settings, dict(self.settings.storage)
            self._store = Store.open(
                settings.catalog, settings.warehouse, storage=storage, moved=self._moved, adopt=self._adopt
            )
        return self._store

    def tables(self, *, at: str = "main") -> list[str]:
        """Return the names of the tables at a ref."""
        return [str(name) for name in self.store.state(at)]

    def table(self, name: str, *, at: str = "main", versions: int = 5) -> "TableFacts":
        """Return what is known of a table at a ref: size, columns, newest versions."""
        from runnel.client.json_views.table import read_table_facts

        return read_table_facts(self.store, TableName.parse(name), self.store.commit(at), versions)

    def checks(self, table: str, *, at: str = "main") -> "TableChecks":
        """Return the check results of a table at a ref, and the newest run that was to compute it."""
        from runnel.client.json_views.check import read_table_checks

        return read_table_checks(self.store, TableName.parse(table), self.store.commit(at))

    def log(self, ref: str = "main", *, table: str | None = None, limit: int | None = None) -> "list[Commit]":
        """Return the history of a ref, newest first."""
        from runnel.lake.history.commits import read_history

        commit, name = self.store.commit(ref), TableName.parse(table) if table else None
        return self.store.db.read(lambda connection: read_history(connection, commit, table=name, limit=limit))

    def branch(self, name: str, *, at: str = "main") -> "Branch":
        """Create a branch."""
        from runnel.lake.history.branches import fork_branch

        return fork_branch(self.store.db, name, self.store.commit(at), self.store.author)

    def branches(self) -> "list[Branch]":
        """Return all branches, main first."""
        from runnel.lake.history.branches import list_branches

        return self.store.db.read(list_branches)

    def tag(self, name: str, ref: str = "main") -> "Tag":
        """Give a commit a name that keeps it for ever."""
        from runnel.lake.history.tags import create_tag

        return create_tag(self.store, name, ref)

    def tags(self) -> "list[Tag]":
        """Return all tags by name."""
        from runnel.lake.history.tags import list_tags

        return self.store.db.read(list_tags)

    def diff(self, a: str, b: str, table: str | None = None) -> "LakeDiff":
        """Compare two versions of the lake."""
        from runnel.lake.diff.lake_diff import diff_commits

        return diff_commits(self.store, a, b, TableName.parse(table) if table else None)

    def revert(self, commit: str, *, branch: str = "main") -> "Commit":
        """Undo a commit with a new one."""
        from runnel.lake.merge.revert import revert_commit

        return revert_commit(self.store, commit, branch)

    def load(self, table: str, *files: str | Path, branch: str = "main", **options: Any) -> "LoadResult":
        """Add the rows of CSV, JSON lines or Parquet files to a table, creating it if it is missing."""
        from runnel.connect.load.load import LoadOptions

        patterns: Sequence[str] = [str(file) for file in files]
        for name in ("key", "partition"):  # a single column may be given as a string
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        progress = options.pop("progress", None)
        load_options = LoadOptions(branch=branch, **options)
        return self._load_files(TableName.parse(table), patterns, load_options, progress)

    def _load_files(
        self, table: TableName, patterns: Sequence[str], options: "LoadOptions", progress: "Progress | None"
    ) -> "LoadResult":
        """Load files in this process: a reader of a lake has no Spark."""
        from runnel.connect.load.load import load_files

        return load_files(self.store, table, patterns, options, progress=progress)

    def put(self, table: str, *paths: str | Path, branch: str = "main", prefix: str = "") -> "PutResult":
        """Put files and folders into a file table, in one commit."""
        return self._put_files(TableName.parse(table), [Path(path) for path in paths], branch, prefix)

    def _put_files(self, table: TableName, paths: Sequence[Path], branch: str, prefix: str) -> "PutResult":
        """Put files in this process: a reader of a lake has no Spark."""
        from runnel.lake.files.put import put_files

        return put_files(self.store, table, paths, branch=branch, prefix=prefix)

    def get(self, table: str, out: str | Path, glob: str | None = None, *, at: str = "main") -> "GetResult":
        """Get files out of a file table into a folder, each one verified."""
        from runnel.lake.files.get import get_files

        return get_files(self.store, TableName.parse(table), glob, Path(out), at=at)

    def ls(self, table: str, glob: str | None = None, *, at: str = "main") -> "list[FileRow]":
        """Return the files of a file table."""
        from runnel.lake.files.ls import list_files

        return list(list_files(self.store, TableName.parse(table), glob, at=at))

    def rm(self, table: str, glob: str, *, branch: str = "main") -> "RemoveResult":
        """Remove the files that a glob matches from a file table, in one commit; older commits keep them."""
        from runnel.lake.files.remove import remove_files

        return remove_files(self.store, TableName.parse(table), [glob], branch=branch)

    def files_of(self, commit: str) -> "list[CommitFile]":
        """Return the files that a commit ingested or loaded, with their sizes and rows."""
        from runnel.lake.provenance.commit_files import list_commit_files

        return list_commit_files(self.store, self.store.commit(commit))

    def runs(self, run: str | None = None, *, limit: int | None = None) -> "list[Run]":
        """Return runs, newest first, or only the given run."""
        from runnel.lake.control import run_history

        return self.store.db.read(
            lambda c: [run_history.find_run(c, run)] if run is not None else run_history.list_recent_runs(c, limit)
        )
