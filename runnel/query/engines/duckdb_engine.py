"""Run a prepared query in the DuckDB of this process, as a stream of Arrow batches."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from runnel.errors import Mistake
from runnel.lake.iceberg.file_io import missing, plain
from runnel.query.arrow_types import arrow_type, fitted
from runnel.query.engines.delayed_pin import Hold
from runnel.query.engines.duckdb_instance import opened
from runnel.query.query_limits import watched
from runnel.query.result import Stuck

if TYPE_CHECKING:
    from runnel.query.engine import Prepared, Question

BATCH_ROWS = 65_536


class LocalStream:
    """The rows of a query, computed by DuckDB as they are read."""

    engine = "duckdb"

    def __init__(self, question: "Question", prepared: "Prepared") -> None:
        self._prepared = prepared
        self._bound = question.bound
        self.schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in prepared.columns])
        self._held = ExitStack()
        self._held.callback(Hold(question.store.db, question.commit.id).release)
        try:
            with self._bound.working():
                self._reader = self._start(plain(question.store.warehouse))
        except BaseException:
            self.close()
            raise

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end."""
        try:
            with self._bound.working():
                return fitted(self._reader.read_next_batch(), self.schema)
        except StopIteration:
            return None
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._told(error) from error

    def close(self) -> None:
        """Stop the query if it still runs, and give everything back."""
        self._held.close()

    def _start(self, warehouse: str) -> pa.RecordBatchReader:
        found = self._held.enter_context(opened(warehouse, self._prepared.outside))
        cursor = found.cursor()
        self._held.callback(cursor.close)
        self._held.enter_context(watched(self._bound, cursor.interrupt))
        try:
            for one in self._prepared.sources:
                found.view(one.view, one.select)
            if not found.check(self._prepared.sql):
                raise Mistake("SQL_NOT_READ_ONLY", "the query is not a single SELECT", fix="ask one SELECT at a time")
            reader: pa.RecordBatchReader = cursor.sql(self._prepared.sql).to_arrow_reader(BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._told(error) from error
        self._held.callback(_stop, cursor, reader)
        return reader

    def _told(self, error: Exception) -> Exception:
        """Return what an error of DuckDB means: mostly nothing but that Spark has to decide."""
        if (late := self._bound.over()) is not None:
            return late
        if isinstance(error, duckdb.PermissionException):
            what = "the query reaches outside the lake, which is not allowed"
            return Mistake("SQL_NOT_READ_ONLY", what, fix="read tables of the lake, written as layer.name")
        if isinstance(error, (duckdb.IOException, OSError)):
            for one in self._prepared.sources:
                for path in one.paths:
                    if not Path(path).exists():
                        return missing(path)
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Stuck(f"DuckDB failed: {line[:300]}")


def _stop(cursor: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader) -> None:
    with suppress(duckdb.Error, pa.ArrowException, OSError):
        cursor.interrupt()
        reader.close()
