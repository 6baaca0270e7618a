"""List the files that a commit ingested: new, changed, renamed and removed ones. Reads only."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.errors import CorruptData
from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_position import COLUMNS, STATE_PATH, ProcessedFile, parse_processed_files
from runnel.lake.flow_state.ingest_positions import read_position
from runnel.lake.history.commits import find_commit, read_changes
from runnel.lake.iceberg.data_file_owners import RowRun, make_owner_prefix, read_file_id, read_origin
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_runs import list_runs, load_footers
from runnel.names import TableName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy.engine import Connection

    from runnel.lake.history.commits import Commit, CommitChange
    from runnel.lake.store import Store

_RowCounts = dict[tuple[str, str], int]
"""The number of rows for each owner, empty if unknown, and each data file that they were first written to."""


@dataclass(frozen=True)
class CommitFile:
    """A file that a commit read for a table. `change` is added, changed, renamed, removed or unchanged.

    `rows` is the number of its rows in the table; None if the version is gone or does not tell.
    """

    table: str
    file: str
    change: str
    size: int | None
    rows: int | None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return asdict(self)


def list_commit_files(store: "Store", commit: "Commit") -> list[CommitFile]:
    """Return the files that a commit ingested or loaded, by table and path."""
    changes = {change.table: change for change in store.db.read(lambda c: read_changes(c, commit.id))}
    positions = store.db.read(lambda connection: _read_written_positions(connection, commit))
    commit_files: list[CommitFile] = []
    for table in sorted({*positions, *changes}):
        change = changes.get(table)
        if table in positions:
            commit_files += _describe_files(store, commit, table, change, positions[table])
        if change is not None and "load" in change.detail:
            commit_files += [
                CommitFile(str(table), str(file["name"]), "added", file.get("bytes"), file.get("rows"))
                for file in change.detail["load"]["files"]
            ]
    return commit_files


def _read_written_positions(connection: "Connection", commit: "Commit") -> dict[TableName, list[ProcessedFile]]:
    """Return the files whose position a commit wrote, by table."""
    columns = schema.ingested.c
    query = sa.select(columns.table_name, *(columns[name] for name in COLUMNS)).where(
        columns.line == commit.line, columns.seq == commit.seq, columns.path != STATE_PATH
    )
    rows = connection.execute(query.order_by(columns.table_name, columns.path)).all()
    files_by_table: dict[TableName, list[ProcessedFile]] = {}
    for row, processed_file in zip(rows, parse_processed_files(tuple(row[1:]) for row in rows), strict=True):
        files_by_table.setdefault(TableName.parse_unchecked(row[0]), []).append(processed_file)
    return files_by_table


def _describe_files(
    store: "Store", commit: "Commit", table: TableName, change: "CommitChange | None", files: list[ProcessedFile]
) -> "Iterator[CommitFile]":
    parent = store.db.read(lambda connection: find_commit(connection, commit.parent or ""))
    before = store.db.read(lambda connection: read_position(connection, parent, table)) if parent else {}
    row_counts = _count_rows(store, change.after if change else None)
    for file in files:
        rows = _sum_rows(row_counts, file) if row_counts else None
        change_word = _classify(file, before)
        size = None if file.is_removed else file.size
        yield CommitFile(str(table), file.path, change_word, size, None if file.is_removed else rows)


def _classify(file: ProcessedFile, before: "Mapping[str, ProcessedFile]") -> str:
    previous = before.get(file.path)
    if file.is_removed:
        return "removed"
    if previous is not None and not previous.is_removed:
        return "unchanged" if previous.identity == file.identity else "changed"
    is_renamed = make_owner_prefix(file.path) != file.all_owners[0]
    return "renamed" if is_renamed else "added"


def _count_rows(store: "Store", location: str | None) -> _RowCounts | None:
    """Return the numbers of rows of a version; None if the version is gone."""
    if location is None:
        return None
    counts: dict[tuple[str, str], int] = {}
    try:
        entries = [entry for entry in read_entries(store, load_metadata(store, location)) if entry.is_data]
        load_footers(store, entries)
        for entry in entries:
            unowned_run = RowRun("", read_file_id(entry.path), entry.file.record_count)
            for run in list_runs(store, entry) or [unowned_run]:
                key = (run.owner, read_origin(run.piece))
                counts[key] = counts.get(key, 0) + run.rows
    except CorruptData:
        return None
    return counts


def _sum_rows(row_counts: _RowCounts, file: ProcessedFile) -> int | None:
    """Return how many rows of a source file are in the data files that it was read into; None if one is missing."""
    total = 0
    for file_id in map(read_file_id, file.files):
        counts = [row_counts[owner, file_id] for owner in ("", *file.all_owners) if (owner, file_id) in row_counts]
        if not counts:
            return None
        total += sum(counts)
    return total
