"""Rows are written by as many threads as the process may use; an executor's task with one core has only its own."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from runnel.connect.ingest.part_writer import PathRows, write_parts
from runnel.lake.iceberg import table_metadata
from runnel.lake.scan import duckdb_connection
from runnel.lake.store import Store
from runnel.names import TableName

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
PATHS = ("a.csv", "b.csv", "c.csv")


@pytest.mark.parametrize(("threads", "writes_in_threads"), [(1, False), (2, True)])
def test_the_limit_of_threads_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch, threads: int, writes_in_threads: bool
) -> None:
    monkeypatch.setattr(duckdb_connection, "_limits", (threads, 1 << 30))
    metadata = table_metadata.create_table(store, TableName.parse("ods.t"), SCHEMA)[1]
    writer_threads: set[str] = set()

    def list_parts() -> Iterator[PathRows]:
        for path in PATHS:
            yield PathRows(pa.record_batch({"id": pa.array([1, 2])}), ((path, 2),))
            writer_threads.update(thread.name for thread in threading.enumerate() if "runnel-ingest" in thread.name)

    written = write_parts(store, metadata, list_parts(), lambda _: None, {})
    assert written.rows == 6 and {*written.locations_by_path} == {*PATHS} and len(written.files) == len(PATHS)
    assert bool(writer_threads) == writes_in_threads
