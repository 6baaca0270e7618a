"""Remove files from a table of the lake, as one commit; older commits keep them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import Mistake, listed
from runnel.lake.files.file_commit import Revision, land
from runnel.lake.files.file_table import opened
from runnel.lake.files.ls import ls
from runnel.lake.files.paths import nearest_path
from runnel.lake.history import branches
from runnel.lake.history.commits import Commit
from runnel.lake.leases.pins import pinned

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class Removed:
    """What a removal did. `commit` is None where somebody else had removed them all."""

    commit: Commit | None
    paths: tuple[str, ...]


def remove(
    store: "Store", table: "TableName", globs: Sequence[str], *, branch: str = "main", message: str | None = None
) -> Removed:
    """Remove the files that globs match from a table, and publish it. Older commits keep them."""
    store.db.read(lambda connection: branches.branch(connection, branch))
    with pinned(store.db, "write") as pin:
        commit = store.commit(branch)
        base = store.versions(commit, [table])[table]
        opened(store, table, base)
        gone = sorted({row.path for glob in globs for row in ls(store, table, glob, at=commit.id)})
        if not gone:
            close = nearest_path(globs[0], (row.path for row in ls(store, table, at=commit.id))) if globs else None
            what = f"no file of `{table}` matches {listed(globs)}" + (f"; close: `{close}`" if close else "")
            raise Mistake("FILES_NO_MATCH", what, fix=f"`runnel ls {table}` lists them")
        revision = Revision(base, dict.fromkeys(gone), gone)
        said = message or f"remove {len(gone)} file{'s' * (len(gone) > 1)} from {table}"
        return Removed(land(store, branch, table, revision, said, pin), tuple(gone))
