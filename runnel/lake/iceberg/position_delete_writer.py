"""Write position delete files, which delete rows without rewriting the data files that contain them."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from runnel.lake import failpoints

if TYPE_CHECKING:
    from runnel.lake.warehouse_files import FileAccess

_PATH_ID, _POSITION_ID = 2147483546, 2147483545  # reserved field ids of Iceberg's specification


def _required_field(name: str, kind: pa.DataType, number: int) -> "pa.Field[Any]":
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})


POSITION_DELETE_SCHEMA = pa.schema(
    [_required_field("file_path", pa.string(), _PATH_ID), _required_field("pos", pa.int64(), _POSITION_ID)]
)


@dataclass(frozen=True)
class DeletePartition:
    """The partition of a delete file, which is that of all data files it refers to."""

    spec_id: int
    values: Record


def write_position_deletes(
    store: "FileAccess", metadata: TableMetadata, partition: DeletePartition, positions: Iterable[pa.RecordBatch]
) -> DataFile:
    """Write a position delete file and return its entry. `positions` is sorted by file and position, and not empty."""
    provider = load_location_provider(metadata.location, metadata.properties)
    location = provider.new_data_location(f"{uuid.uuid4().hex}-deletes.parquet")
    output = store.io.new_output(location)
    count, first_path, last_path = 0, "", ""
    with (
        cast(Any, output.create(overwrite=True)) as stream,
        pq.ParquetWriter(stream, POSITION_DELETE_SCHEMA, compression="zstd") as writer,
    ):
        for batch in positions:
            table = pa.Table.from_batches([batch]).cast(POSITION_DELETE_SCHEMA)
            writer.write_table(table)
            count += table.num_rows
            first_path = first_path or table["file_path"][0].as_py()
            last_path = table["file_path"][-1].as_py()
    failpoints.reach(failpoints.WRITE_DATA)
    delete_file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition.values,
        record_count=count,
        file_size_in_bytes=len(output),
        lower_bounds={_PATH_ID: to_bytes(StringType(), first_path)},
        upper_bounds={_PATH_ID: to_bytes(StringType(), last_path)},
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    delete_file.spec_id = partition.spec_id
    return delete_file
