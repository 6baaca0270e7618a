"""Compare two versions of the lake: which tables differ, how their shape changed, and how many rows came and went.

A table whose rows are the same, because it was only compacted, has not changed. Between two commits of one line the
cost follows the changes between them, not the number of tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake.history.ancestry import tables_between
from runnel.lake.history.commits import Commit, Version, version_at
from runnel.lake.history.refs import readable
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class TableDiff:
    """How one table differs. Counts are None where they can't be known, and `reason` says why."""

    table: TableName
    change: str  # added, removed or changed
    schema: tuple[str, ...]
    rows_added: int | None
    rows_removed: int | None
    reason: str | None = None


@dataclass(frozen=True)
class Diff:
    """How two commits differ, table by table."""

    before: Commit
    after: Commit
    tables: tuple[TableDiff, ...]


def diff(store: "Store", a: str, b: str, table: TableName | None = None, *, progress: Progress | None = None) -> Diff:
    """Return how `b` differs from `a`, for all tables or for one."""
    before, after = readable(store.commit(a)), readable(store.commit(b))
    found = store.db.read(lambda connection: versions_apart(connection, before, after, table))
    if table is not None and not found:
        _known(store, table, before, after)
    made = []
    for number, (name, (old, new)) in enumerate(found.items()):
        if progress:
            progress(str(name), number, len(found))
        made.append(table_diff(store, name, old, new))
    return Diff(before, after, tuple(made))


def versions_apart(
    connection: Connection, before: Commit, after: Commit, table: TableName | None = None
) -> dict[TableName, tuple[Version | None, Version | None]]:
    """Return both versions of each table whose contents differ, in the order of names."""
    names = tables_between(connection, before, after) if table is None else [str(table)]
    found = {}
    for name in map(TableName.stored, names):
        old, new = version_at(connection, before, name), version_at(connection, after, name)
        if (old.content if old else None) != (new.content if new else None):
            found[name] = (old, new)
    return found


def table_diff(store: "Store", table: TableName, old: Version | None, new: Version | None) -> TableDiff:
    """Return how two versions of a table differ, of which one may not exist."""
    from runnel.lake.diff.row_delta import counts
    from runnel.lake.iceberg.schema_diff import shape_changes
    from runnel.lake.iceberg.table_metadata import load

    change = "changed" if old and new else "added" if new else "removed"
    shape = shape_changes(load(store, old.location), load(store, new.location)) if old and new else ()
    try:
        came, went = counts(store, old.location if old else None, new.location if new else None)
    except RunnelError as error:
        if error.code not in ("SCAN_NEEDS_SPARK", "DIFF_TOO_LARGE"):
            raise
        return TableDiff(table, change, shape, None, None, error.what)
    return TableDiff(table, change, shape, came, went)


def _known(store: "Store", table: TableName, before: Commit, after: Commit) -> None:
    """Raise where neither commit has the table; that both have it unchanged is an answer."""

    def work(connection: Connection) -> bool:
        return any(version_at(connection, commit, table) is not None for commit in (before, after))

    if not store.db.read(work):
        raise store.unknown(table, after)
