"""Write the rows of a group of files into new files of one partition, in the table's order.

Rows stream from DuckDB to Parquet; a sort that does not fit in memory spills to a temporary folder.
"""

from collections.abc import Callable
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

from runnel.errors import Broken
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.scan_sql import quoted, rows_sql
from runnel.lake.upkeep.compact.file_selection import Group, Home

if TYPE_CHECKING:
    from runnel.lake.store import Store

BATCH_BYTES = 16 * 1024 * 1024
MOST_ROWS = 65_536
_SORT_ORDER_ID = 15  # its place in Iceberg's record of a data file
_STEPS: dict[type[Transform], str] = {  # type: ignore[type-arg]
    YearTransform: "year",
    MonthTransform: "month",
    DayTransform: "day",
    HourTransform: "hour",
}


@dataclass(frozen=True)
class _Key(PartitionKey):
    """A partition that is known, whatever columns are left to compute it from."""

    known: Record = field(default_factory=Record)

    @cached_property
    def partition(self) -> Record:
        """Return the partition's values."""
        return self.known

    def to_path(self) -> str:
        """Return the folder that the partition's files go to."""
        try:
            return super().to_path()
        except ValueError:  # the column that it was made from is gone
            return f"spec-{self.partition_spec.spec_id}"


class PartitionWriter(RowWriter):
    """Turns batches of rows that all belong to one partition, of any spec of the table, into data files."""

    def __init__(self, store: "Store", metadata: TableMetadata, home: Home, target_bytes: int) -> None:
        super().__init__(
            store, metadata.model_copy(update={"default_spec_id": home.spec_id}), target_bytes=target_bytes
        )
        self.row_group_bytes = min(self.row_group_bytes, target_bytes)
        self._key = None if self.spec.is_unpartitioned() else _Key([], self.spec, self.schema, home.partition)

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write some rows."""
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        if table.num_rows:
            self.rows += table.num_rows
            self._append(self._key, table.select(self.arrow_schema.names).cast(self.arrow_schema))


def pour(
    store: "Store", metadata: TableMetadata, group: Group, target_bytes: int, wrote: Callable[[int], None]
) -> list[DataFile]:
    """Write a group's rows anew and return the files; raise where not every row arrived."""
    order, whole = _order(metadata)
    sql = rows_sql(store, metadata, [*group.data, *group.deletes])
    if order:
        sql = f"SELECT * FROM ({sql}) ORDER BY {order}"
    writer = PartitionWriter(store, metadata, group.home, target_bytes)
    with connect() as connection:
        for batch in connection.sql(sql).to_arrow_reader(_batch_rows(group)):
            writer.write(batch)
            wrote(batch.num_rows)
    made = writer.close()
    if writer.rows != group.rows or sum(file.record_count for file in made) != group.rows:
        raise Broken(
            "COMPACT_ROWS",
            f"a compaction of {len(group.data)} files wrote {writer.rows} rows, but they hold {group.rows}; "
            "nothing was published",
            fix="run `runnel fsck`: a file of the table may be damaged",
        )
    if order and whole:
        for file in made:
            file[_SORT_ORDER_ID] = metadata.default_sort_order_id
    return made


def _batch_rows(group: Group) -> int:
    size = sum(entry.file.file_size_in_bytes for entry in group.data)
    return max(64, min(MOST_ROWS, BATCH_BYTES * max(group.rows, 1) // max(size, 1)))


def _order(metadata: TableMetadata) -> tuple[str, bool]:
    """Return the table's sort order for DuckDB, and whether that is all of it; a bucket can't be sorted by."""
    parts: list[str] = []
    fields = metadata.sort_order().fields
    for part in fields:
        key = _sort_key(metadata, part)
        if key is None:
            break
        direction = "ASC" if part.direction == SortDirection.ASC else "DESC"
        nulls = "FIRST" if part.null_order == NullOrder.NULLS_FIRST else "LAST"
        parts.append(f"{key} {direction} NULLS {nulls}")
    return ", ".join(parts), len(parts) == len(fields)


def _sort_key(metadata: TableMetadata, part: SortField) -> str | None:
    column = next((known for known in metadata.schema().fields if known.field_id == part.source_id), None)
    if column is None:
        return None
    name, transform = quoted(column.name), part.transform
    if isinstance(transform, IdentityTransform):
        return name
    if type(transform) in _STEPS:
        return f"date_trunc('{_STEPS[type(transform)]}', {name})"
    if isinstance(transform, TruncateTransform) and isinstance(column.field_type, StringType):
        return f"left({name}, {transform.width})"
    return None
