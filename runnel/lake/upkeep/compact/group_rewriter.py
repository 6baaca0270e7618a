"""Write the rows of a group of files into new files of one partition, in the table's order.

Rows stream from DuckDB to Parquet; a sort that does not fit in memory spills to a temporary folder. A group is a work
unit: it is rewritten in this process or on an executor of Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from runnel.errors import CorruptData
from runnel.lake.iceberg.data_file_owners import RowRun
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.upkeep.compact.file_selection import FileGroup, TargetPartition
from runnel.lake.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import FileAccess

BATCH_BYTES = 16 * 1024 * 1024
MOST_ROWS = 65_536
_SORT_ORDER_ID = 15  # its position in Iceberg's record of a data file
_DATE_PARTS: dict[type[Transform], str] = {  # type: ignore[type-arg]
    YearTransform: "year",
    MonthTransform: "month",
    DayTransform: "day",
    HourTransform: "hour",
}


@dataclass(frozen=True)
class _KnownPartitionKey(PartitionKey):
    """A partition whose values are known, even if the columns they were computed from no longer exist."""

    partition_values: Record = field(default_factory=Record)

    @cached_property
    def partition(self) -> Record:
        """Return the partition's values."""
        return self.partition_values

    def to_path(self) -> str:
        """Return the folder that the partition's files go to."""
        try:
            return super().to_path()
        except ValueError:  # the column that it was computed from no longer exists
            return f"spec-{self.partition_spec.spec_id}"


class PartitionWriter(RowWriter):
    """Writes batches of rows that all belong to one partition, of any spec of the table, into data files."""

    def __init__(
        self,
        store: "FileAccess",
        metadata: TableMetadata,
        target_partition: TargetPartition,
        target_bytes: int,
        *,
        is_shared: bool = False,
    ) -> None:
        super().__init__(
            store,
            metadata.model_copy(update={"default_spec_id": target_partition.spec_id}),
            target_bytes=target_bytes,
            is_shared=is_shared,
        )
        self.row_group_bytes = min(self.row_group_bytes, target_bytes)
        self._key = (
            None
            if self.spec.is_unpartitioned()
            else _KnownPartitionKey([], self.spec, self.schema, target_partition.partition)
        )

    def _append_rows(self, table: pa.Table, runs: Sequence[RowRun]) -> None:
        self._append(self._key, table, runs)


@dataclass(frozen=True)
class GroupRewriter:
    """Rewrites groups of files of one version of a table; can be pickled.

    `metadata` needs no snapshots: the groups name the files.
    """

    files: WarehouseFiles
    metadata: TableMetadata
    target_bytes: int

    def __call__(self, group: FileGroup) -> list[DataFile]:
        """Rewrite a group and return the new files."""
        return rewrite_group(self.files, self.metadata, group, self.target_bytes)


def rewrite_group(store: "FileAccess", metadata: TableMetadata, group: FileGroup, target_bytes: int) -> list[DataFile]:
    """Rewrite a group's rows and return the new files; raise if rows are missing."""
    order, is_complete = _build_sort_order(metadata)
    sql = rows_sql(store, metadata, [*group.data, *group.deletes])
    if order:
        sql = f"SELECT * FROM ({sql}) ORDER BY {order}"
    writer = PartitionWriter(store, metadata, group.target_partition, target_bytes)
    with connect_duckdb() as connection:
        for batch in connection.sql(sql).to_arrow_reader(choose_batch_rows(group)):
            writer.write(batch)
    new_files = writer.close()
    check_row_count(group, writer, new_files)
    if order and is_complete:
        for file in new_files:
            file[_SORT_ORDER_ID] = metadata.default_sort_order_id
    return new_files


def check_row_count(group: FileGroup, writer: PartitionWriter, new_files: list[DataFile]) -> None:
    """Raise if the new files don't have as many rows as the group."""
    if writer.rows != group.rows or sum(file.record_count for file in new_files) != group.rows:
        raise CorruptData(
            "COMPACT_ROWS",
            f"a compaction of {len(group.data)} files wrote {writer.rows} rows, but they hold {group.rows}; "
            "nothing was published",
            fix="run `runnel fsck`: a file of the table may be damaged",
        )


def choose_batch_rows(group: FileGroup) -> int:
    """Return how many rows of a group are read at once."""
    size = sum(entry.file.file_size_in_bytes for entry in group.data)
    return max(64, min(MOST_ROWS, BATCH_BYTES * max(group.rows, 1) // max(size, 1)))


def _build_sort_order(metadata: TableMetadata) -> tuple[str, bool]:
    """Return the table's sort order for DuckDB, and whether it is complete; DuckDB can't sort by a bucket."""
    terms: list[str] = []
    fields = metadata.sort_order().fields
    for sort_field in fields:
        key = _build_sort_key(metadata, sort_field)
        if key is None:
            break
        direction = "ASC" if sort_field.direction == SortDirection.ASC else "DESC"
        nulls = "FIRST" if sort_field.null_order == NullOrder.NULLS_FIRST else "LAST"
        terms.append(f"{key} {direction} NULLS {nulls}")
    return ", ".join(terms), len(terms) == len(fields)


def _build_sort_key(metadata: TableMetadata, sort_field: SortField) -> str | None:
    column = next(
        (candidate for candidate in metadata.schema().fields if candidate.field_id == sort_field.source_id), None
    )
    if column is None:
        return None
    name, transform = quote_identifier(column.name), sort_field.transform
    if isinstance(transform, IdentityTransform):
        return name
    if type(transform) in _DATE_PARTS:
        return f"date_trunc('{_DATE_PARTS[type(transform)]}', {name})"
    if isinstance(transform, TruncateTransform) and isinstance(column.field_type, StringType):
        return f"left({name}, {transform.width})"
    return None
