"""Find the commit that brought a data file, or a piece of its rows, into a table.

Reads the catalog, metadata and footers, never rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import CorruptData
from runnel.lake.history.content_origin import HistoryStep, find_latest_step, list_versions
from runnel.lake.iceberg.data_file_owners import read_file_name
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_parts import split_into_parts

if TYPE_CHECKING:
    from runnel.lake.history.commits import Commit
    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class DataFileOrigin:
    """The step that brought a data file or piece; if not `is_exact`, an earlier one may have, whose version is gone."""

    step: HistoryStep
    is_exact: bool


def find_data_file_origin(
    store: "Store", commit: "Commit", table: "TableName", data_file: str, piece: str | None = None
) -> DataFileOrigin | None:
    """Return the step that brought a data file which a table has at a commit; through merges, on the merged branch.

    If the rows belong to a `piece` of a source file, it is the step that brought the piece, in whichever data file.
    """
    versions = store.db.read(lambda connection: list_versions(connection, commit, table))
    if not versions:
        return None
    # Versions from the newest back to the one that brought the file have it: search for that one by bisection.
    first_with, first_without, is_exact = 0, len(versions), True
    while first_without - first_with > 1:
        middle = (first_with + first_without) // 2
        has_file = _has_data_file(store, versions[middle], data_file, piece)
        if has_file:
            first_with = middle
        else:
            first_without, is_exact = middle, has_file is not None
    location = versions[first_with]
    step = store.db.read(lambda connection: find_latest_step(connection, commit, table, location))
    if step is None:
        return None
    merged_commit = step.change.detail.get("merged")
    if merged_commit and "key" not in step.change.detail:
        source = store.commit(merged_commit)
        newest = store.db.read(lambda connection: find_latest_step(connection, source, table))
        if newest is not None and _has_data_file(store, newest.change.after, data_file, piece):
            return find_data_file_origin(store, source, table, data_file, piece)
    return DataFileOrigin(step, is_exact)


def _has_data_file(store: "Store", location: str | None, data_file: str, piece: str | None) -> bool | None:
    """Return whether a version has a data file, or a piece in any data file; None if the version is gone."""
    if location is None:
        return False
    name = read_file_name(data_file)
    try:
        entries = list(read_entries(store, load_metadata(store, location)))
        if piece is not None:
            return piece in split_into_parts(store, entries)
        return any(read_file_name(entry.path) == name for entry in entries)
    except CorruptData:
        return None
