"""Remove files from a file table, as one commit; older commits keep them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import Mistake, join_names
from runnel.lake.files.file_commit import FileChangeSet, publish_change_set
from runnel.lake.files.file_table import load_file_table
from runnel.lake.files.ls import list_files
from runnel.lake.files.paths import find_nearest_path
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit
from runnel.lake.leases.pins import acquire_pin

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class RemoveResult:
    """The result of a removal. `commit` is None if another writer had already removed all of them."""

    commit: Commit | None
    paths: tuple[str, ...]


def remove_files(
    store: "Store", table: "TableName", globs: Sequence[str], *, branch: str = "main", message: str | None = None
) -> RemoveResult:
    """Remove the files that globs match from a table, and publish it. Older commits keep them."""
    store.db.read(lambda connection: branches.get_branch(connection, branch))
    with acquire_pin(store.db, "write") as pin:
        commit = store.commit(branch)
        base = store.versions(commit, [table])[table]
        load_file_table(store, table, base)
        removed_paths = sorted({row.path for glob in globs for row in list_files(store, table, glob, at=commit.id)})
        if not removed_paths:
            close = (
                find_nearest_path(globs[0], (row.path for row in list_files(store, table, at=commit.id)))
                if globs
                else None
            )
            what = f"no file of `{table}` matches {join_names(globs)}" + (f"; close: `{close}`" if close else "")
            raise Mistake("FILES_NO_MATCH", what, fix=f"`runnel ls {table}` lists them")
        change_set = FileChangeSet(base, dict.fromkeys(removed_paths), removed_paths)
        commit_message = message or f"remove {len(removed_paths)} file{'s' * (len(removed_paths) > 1)} from {table}"
        return RemoveResult(
            publish_change_set(store, branch, table, change_set, commit_message, pin), tuple(removed_paths)
        )
