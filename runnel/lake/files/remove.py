"""Remove files from a file table, as one commit; older commits keep them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import Mistake, close_hint, join_names, plural
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
    """The result of a removal: the paths, sorted, and the sum of their sizes, as far as the table has them.

    `commit` is None if another writer had already removed all of them, or if it was a dry run.
    """

    commit: Commit | None
    paths: tuple[str, ...]
    bytes: int


def remove_files(
    store: "Store",
    table: "TableName",
    globs: Sequence[str],
    *,
    branch: str = "main",
    message: str | None = None,
    dry_run: bool = False,
) -> RemoveResult:
    """Remove the files that globs match from a table, and publish it. Older commits keep them.

    Raises if no file matches. A dry run publishes nothing.
    """
    store.db.read(lambda connection: branches.get_branch(connection, branch))
    with acquire_pin(store.db, "write") as pin:
        commit = store.commit(branch)
        base = store.versions(commit, [table])[table]
        load_file_table(store, table, base)
        sizes = {row.path: row.size or 0 for glob in globs for row in list_files(store, table, glob, at=commit.id)}
        if not sizes:
            raise _no_match_error(store, table, globs, commit.id)
        removed_paths, removed_bytes = sorted(sizes), sum(sizes.values())
        if dry_run:
            return RemoveResult(None, tuple(removed_paths), removed_bytes)
        change_set = FileChangeSet(base, dict.fromkeys(removed_paths), removed_paths)
        commit_message = message or f"remove {plural(len(removed_paths), 'file')} from {table}"
        published = publish_change_set(store, branch, table, change_set, message=commit_message, pin=pin)
    return RemoveResult(published, tuple(removed_paths), removed_bytes)


def _no_match_error(store: "Store", table: "TableName", globs: Sequence[str], commit: str) -> Mistake:
    """Return the error for globs that match nothing, with the nearest path."""
    close = find_nearest_path(globs[0], (row.path for row in list_files(store, table, at=commit))) if globs else None
    what = f"no file of `{table}` matches {join_names(globs)}" + close_hint(close)
    return Mistake("FILES_NO_MATCH", what, fix=f"`runnel ls {table}` lists them")
