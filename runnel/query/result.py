"""The answer to a query: streamed, in Arrow batches, from whichever engine gave it."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from runnel import notebook_html
from runnel.errors import Mistake, RunnelError
from runnel.query.arrow_types import json_rows_of, rows_of

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


_MOST_SHOWN = 20


class Stream(Protocol):
    """Batches from an engine, one after the other; closing it releases everything that it holds."""

    engine: str
    schema: pa.Schema

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end. Raises Stuck where only Spark can go on."""

    def close(self) -> None:
        """Release everything; may be called again."""


class Stuck(Exception):
    """DuckDB can't give the answer; the message says why, as a phrase. Spark is asked."""


class Result:
    """The answer to a query.

    Read it once: as a stream (`batches`, `json_rows`) or whole (`table`, `df`, `rows`). `reason` says why Spark was
    asked, and is None where it was not. `at` is the id of the commit that was read.
    """

    def __init__(
        self, stream: Stream, *, at: str, begun: float, reason: str | None, hand_over: Callable[[str], Stream]
    ) -> None:
        self.at = at
        self.reason = reason
        self._stream = stream
        self._hand_over = hand_over
        self._begun = begun
        self._ended_at: float | None = None
        self._ahead: deque[pa.RecordBatch] = deque()  # fetched, not given yet
        self._table: pa.Table | None = None
        self._read = False
        self._given = False
        self._look_ahead(1)  # at once, while Spark can still take over unnoticed

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
        """Return how long it took from the question to the end of the answer, or up to now."""
        return (time.perf_counter() if self._ended_at is None else self._ended_at) - self._begun

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; what was yielded is not kept."""
        self._start()
        while (batch := self._next()) is not None:
            self._given = True
            yield batch

    def table(self) -> pa.Table:
        """Return all rows as an Arrow table, which is kept."""
        if self._table is None:
            self._start()
            engine, found = self.engine, list[pa.RecordBatch]()
            while (batch := self._next()) is not None:
                if self.engine != engine:  # Spark starts from the beginning
                    engine, found = self.engine, []
                found.append(batch)
            self._table = pa.Table.from_batches(found, self.schema)
        return self._table

    def df(self) -> "pd.DataFrame":
        """Return all rows as a pandas frame."""
        frame: pd.DataFrame = self.table().to_pandas()
        return frame

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows as tuples of Python values."""
        return [row for batch in self.table().to_batches() for row in rows_of(batch)]

    def json_rows(self) -> Iterator[list[Any]]:
        """Yield the rows as lists that JSON can hold: times in ISO, decimals as strings, bytes in base64."""
        for batch in self.batches():
            yield from json_rows_of(batch)

    def close(self) -> None:
        """Release everything that the answer holds; may be called again."""
        self._ahead.clear()
        self._read = True
        self._end()

    def _repr_html_(self) -> str:
        """Return the first rows for notebooks; the answer can still be read afterwards."""
        if self._table is None and self._read:
            return "<div>this result was read or closed already</div>"
        if self._table is None:
            self._look_ahead(_MOST_SHOWN + 1)
        batches = self._ahead if self._table is None else self._table.slice(0, _MOST_SHOWN + 1).to_batches()
        rows = [row for batch in batches for row in json_rows_of(batch.slice(0, _MOST_SHOWN + 1))][: _MOST_SHOWN + 1]
        is_more = len(rows) > _MOST_SHOWN
        numbers = [at for at, field in enumerate(self.schema) if _is_number(field.type)]
        told = f"the first {_MOST_SHOWN} rows; .df() has all" if is_more else f"{len(rows)} row{'s' * (len(rows) != 1)}"
        told += f", by {self.engine}, at <code>{notebook_html.text(self.at[:8])}</code>"
        return f"{notebook_html.table(self.columns, rows[:_MOST_SHOWN], numbers)}<div>{told}</div>"

    def __enter__(self) -> "Result":
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        return self.batches()

    def __del__(self) -> None:
        """Release what a forgotten answer holds."""
        if hasattr(self, "_stream"):
            self._stream.close()

    def _start(self) -> None:
        if self._read:
            what = "this result was read or closed already"
            raise Mistake("RESULT_READ", what, fix="ask the query again; .table() can be called several times")
        self._read = True

    def _next(self) -> pa.RecordBatch | None:
        return self._ahead.popleft() if self._ahead else self._fetch()

    def _look_ahead(self, rows: int) -> None:
        """Fetch so many rows, or all that there are, and keep them for whoever reads."""
        while sum(batch.num_rows for batch in self._ahead) < rows:
            engine, batch = self.engine, self._fetch()
            if self.engine != engine:  # Spark starts from the beginning
                self._ahead.clear()
            if batch is None:
                return
            self._ahead.append(batch)

    def _fetch(self) -> pa.RecordBatch | None:
        if self._ended_at is not None:
            return None
        try:
            batch = self._stream.read()
        except Stuck as stuck:
            self._stream.close()
            if self._given:
                what = f"DuckDB stopped in the middle of the answer: {stuck}"
                raise RunnelError("SQL_FAILED", what, fix="ask Spark: engine='spark', or --engine spark") from None
            self.reason = str(stuck)
            self._stream = self._hand_over(str(stuck))
            return self._fetch()
        except BaseException:
            self._end()
            raise
        if batch is None:
            self._end()
        return batch

    def _end(self) -> None:
        if self._ended_at is None:
            self._ended_at = time.perf_counter()
        self._stream.close()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
