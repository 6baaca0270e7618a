"""Mark rows as deleted by their places, in files of position deletes: the files that hold them stay as they are."""

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
    from runnel.lake.store import Store

_PATH_ID, _POSITION_ID = 2147483546, 2147483545  # given by Iceberg's specification


def _field(name: str, kind: pa.DataType, number: int) -> "pa.Field[Any]":
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})


PLACES = pa.schema([_field("file_path", pa.string(), _PATH_ID), _field("pos", pa.int64(), _POSITION_ID)])


@dataclass(frozen=True)
class Partition:
    """Where a file of deletes belongs: the partition of all the data files that it names."""

    spec_id: int
    values: Record


def mark(store: "Store", metadata: TableMetadata, partition: Partition, places: Iterable[pa.RecordBatch]) -> DataFile:
    """Write a file of deletes and return its entry. Places are sorted by file and position, and there is one."""
    provider = load_location_provider(metadata.location, metadata.properties)
    location = provider.new_data_location(f"{uuid.uuid4().hex}-deletes.parquet")
    output = store.io.new_output(location)
    count, least, most = 0, "", ""
    with (
        cast(Any, output.create(overwrite=True)) as stream,
        pq.ParquetWriter(stream, PLACES, compression="zstd") as writer,
    ):
        for batch in places:
            found = pa.Table.from_batches([batch]).cast(PLACES)
            writer.write_table(found)
            count += found.num_rows
            least = least or found["file_path"][0].as_py()
            most = found["file_path"][-1].as_py()
    failpoints.reach(failpoints.WRITE_DATA)
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition.values,
        record_count=count,
        file_size_in_bytes=len(output),
        lower_bounds={_PATH_ID: to_bytes(StringType(), least)},
        upper_bounds={_PATH_ID: to_bytes(StringType(), most)},
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    made.spec_id = partition.spec_id
    return made
