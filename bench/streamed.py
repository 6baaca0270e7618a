"""The same query as a stream and in batch, over the same rows, in one warm session.

A few rows come first, which both take to get warm; then all others, which are timed; then a row of a much later time,
which closes the windows of streams, and which queries leave out. After that both have made the same rows, or it raises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from bench.figure import Figure
from bench.sliced import require_same_rows, seconds, version, warm
from runnel.client.lake import Lake

AT = "to_timestamp(1767225600 + ({ms}) / 1000.0) AS at"  # so many milliseconds after the beginning of 2026
END = "to_timestamp(1772323200)"  # March
IS_OPEN = "at < timestamp '2026-02-28'"  # in a query: not the row that closes windows
HEAD = "import runnel as rn\nfrom pyspark.sql import functions as F\n\n"
TASK = """

@rn.task("dws.{name}", stream={reads}, {watermark})
def {name}({given}):
{body}


@rn.task("dws.{name}_batch")
def {name}_batch({given}):
{body}
"""


@dataclass(frozen=True)
class Query:
    """A query: the body of a function that returns a frame of the tables of these names. All have a time `at`."""

    name: str
    told: str
    reads: Sequence[str]
    body: str
    watermark: Mapping[str, str] | None = None  # how late the rows of each table may be

    def text(self) -> str:
        """Return it as two tasks."""
        marks = {table: ("at", late) for table, late in (self.watermark or {}).items()}
        body = "\n".join(f"    {line}" for line in self.body.strip().splitlines())
        watermark = f"watermark={marks!r}" if marks else ""
        return TASK.format(
            name=self.name, reads=list(self.reads), watermark=watermark, given=", ".join(self.reads), body=body
        )


@dataclass(frozen=True)
class Table:
    """A table: SQL over `n`, the number of an event, of those events that `where` chooses. It has a column `at`."""

    name: str
    columns: str
    where: str = "true"

    def load(self, lake: Lake, first: int, last: int, at: str | None = None) -> int:
        """Load the rows of some events, all at one time if `at` is given; return how many they are."""
        path = Path(lake.settings.root) / "data" / f"{self.name}-{first}.parquet"
        path.parent.mkdir(exist_ok=True)
        rows = f"SELECT {self.columns} FROM range({first}, {last}) AS events(n) WHERE {self.where}"
        moved = f'SELECT * REPLACE ({at} AS "at") FROM ({rows}) LIMIT 1' if at else rows
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({moved}) TO '{path}' (FORMAT parquet)")
        return lake.load(f"ods.{self.name}", path).rows


def measured(part: str, tables: Sequence[Table], queries: Sequence[Query], events: int, few: int) -> list[Figure]:
    """Return the events per second of each query as a stream, and how much of that it does in batch."""
    sources = "".join(f'rn.source("ods.{table.name}", rn.manual())\n' for table in tables)
    with warm(HEAD + sources + "".join(query.text() for query in queries)) as lake:
        for table in tables:
            table.load(lake, 0, few)
        lake.run()
        rows = {table.name: table.load(lake, few, events) for table in tables}
        found = [figure for query in queries for figure in _timed(lake, part, query, rows)]
        for table in tables:
            table.load(lake, events, events + few, END)
        lake.run()
        for query in queries:
            name = f"dws.{query.name}"
            require_same_rows(lake, version(lake, name), version(lake, f"{name}_batch"), f"{name}, stream and batch")
    return found


def _timed(lake: Lake, part: str, query: Query, rows: Mapping[str, int]) -> list[Figure]:
    count = sum(rows[table] for table in query.reads)
    stream = seconds(lake.run, f"dws.{query.name}")
    batch = seconds(lake.run, f"dws.{query.name}_batch")
    details: dict[str, object] = {"events": count, "stream_seconds": stream, "batch_seconds": batch}
    return [
        Figure(f"{part}: {query.told}, {count:,} events", count / stream, "events/s", details=details),
        Figure(f"{part}: {query.told}, batch / stream", batch / stream, details=details),
    ]
