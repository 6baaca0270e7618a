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

from runnel.errors import CorruptData
from runnel.lake.iceberg.file_io import missing_file_error, normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.parquet_writer import build_data_file

if TYPE_CHECKING:
    from runnel.lake.store import Store

_SORT_ORDER_ID = 15  # its position in Iceberg's record of a data file


def strip_rows(
    store: "Store",
    metadata: TableMetadata,
    entry: FileEntry,
    removed_positions: "np.ndarray[Any, Any]",
    *,
    keep_empty: bool = False,
) -> tuple[DataFile | None, int]:
    """Write the rows of `entry` without those at `removed_positions` to a new file, and return it with its row count.

    Returns None if no row is left, unless `keep_empty` asks for an empty file.
    """
    try:
        source = pq.ParquetFile(normalize_location(entry.path))
    except FileNotFoundError as error:
        raise missing_file_error(entry.path) from error
    with source:
        rows_left = source.metadata.num_rows - len(removed_positions)
        if rows_left == 0 and not keep_empty:
            return None, 0
        location = _choose_new_path(entry.path)
        output = store.io.new_output(location)
        stream: Any = output.create()  # pyarrow takes any file object
        with pq.ParquetWriter(
            cast(Any, stream), source.schema_arrow, compression="zstd", store_decimal_as_integer=True
        ) as writer:
            _copy_rows(source, writer, removed_positions)
        stream.close()
        written: pq.FileMetaData = writer.writer.metadata
        if written.num_rows != rows_left:
            raise CorruptData(
                "ERASE_ROWS",
                f"{normalize_location(entry.path)} should have kept {rows_left} rows, "
                f"but {written.num_rows} were written",
            )
        new_file = build_data_file(
            _use_file_schema(metadata, entry, source), location, written, len(output), entry.file.partition
        )
    new_file[_SORT_ORDER_ID] = entry.file.sort_order_id
    return new_file, rows_left


def _choose_new_path(path: str) -> str:
    """Return a new path; it keeps the prefix of the old name that identifies the source file of the rows."""
    folder, _, name = path.rpartition("/")
    source_prefix = re.match(r"[0-9a-f]{16}-", name)
    return f"{folder}/{source_prefix[0] if source_prefix else ''}{uuid.uuid4().hex}.parquet"


def _copy_rows(source: pq.ParquetFile, writer: pq.ParquetWriter, removed_positions: "np.ndarray[Any, Any]") -> None:
    start = 0
    for group in range(source.metadata.num_row_groups):
        count = source.metadata.row_group(group).num_rows
        mask = np.ones(count, dtype=bool)
        mask[removed_positions[(removed_positions >= start) & (removed_positions < start + count)] - start] = False
        start += count
        if mask.any():
            writer.write_table(source.read_row_group(group).filter(pa.array(mask)))


def _use_file_schema(metadata: TableMetadata, entry: FileEntry, source: pq.ParquetFile) -> TableMetadata:
    """Return metadata with the file's own schema, so that bounds of columns that were dropped since are kept."""
    file_schema = pyarrow_to_schema(source.schema_arrow, name_mapping=metadata.name_mapping())
    update = {
        "schemas": [file_schema],
        "current_schema_id": file_schema.schema_id,
        "default_spec_id": entry.file.spec_id,
    }
    return metadata.model_copy(update=update)
