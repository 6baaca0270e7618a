"""Write a data file without some of its rows.

The columns stay as they are in the file, also those that newer schemas have dropped: older versions read them. Never
touches the file that it reads.
"""

import re
import uuid
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import Broken
from runnel.lake.iceberg.file_io import missing, plain
from runnel.lake.iceberg.manifests import Entry
from runnel.lake.iceberg.parquet_writer import data_file

if TYPE_CHECKING:
    from runnel.lake.store import Store

_SORT_ORDER_ID = 15  # its place in Iceberg's record of a data file


def stripped(
    store: "Store", metadata: TableMetadata, entry: Entry, gone: "np.ndarray[Any, Any]", *, keep_empty: bool = False
) -> tuple[DataFile | None, int]:
    """Return a new file with the rows of `entry` but those at the places `gone`, or None where no row is left.

    With `keep_empty` there is a file all the same.
    """
    try:
        source = pq.ParquetFile(plain(entry.path))
    except FileNotFoundError as error:
        raise missing(entry.path) from error
    with source:
        left = source.metadata.num_rows - len(gone)
        if left == 0 and not keep_empty:
            return None, 0
        location = _beside(entry.path)
        output = store.io.new_output(location)
        stream: Any = output.create()  # pyarrow takes any file object
        with pq.ParquetWriter(
            cast(Any, stream), source.schema_arrow, compression="zstd", store_decimal_as_integer=True
        ) as writer:
            _copy(source, writer, gone)
        stream.close()
        written: pq.FileMetaData = writer.writer.metadata
        if written.num_rows != left:
            raise Broken(
                "ERASE_ROWS", f"{plain(entry.path)} was to keep {left} rows, but {written.num_rows} were written"
            )
        made = data_file(_as_written(metadata, entry, source), location, written, len(output), entry.file.partition)
    made[_SORT_ORDER_ID] = entry.file.sort_order_id
    return made, left


def _beside(path: str) -> str:
    """Return a fresh name that starts like the old one where that tells from which file of a source the rows came."""
    folder, _, name = path.rpartition("/")
    known = re.match(r"[0-9a-f]{16}-", name)
    return f"{folder}/{known[0] if known else ''}{uuid.uuid4().hex}.parquet"


def _copy(source: pq.ParquetFile, writer: pq.ParquetWriter, gone: "np.ndarray[Any, Any]") -> None:
    start = 0
    for group in range(source.metadata.num_row_groups):
        count = source.metadata.row_group(group).num_rows
        keep = np.ones(count, dtype=bool)
        keep[gone[(gone >= start) & (gone < start + count)] - start] = False
        start += count
        if keep.any():
            writer.write_table(source.read_row_group(group).filter(pa.array(keep)))


def _as_written(metadata: TableMetadata, entry: Entry, source: pq.ParquetFile) -> TableMetadata:
    """Return metadata whose schema is the file's own, so that its bounds are kept for columns that are gone by now."""
    found = pyarrow_to_schema(source.schema_arrow, name_mapping=metadata.name_mapping())
    update = {"schemas": [found], "current_schema_id": found.schema_id, "default_spec_id": entry.file.spec_id}
    return metadata.model_copy(update=update)
