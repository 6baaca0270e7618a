"""Store the places of rows, each a file and a position there, in files of the warehouse that no version names.

Work units on other machines find many places and pass them on in such files. The caller removes them; if it can't,
`runnel gc` does.
"""

import shutil
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.warehouse_files import FileAccess

_PLACE_FIELDS: "list[pa.Field[Any]]" = [pa.field("file", pa.string()), pa.field("pos", pa.int64())]
_PLACE_SCHEMA = pa.schema(_PLACE_FIELDS)


@dataclass(frozen=True)
class RowPlaces:
    """A file of places, or None if there are none, and how many of them are in each data file."""

    location: str | None = None
    counts: tuple[tuple[str, int], ...] = ()


def write_places(
    store: "FileAccess", metadata: "TableMetadata", con: "duckdb.DuckDBPyConnection", table: str
) -> RowPlaces:
    """Write the places in a DuckDB table with the columns `file` and `pos`."""
    counts = con.execute(f"SELECT file, count(*) FROM {table} GROUP BY file").fetchall()
    if not counts:
        return RowPlaces()
    location = new_scratch_location(metadata, "places")
    rows = cast("Iterable[pa.RecordBatch]", con.sql(f"SELECT file, pos FROM {table}").to_arrow_reader(ROW_GROUP_ROWS))
    output = store.io.new_output(location)
    with cast(Any, output.create(overwrite=True)) as stream, pq.ParquetWriter(stream, _PLACE_SCHEMA) as writer:
        for batch in rows:
            writer.write_table(pa.Table.from_batches([batch]).cast(_PLACE_SCHEMA))
    return RowPlaces(location, tuple((str(path), int(count)) for path, count in counts))


def copy_to_warehouse(store: "FileAccess", metadata: "TableMetadata", path: Path) -> str:
    """Copy a file of this machine to where other machines see it, and return its location."""
    location = new_scratch_location(metadata, "keys")
    with path.open("rb") as source, cast(Any, store.io.new_output(location).create(overwrite=True)) as stream:
        shutil.copyfileobj(source, stream)
    return location


def new_scratch_location(metadata: "TableMetadata", kind: str) -> str:
    """Return a location for a file that is needed only while a version is staged."""
    return f"{metadata.location}/data/{uuid.uuid4().hex}-{kind}.parquet"


def remove_scratch_files(store: "FileAccess", locations: Sequence[str]) -> None:
    """Remove files that are no longer needed."""
    for location in locations:
        with suppress(OSError):  # gc removes what is left
            store.io.delete(location)
