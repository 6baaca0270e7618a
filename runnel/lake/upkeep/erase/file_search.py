"""Search data files for the rows that a condition matches: the work units of the first step of an erasure.

A unit is searched in this process or on an executor of Spark. Rows are read directly from files, so rows that a delete
hides are found as well. Reads only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from runnel.errors import Mistake
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.scan.scan_units import UNIT_BYTES, count_bytes, pack_files, read_size
from runnel.lake.upkeep.position_set import PositionSet
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from runnel.lake.work_runner import WorkRunner

BLOB = "blob"
_FILES_AT_ONCE = 200
_PROBE_ID = 1_000_000  # no table has this schema id; so files are read by field id, never by name


@dataclass(frozen=True)
class SearchGroup:
    """Data files that are searched in the same way.

    `metadata` has the columns to read as its schema, and no snapshots; `condition_sql` is the condition over them. With
    `has_blobs`, the blobs of matching rows are found, too.
    """

    metadata: TableMetadata = field(repr=False)
    condition_sql: str = field(repr=False)  # it may name a person
    has_blobs: bool
    entries: tuple[FileEntry, ...]


@dataclass(frozen=True)
class MatchingRows:
    """The positions of matching rows by data file, and the blobs that they refer to."""

    positions_by_file: dict[str, PositionSet]
    blobs: frozenset[str] = frozenset()


def build_search_group(
    metadata: TableMetadata,
    fields: Sequence[NestedField],
    blob_field: NestedField | None,
    condition_sql: str,
    entries: Sequence[FileEntry],
) -> SearchGroup:
    """Return files of versions that are searched by a condition over `fields`; `blob_field` is that of blobs, if any.

    Of the metadata only what is needed to read the files is used.
    """
    read_fields = list(fields)
    if blob_field is not None and all(column.field_id != blob_field.field_id for column in fields):
        read_fields.append(NestedField(blob_field.field_id, BLOB, blob_field.field_type, required=False))
    schema = Schema(*read_fields, schema_id=_PROBE_ID)
    update = {"schemas": [schema], "current_schema_id": _PROBE_ID}
    probe_metadata = drop_history(metadata).model_copy(update=update)
    return SearchGroup(probe_metadata, condition_sql, blob_field is not None, tuple(entries))


def divide_groups(groups: Sequence[SearchGroup], runner: "WorkRunner") -> Iterator[SearchGroup]:
    """Yield the work units: few files at a time on executors; here many, because DuckDB reads them in parallel."""
    for group in groups:
        unit_bytes = UNIT_BYTES if runner.place.name == EXECUTORS else count_bytes(group.entries)
        for entries in pack_files(
            group.entries, read_size, runner.parallel_units, unit_bytes=unit_bytes, most_files=_FILES_AT_ONCE
        ):
            yield replace(group, entries=tuple(entries))


@dataclass(frozen=True)
class FileSearcher:
    """Searches the files of a unit; can be pickled."""

    files: WarehouseFiles

    def __call__(self, unit: SearchGroup) -> MatchingRows:
        """Return the rows that match; raise a Mistake if the condition can't be compared with the columns."""
        import duckdb

        rows = rows_sql(self.files, unit.metadata, unit.entries, with_positions=True)
        blob_column = f", {BLOB}" if unit.has_blobs else ""
        sql = f'SELECT "{FILE_COLUMN}", "{POSITION_COLUMN}"{blob_column} FROM ({rows}) WHERE {unit.condition_sql}'
        try:
            with connect_duckdb() as connection:
                result = connection.execute(sql).fetchnumpy()
        except (duckdb.ConversionException, duckdb.BinderException, duckdb.OutOfRangeException) as error:
            what = f"the condition can't be compared with the table's columns: {str(error).splitlines()[0]}"
            raise Mistake("ERASE_CONDITION", what, fix="compare each column with values of its own type") from error
        return _collect_rows(unit.entries, result)


def _collect_rows(entries: Sequence[FileEntry], result: Mapping[str, Any]) -> MatchingRows:
    paths = {normalize_location(entry.path): entry.path for entry in entries}
    files, positions = (
        np.asarray(result[FILE_COLUMN], dtype=object),
        np.asarray(result[POSITION_COLUMN], dtype=np.int64),
    )
    positions_by_file = {paths[file]: PositionSet.build(positions[files == file]) for file in sorted(set(files))}
    blobs = np.ma.compressed(np.ma.asarray(result[BLOB])) if BLOB in result and len(files) else ()
    return MatchingRows(positions_by_file, frozenset(str(blob) for blob in blobs if blob is not None))
