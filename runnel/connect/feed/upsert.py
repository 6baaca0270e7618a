"""Remove the rows from a version whose keys were updated or removed.

Keys and rows are compared in this process or, if the key columns are large, in one shuffle of Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.connect.feed.key_matches import (
    DISPLACED_SIDE,
    PRESENT_SIDE,
    KeyedVersion,
    KeyFile,
    find_matching_places,
)
from runnel.connect.feed.key_table import create_key_table
from runnel.connect.feed.row_displacer import DISPLACED_TABLE, DisplacedFiles, RowDisplacer, displace_stored_places
from runnel.connect.feed.row_places import copy_to_warehouse, remove_scratch_files
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.work_runner import ChooseRunner, WorkRunner, run_in_process
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

PLACE_COLUMNS = f"old.{quote_identifier(FILE_COLUMN)} AS file, old.{quote_identifier(POSITION_COLUMN)} AS pos"
_KEYS, _PRESENT = "runnel_keys", "runnel_present"


@dataclass(frozen=True)
class KeyPaths:
    """Files of keys on this machine: of rows that were removed and, if it is known, of all rows that are present."""

    removed: Path | None = None
    present: Sequence[Path] = ()


def displace_rows(
    store: "Store",
    base: str,
    metadata: "TableMetadata",
    added: "Sequence[DataFile]",
    key: Sequence[str],
    *,
    key_paths: KeyPaths = KeyPaths(),  # noqa: B008 - it is frozen
    choose_runner: ChooseRunner = run_in_process,
) -> DisplacedFiles:
    """Return the file changes that remove rows from a version, by their keys.

    Rows are removed if their keys are in `added` or in the removed keys or, if there are files of present keys, in none
    of them. Rewritten files are written for `metadata`, which has the columns of the new version. `choose_runner` says
    where keys are compared and files are rewritten.
    """
    base_metadata = table_metadata.load_metadata(store, base)
    manifest_entries = list(read_entries(store, base_metadata))
    key_files = [normalize_location(file.file_path) for file in added]
    key_files += [str(key_paths.removed)] if key_paths.removed else []
    if not manifest_entries or not (key_files or key_paths.present):
        return DisplacedFiles()
    version = KeyedVersion(store.files, base_metadata, tuple(key))
    key_bytes = version.count_key_bytes(manifest_entries) + sum(file.file_size_in_bytes for file in added)
    runner = choose_runner(key_bytes)
    if runner.place.name == EXECUTORS:
        return _displace_in_units(runner, version, metadata, added, key_paths)
    with translate_duckdb_errors(), connect_duckdb() as con:
        displaced_condition = create_key_table(con, _KEYS, base_metadata, key, key_files)
        if key_paths.present:
            displaced_condition = (
                f"({displaced_condition} OR NOT "
                f"{create_key_table(con, _PRESENT, base_metadata, key, [str(path) for path in key_paths.present])})"
            )
        rows = rows_sql(store, base_metadata, manifest_entries, with_positions=True)
        con.execute(
            f"CREATE TEMP TABLE {DISPLACED_TABLE} AS "
            f"SELECT {PLACE_COLUMNS} FROM ({rows}) AS old WHERE {displaced_condition}"
        )
        return RowDisplacer(store, con, base_metadata, metadata, manifest_entries).displace()


def displace_places(store: "Store", base: str, metadata: "TableMetadata", places: pa.Table) -> DisplacedFiles:
    """Return the file changes that remove the rows at known places; see `displace_rows`."""
    base_metadata = table_metadata.load_metadata(store, base)
    manifest_entries = list(read_entries(store, base_metadata))
    if not manifest_entries:
        return DisplacedFiles()
    with translate_duckdb_errors(), connect_duckdb() as con:
        con.register(DISPLACED_TABLE, places)
        return RowDisplacer(store, con, base_metadata, metadata, manifest_entries).displace()


def _displace_in_units(
    runner: WorkRunner,
    version: KeyedVersion,
    metadata: "TableMetadata",
    added: "Sequence[DataFile]",
    key_paths: KeyPaths,
) -> DisplacedFiles:
    """Find the rows by their keys in one shuffle, and mark or rewrite them in units; see `displace_rows`."""
    manifest_entries = list(read_entries(version.files, version.metadata))
    scratch_files: list[str] = []

    def share(path: Path, side: int) -> KeyFile:
        scratch_files.append(copy_to_warehouse(version.files, metadata, path))
        return KeyFile(scratch_files[-1], side)

    try:
        key_files = [KeyFile(file.file_path, DISPLACED_SIDE) for file in added]
        key_files += [share(key_paths.removed, DISPLACED_SIDE)] if key_paths.removed else []
        key_files += [share(path, PRESENT_SIDE) for path in key_paths.present]
        places = find_matching_places(runner, version, manifest_entries, key_files)
        scratch_files += [part.location for part in places if part.location is not None]
        return displace_stored_places(runner, version, metadata, manifest_entries, places)
    finally:
        remove_scratch_files(version.files, scratch_files)
