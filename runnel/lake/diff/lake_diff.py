"""Compare two commits: which tables differ, how their schemas changed, and how many rows were added and removed.

A table that was only compacted has not changed. Between two commits of one line the cost depends on the changes
between them, not on the number of tables.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake.history.ancestry import find_tables_changed_between
from runnel.lake.history.commits import Commit, find_version
from runnel.lake.history.refs import check_retained
from runnel.model.progress import Progress
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.text_tables import format_table

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class TableDiff:
    """How one table differs. Row counts are None if they can't be determined; `reason` says why."""

    table: TableName
    change: str  # added, removed or changed
    schema: tuple[str, ...]
    rows_added: int | None
    rows_removed: int | None
    reason: str | None = None


@dataclass(frozen=True)
class LakeDiff:
    """How two commits differ, table by table."""

    before: Commit
    after: Commit
    tables: tuple[TableDiff, ...]

    def __str__(self) -> str:
        """Return the differences as text for people: a line for each table, then changes of columns."""
        if not self.tables:
            return "no difference"
        rows = [
            [table_diff.table, table_diff.change, *_format_row_counts(table_diff.rows_added, table_diff.rows_removed)]
            for table_diff in self.tables
        ]
        lines = [format_table(["table", "change", "rows", ""], rows, right_aligned=[2, 3])]
        for table_diff in self.tables:
            notes = [*table_diff.schema, *([table_diff.reason] if table_diff.reason else [])]
            lines += [f"  {table_diff.table}: {note}" for note in notes]
        return "\n".join(lines)


def _format_row_counts(added: int | None, removed: int | None) -> tuple[str, str]:
    return "?" if added is None else f"+{added:,}", "?" if removed is None else f"-{removed:,}"


def diff_commits(
    store: "Store", a: str, b: str, table: TableName | None = None, *, report_progress: Progress | None = None
) -> LakeDiff:
    """Return how `b` differs from `a`, for all tables or for one."""
    before, after = check_retained(store.commit(a)), check_retained(store.commit(b))
    differing_versions = store.db.read(lambda connection: find_differing_versions(connection, before, after, table))
    if table is not None and not differing_versions:
        _check_table_exists(store, table, before, after)
    table_diffs = []
    for number, (name, (old, new)) in enumerate(differing_versions.items()):
        if report_progress:
            report_progress(str(name), number, len(differing_versions))
        table_diffs.append(diff_table(store, name, old, new))
    return LakeDiff(before, after, tuple(table_diffs))


def find_differing_versions(
    connection: Connection, before: Commit, after: Commit, table: TableName | None = None
) -> dict[TableName, tuple[TableVersion | None, TableVersion | None]]:
    """Return both versions of each table whose contents differ, in the order of names."""
    names = find_tables_changed_between(connection, before, after) if table is None else [str(table)]
    differing_versions = {}
    for name in map(TableName.parse_unchecked, names):
        old, new = find_version(connection, before, name), find_version(connection, after, name)
        if (old.content if old else None) != (new.content if new else None):
            differing_versions[name] = (old, new)
    return differing_versions


def diff_table(store: "Store", table: TableName, old: TableVersion | None, new: TableVersion | None) -> TableDiff:
    """Return how two versions of a table differ; one of them may not exist."""
    from runnel.lake.diff.row_delta import count_changed_rows
    from runnel.lake.iceberg.schema_diff import describe_schema_changes
    from runnel.lake.iceberg.table_metadata import load_metadata

    change = "changed" if old and new else "added" if new else "removed"
    schema_changes = (
        describe_schema_changes(load_metadata(store, old.location), load_metadata(store, new.location))
        if old and new
        else ()
    )
    try:
        rows_added, rows_removed = count_changed_rows(
            store, old.location if old else None, new.location if new else None
        )
    except RunnelError as error:
        if error.code not in ("SCAN_NEEDS_SPARK", "DIFF_TOO_LARGE"):
            raise
        return TableDiff(table, change, schema_changes, None, None, error.what)
    return TableDiff(table, change, schema_changes, rows_added, rows_removed)


def _check_table_exists(store: "Store", table: TableName, before: Commit, after: Commit) -> None:
    """Raise if neither commit has the table; that both have it unchanged is a valid result."""

    def work(connection: Connection) -> bool:
        return any(find_version(connection, commit, table) is not None for commit in (before, after))

    if not store.db.read(work):
        raise store.unknown_table_error(table, after)
