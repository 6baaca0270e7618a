"""Read and stage quarantine tables: bad rows with their reason, file, run and time. Publishes nothing."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, TimestamptzType

from runnel.connect.load.quarantine_files import write_quarantined_rows
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.flow import quarantine_table_of
from runnel.errors import Mistake
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.lake.iceberg.data_file_owners import (
    is_shared,
    make_owner_prefix,
    read_file_name,
    read_owner_prefix,
)
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.owners.row_parts import plan_owner_removal, write_excerpts
from runnel.lake.owners.row_runs import OwnerLookup

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.names import TableName

SCHEMA = Schema(
    NestedField(1, "raw", StringType(), required=False),
    NestedField(2, "reason", StringType(), required=False),
    NestedField(3, "file", StringType(), required=False),
    NestedField(4, "run", StringType(), required=False),
    NestedField(5, "at", TimestamptzType(), required=False),
)


def create(store: "Store", table: "TableName") -> str:
    """Stage the empty quarantine table of a table and return its location."""
    return table_metadata.write_metadata(store, build_metadata(store, table), None)


def build_metadata(store: "Store", table: "TableName") -> "TableMetadata":
    """Return the first version of the quarantine table of a table; it is not written yet."""
    properties = {table_properties.QUARANTINE_OF: str(table)}
    return table_metadata.build_metadata(store, quarantine_table_of(table), SCHEMA, properties=properties)


def load_or_build_metadata(store: "Store", location: str | None, table: "TableName") -> "TableMetadata":
    """Return the metadata of a version of a table's quarantine table; if there is none, of the first one."""
    return build_metadata(store, table) if location is None else table_metadata.load_metadata(store, location)


def append(store: "Store", base: str, rows: Iterable[QuarantinedRow]) -> str:
    """Stage a version of a quarantine table with more rows and return its location."""
    return replace_owned_rows(store, base, rows, ())


def replace_owned_rows(
    store: "Store",
    base: str,
    rows: Iterable[QuarantinedRow],
    removed_owners: Collection[str],
    *,
    owners: Mapping[str, str] | None = None,
    files: Iterable["DataFile"] = (),
) -> str:
    """Stage a version with more rows and without those of `removed_owners`; `owners` maps file paths to owners.

    `files` are data files that are written already. Returns `base` itself if nothing changes.
    """
    metadata, owner_set = table_metadata.load_metadata(store, base), frozenset(removed_owners)
    manifest_entries = list(read_entries(store, metadata)) if owner_set else []
    removal = plan_owner_removal(store, base, manifest_entries, owner_set)
    removed = list(removal.removed)
    unowned_entries = [
        entry for entry in manifest_entries if read_owner_prefix(entry.path) is None and not is_shared(entry.path)
    ]  # merged by a compaction before compactions kept owners
    retained_rows: list[QuarantinedRow] = []
    if unowned_entries:
        unowned_rows = [row for row, _ in _read_rows_with_files(store, metadata, unowned_entries)]
        retained_rows = [
            row for row in unowned_rows if row.file is None or make_owner_prefix(row.file) not in owner_set
        ]
        if len(retained_rows) < len(unowned_rows):
            removed += unowned_entries
        else:
            retained_rows = []
    added = [*files, *write_quarantined_rows(store, metadata, [*retained_rows, *_assign_owners(rows, owners or {})])]
    added += write_excerpts(store, removal.excerpts)
    return stage_version(store, base, VersionEdit(added=added, removed=removed)) if added or removed else base


def _assign_owners(rows: Iterable[QuarantinedRow], owners: Mapping[str, str]) -> list[QuarantinedRow]:
    return [replace(row, owner=owners.get(row.file or "", row.owner)) for row in rows]


def read_quarantined_rows(
    store: "Store", table: "TableName", branch: str = "main", file: str | None = None
) -> list[QuarantinedRow]:
    """Return the quarantined rows of a table on a branch, the oldest first; only those of `file`, if it is not None.

    `file` is the path of a file or the end of its path, such as its name.
    """
    version = store.state(branch).get(quarantine_table_of(table))
    quarantined_rows = (
        read_version_rows(store, table_metadata.load_metadata(store, version.location)) if version is not None else []
    )
    if file is None:
        return quarantined_rows
    path = find_path(file, {row.file for row in quarantined_rows if row.file is not None})
    return [row for row in quarantined_rows if row.file == path]


