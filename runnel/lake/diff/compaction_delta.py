"""Compute the difference between two versions without compactions, which replace files but change no rows.

A compaction's commit records which files each new file replaces; nothing else is read.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.diff.file_delta import FileDelta, compute_file_delta

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_FIRST_LIMIT = 16
_Replacement = tuple[frozenset[str], frozenset[str]]  # new files, and the files that they replace


def compute_change(store: "Store", table: "TableName", before: str, after: str) -> FileDelta:
    """Return the files in which two versions of a table differ, without those that were only compacted."""
    file_changes = compute_file_delta(store, before, after)
    if (
        not file_changes.added
        or not file_changes.removed
        or any(not entry.is_data for entry in (*file_changes.added, *file_changes.removed))
    ):
        return file_changes  # a compaction also applies deletes: then the files alone don't determine the rows
    replacements: list[_Replacement] = []
    added_paths, removed_paths = (
        frozenset(entry.path for entry in file_changes.added),
        frozenset(entry.path for entry in file_changes.removed),
    )
    before_sequence, limit = None, _FIRST_LIMIT
    while True:  # newest first and only as many as needed: a stream's table has very many compactions
        rows = store.db.read(partial(_read_compactions, table=table, before_sequence=before_sequence, limit=limit))
        replacements += [replacement for _, detail in rows for replacement in _parse_replacements(detail)]
        remaining_added, remaining_removed = _remove_compacted(replacements, added_paths, removed_paths)
        if len(rows) < limit or not remaining_added or not remaining_removed:
            break
        before_sequence, limit = rows[-1][0], 2 * limit
    return FileDelta(
        tuple(entry for entry in file_changes.added if entry.path in remaining_added),
        tuple(entry for entry in file_changes.removed if entry.path in remaining_removed),
    )


def _remove_compacted(
    replacements: list[_Replacement], added: frozenset[str], removed: frozenset[str]
) -> tuple[set[str], set[str]]:
    """Return the added and removed files, without those that compactions replaced."""
    added_left, removed_left = set(added), set(removed)
    for index, (new_files, _) in enumerate(replacements):
        original_files = _find_original_files(replacements, index)
        for new_side, old_side in ((added_left, removed_left), (removed_left, added_left)):  # a revert swaps them
            if new_files <= new_side and original_files <= old_side:
                new_side -= new_files
                old_side -= original_files
    return added_left, removed_left


def _find_original_files(replacements: list[_Replacement], index: int) -> frozenset[str]:
    """Return the files that a compaction replaced; files of earlier compactions count as the files they replaced."""
    original_files = replacements[index][1]
    for new_files, replaced_files in replacements[index + 1 :]:
        if new_files <= original_files:
            original_files = (original_files - new_files) | replaced_files
    return original_files


def _read_compactions(
    connection: Connection, table: "TableName", before_sequence: int | None, limit: int
) -> list[tuple[int, str]]:
    """Return the sequence and detail of a table's compactions before a sequence number, newest first.

    Starts from the compactions, not from all changes of the table: a stream makes very many of those.
    """
    changes, commits = schema.changes.c, schema.commits.c
    query = (
        sa.select(commits.seq, changes.detail)
        .join(schema.changes, commits.id == changes.commit_id)
        .where(commits.kind == sa.literal_column("'compact'"), changes.table_name == str(table))
        .order_by(commits.seq.desc())
        .limit(limit)
    )
    rows = connection.execute(query if before_sequence is None else query.where(commits.seq < before_sequence))
    return [(int(row.seq), str(row.detail)) for row in rows]


def _parse_replacements(detail: str) -> Iterator[_Replacement]:
    """Yield the replacements that one compaction recorded."""
    new_by_replaced: dict[frozenset[str], set[str]] = {}
    for file, replaced_files in json.loads(detail).get("replaces", {}).items():
        new_by_replaced.setdefault(frozenset(replaced_files), set()).add(file)
    yield from ((frozenset(files), replaced_files) for replaced_files, files in new_by_replaced.items())
