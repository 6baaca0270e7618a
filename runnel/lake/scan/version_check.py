"""Check whether a version of a table can still be read: its files are there, and each has a footer."""

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.errors import CorruptData
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata

if TYPE_CHECKING:
    from runnel.lake.store import Store


def can_read_version(store: "Store", location: str) -> bool:
    """Return whether the metadata, the manifests and the footers of all files of a version can be read."""
    try:
        for entry in read_entries(store, load_metadata(store, location)):
            with store.io.new_input(entry.path).open() as stream:
                pq.read_metadata(cast(Any, stream))
    except (CorruptData, OSError, pa.ArrowException):
        return False
    return True
