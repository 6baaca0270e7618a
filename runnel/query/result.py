"""The result of a query: a stream of Arrow batches from either engine."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from runnel import notebook_html
from runnel.errors import Mistake, RunnelError, plural
from runnel.query.arrow_types import to_json_rows, to_rows

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


_MAX_SHOWN_ROWS = 20


class BatchStream(Protocol):
    """A stream of batches from an engine; closing it releases its resources."""

    engine: str
    schema: pa.Schema

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end. Raises NeedsSpark if only Spark can continue."""

    def close(self) -> None:
        """Release everything; may be called again."""


class NeedsSpark(Exception):
    """DuckDB can't run the query, so Spark has to; the message says why, as a phrase."""


class QueryResult:
    """The result of a query.

    Read it once: as a stream (`batches`, `json_rows`) or as a whole (`table`, `df`, `rows`). `reason` tells why Spark
    ran the query; None if DuckDB did. `at` is the id of the commit that was read.
    """

    def __init__(
        self,
        stream: BatchStream,
        *,
        at: str,
        started_at: float,
        reason: str | None,
        switch_to_spark: Callable[[str], BatchStream],
    ) -> None:
        self.at = at
        self.reason = reason
        self._stream = stream
        self._switch_to_spark = switch_to_spark
        self._started_at = started_at
        self._ended_at: float | None = None
        self._buffered: deque[pa.RecordBatch] = deque()  # fetched, not yielded yet
        self._table: pa.Table | None = None
        self._is_read = False
        self._has_yielded = False
        self._prefetch_rows(1)  # as long as nothing was yielded, Spark can take over

    @property
    def engine(self) -> str:
        """Return which engine answered: `duckdb` or `spark`."""
        return self._stream.engine

    @property
    def schema(self) -> pa.Schema:
        """Return the columns with their Arrow types."""
        return self._stream.schema

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, as Spark gives them; several may be the same."""
        return list(self.schema.names)

    @property
    def seconds(self) -> float:
        """Return the seconds from the start of the query to the end of the result, or until now."""
        return (time.perf_counter() if self._ended_at is None else self._ended_at) - self._started_at

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, which are not cached."""
        self._start_reading()
        while (batch := self._next_batch()) is not None:
            self._has_yielded = True
            yield batch

    def table(self) -> pa.Table:
        """Return all rows as an Arrow table, which is cached."""
        if self._table is None:
            self._start_reading()
            engine, batches = self.engine, list[pa.RecordBatch]()
            while (batch := self._next_batch()) is not None:
                if self.engine != engine:  # Spark starts from the beginning
                    engine, batches = self.engine, []
                batches.append(batch)
            self._table = pa.Table.from_batches(batches, self.schema)
        return self._table

    def df(self) -> "pd.DataFrame":
        """Return all rows as a pandas frame."""
        frame: pd.DataFrame = self.table().to_pandas()
        return frame

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows as tuples of Python values."""
        return [row for batch in self.table().to_batches() for row in to_rows(batch)]

    def json_rows(self) -> Iterator[list[Any]]:
        """Yield the rows as lists that JSON can hold: times in ISO, decimals as strings, bytes in base64."""
        for batch in self.batches():
            yield from to_json_rows(batch)

    def close(self) -> None:
        """Release all resources; may be called again."""
        self._buffered.clear()
        self._is_read = True
        self._finish()

    def _repr_html_(self) -> str:
        """Return the first rows for notebooks; the result can still be read afterwards."""
        if self._table is None and self._is_read:
            return "<div>this result was read or closed already</div>"
        if self._table is None:
            self._prefetch_rows(_MAX_SHOWN_ROWS + 1)
        batches = self._buffered if self._table is None else self._table.slice(0, _MAX_SHOWN_ROWS + 1).to_batches()
        rows = [row for batch in batches for row in to_json_rows(batch.slice(0, _MAX_SHOWN_ROWS + 1))][
            : _MAX_SHOWN_ROWS + 1
        ]
        is_more = len(rows) > _MAX_SHOWN_ROWS
        number_columns = [position for position, field in enumerate(self.schema) if _is_number(field.type)]
        caption = f"the first {_MAX_SHOWN_ROWS} rows; .df() has all" if is_more else plural(len(rows), "row")
        caption += f", by {self.engine}, at <code>{notebook_html.render_text(self.at[:8])}</code>"
        return f"{notebook_html.render_table(self.columns, rows[:_MAX_SHOWN_ROWS], number_columns)}<div>{caption}</div>"

    def __enter__(self) -> "QueryResult":
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        return self.batches()

    def __del__(self) -> None:
        """Release the resources of an abandoned result."""
        if hasattr(self, "_stream"):
            self._stream.close()

    def _start_reading(self) -> None:
        if self._is_read:
            what = "this result was read or closed already"
            raise Mistake("RESULT_READ", what, fix="run the query again; .table() can be called several times")
        self._is_read = True

    def _next_batch(self) -> pa.RecordBatch | None:
        return self._buffered.popleft() if self._buffered else self._fetch_batch()

    def _prefetch_rows(self, rows: int) -> None:
        """Fetch so many rows, or all if there are fewer, and buffer them for later reads."""
        while sum(batch.num_rows for batch in self._buffered) < rows:
            engine, batch = self.engine, self._fetch_batch()
            if self.engine != engine:  # Spark starts from the beginning
                self._buffered.clear()
            if batch is None:
                return
            self._buffered.append(batch)

    def _fetch_batch(self) -> pa.RecordBatch | None:
        if self._ended_at is not None:
            return None
        try:
            batch = self._stream.read()
        except NeedsSpark as needs_spark:
            self._stream.close()
            if self._has_yielded:
                what = f"DuckDB stopped in the middle of the answer: {needs_spark}"
                raise RunnelError("SQL_FAILED", what, fix="use Spark: engine='spark', or --engine spark") from None
            self.reason = str(needs_spark)
            self._stream = self._switch_to_spark(str(needs_spark))
            return self._fetch_batch()
        except BaseException:
            self._finish()
            raise
        if batch is None:
            self._finish()
        return batch

    def _finish(self) -> None:
        if self._ended_at is None:
            self._ended_at = time.perf_counter()
        self._stream.close()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