def list_source_files(store: "Store", location: str) -> set[str]:
    """Return the names of the files that the rows of a version of a quarantine table came from."""
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
    from runnel.lake.scan.scan_sql import rows_sql

    metadata = table_metadata.load_metadata(store, location)
    with translate_duckdb_errors(), connect_duckdb() as con:
        names = con.execute(f"SELECT DISTINCT file FROM ({rows_sql(store, metadata)})").fetchall()
    return {name for (name,) in names if name is not None}


def find_path(file: str, paths: Collection[str]) -> str:
    """Return the path that `file` means: the whole path, or the end of exactly one; `file` itself if there is none."""
    matches = [file] if file in paths else sorted(path for path in paths if path.endswith(f"/{file.lstrip('/')}"))
    if len(matches) > 1:
        what = f"{len(matches)} files with quarantined rows are called {file}: {', '.join(matches)}"
        raise Mistake("QUARANTINE_FILE", what, fix=f"name one of them with its folder: --file {matches[0]}")
    return matches[0] if matches else file


def read_version_rows(store: "Store", metadata: "TableMetadata") -> list[QuarantinedRow]:
    """Return every row of a version of a quarantine table, the oldest first."""
    return [row for row, _ in _read_rows_with_files(store, metadata, read_entries(store, metadata))]


def _read_rows_with_files(
    store: "Store", metadata: "TableMetadata", manifest_entries: "Iterable[FileEntry]"
) -> list[tuple[QuarantinedRow, str]]:
    """Return the rows of data files, the oldest first, each with the name of its data file."""
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
    from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql

    entries = list(manifest_entries)
    files_sql = rows_sql(store, metadata, entries, with_positions=True)
    with translate_duckdb_errors(), connect_duckdb() as con:
        records = con.sql(f'SELECT * FROM ({files_sql}) ORDER BY "at", file, reason, raw').to_arrow_table().to_pylist()
    owner_lookup = OwnerLookup(store, entries)
    return [
        (
            QuarantinedRow(
                row["raw"],
                row["reason"],
                row["file"],
                row["run"],
                row["at"],
                owner_lookup.find_owner(name, row[POSITION_COLUMN]),
            ),
            name,
        )
        for row in records
        if (name := read_file_name(row[FILE_COLUMN]))
    ]


def replace_rows(
    store: "Store",
    base: str,
    removed_rows: Iterable[QuarantinedRow],
    added_rows: Iterable[QuarantinedRow],
    owners: Mapping[str, str] | None = None,
) -> str:
    """Stage a version without some of its rows and with others; return its location, or `base` if nothing changes.

    Only the data files that hold removed rows are rewritten; in shared ones, the rows of other owners are copied.
    `owners` maps file paths to owners.
    """
    metadata = table_metadata.load_metadata(store, base)
    pending_removals, new_rows = Counter(removed_rows), list(added_rows)
    if not pending_removals and not new_rows:
        return base
    entries_by_name = {read_file_name(entry.path): entry for entry in read_entries(store, metadata)}
    retained_by_name: dict[str, list[QuarantinedRow]] = {}
    changed_owners: dict[str, set[str]] = {}
    for row, name in _read_rows_with_files(store, metadata, entries_by_name.values()):
        if pending_removals[row]:
            pending_removals[row] -= 1
            changed_owners.setdefault(name, set()).add(row.owner or "")
        else:
            retained_by_name.setdefault(name, []).append(row)
    removed = [entries_by_name[name] for name in changed_owners]
    retained_rows = [
        row
        for name, file_owners in changed_owners.items()
        for row in retained_by_name.get(name, ())
        if (row.owner or "") in file_owners
    ]
    added = write_quarantined_rows(store, metadata, [*retained_rows, *_assign_owners(new_rows, owners or {})])
    for name, file_owners in changed_owners.items():
        added += write_excerpts(store, plan_owner_removal(store, base, [entries_by_name[name]], file_owners).excerpts)
    return stage_version(store, base, VersionEdit(added=added, removed=removed))
