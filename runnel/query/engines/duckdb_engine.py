"""Run a prepared query in the DuckDB of this process, as a stream of Arrow batches."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from runnel.errors import Mistake
from runnel.lake.iceberg.file_io import missing_file_error, normalize_location
from runnel.query.arrow_types import cast_batch, to_arrow_type
from runnel.query.engines.delayed_pin import DelayedPin
from runnel.query.engines.duckdb_instance import open_instance
from runnel.query.query_limits import enforce_limit
from runnel.query.result import NeedsSpark

if TYPE_CHECKING:
    from runnel.query.engine import PreparedQuery, ResolvedQuery

BATCH_ROWS = 65_536


class DuckdbStream:
    """The rows of a query, computed by DuckDB as they are read."""

    engine = "duckdb"

    def __init__(self, request: "ResolvedQuery", prepared: "PreparedQuery") -> None:
        self._prepared = prepared
        self._query_limit = request.query_limit
        self.schema = pa.schema([pa.field(column.name, to_arrow_type(column.type)) for column in prepared.columns])
        self._cleanup = ExitStack()
        self._cleanup.callback(DelayedPin(request.store.db, request.commit.id).release)
        try:
            with self._query_limit.measure_work():
                self._reader = self._start_query(normalize_location(request.store.warehouse))
        except BaseException:
            self.close()
            raise

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end."""
        try:
            with self._query_limit.measure_work():
                return cast_batch(self._reader.read_next_batch(), self.schema)
        except StopIteration:
            return None
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._describe_error(error) from error

    def close(self) -> None:
        """Stop the query if it still runs, and release all resources."""
        self._cleanup.close()

    def _start_query(self, warehouse: str) -> pa.RecordBatchReader:
        instance = self._cleanup.enter_context(open_instance(warehouse, self._prepared.external_files))
        cursor = instance.cursor()
        self._cleanup.callback(cursor.close)
        self._cleanup.enter_context(enforce_limit(self._query_limit, cursor.interrupt))
        try:
            for scan in self._prepared.scans:
                instance.ensure_view(scan.view, scan.select)
            if not instance.is_single_select(self._prepared.sql):
                raise Mistake("SQL_NOT_READ_ONLY", "the query is not a single SELECT", fix="send one SELECT at a time")
            reader: pa.RecordBatchReader = cursor.sql(self._prepared.sql).to_arrow_reader(BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._describe_error(error) from error
        self._cleanup.callback(_stop_query, cursor, reader)
        return reader

    def _describe_error(self, error: Exception) -> Exception:
        """Return the error to raise for an error of DuckDB; in most cases Spark has to run the query."""
        if (stop_error := self._query_limit.stop_error()) is not None:
            return stop_error
        if isinstance(error, duckdb.PermissionException):
            what = "the query reaches outside the lake, which is not allowed"
            return Mistake("SQL_NOT_READ_ONLY", what, fix="read tables of the lake, written as layer.name")
        if isinstance(error, (duckdb.IOException, OSError)):
            for scan in self._prepared.scans:
                for path in scan.paths:
                    if not Path(path).exists():
                        return missing_file_error(path)
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return NeedsSpark(f"DuckDB failed: {line[:300]}")


def _stop_query(cursor: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader) -> None:
    with suppress(duckdb.Error, pa.ArrowException, OSError):
        cursor.interrupt()
        reader.close()
