"""Sliced tables to measure with: Parquet files of one slice each, always the same rows, and a warm lake for them.

The files are made once, by DuckDB, and kept below .work/bench. A lake registers them where they are, as `runnel load
--in-place` does; later rows are loaded in the ordinary way.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.names import TableName
from runnel.spark.session import stop_spark

KEPT = Path(__file__).parents[1] / ".work" / "bench"
SETTINGS = '[project]\nname = "bench"\n[spark]\nconf = { "spark.driver.memory" = "4g" }\n'
LATER = 10**11  # rows with a higher number came later


@dataclass(frozen=True)
class Rows:
    """Rows to make. `columns` is SQL over `i`, the number of a row, and `slice`, the number of its slice."""

    name: str
    columns: str
    slices: int
    in_slice: int

    def files(self) -> Path:
        """Return a folder with one file for each slice."""
        folder = KEPT / f"{self.name}-{self.slices}-{self.in_slice}"
        ready, wanted = folder / ".ready", hashlib.sha256(self.columns.encode()).hexdigest()
        if not ready.exists() or ready.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with duckdb.connect() as connection, ThreadPoolExecutor(os.cpu_count()) as threads:
                # Each slice is a statement of its own; where they are small, it is statements that take the time.
                list(threads.map(lambda number: self._slice(connection.cursor(), folder, number), range(self.slices)))
            ready.write_text(wanted)
        return folder

    def later(self, target: Path, slices: Sequence[int], count: int) -> Path:
        """Write a file with `count` more rows for each of these slices; other files have other rows."""
        target.parent.mkdir(parents=True, exist_ok=True)
        first = LATER + len(list(target.parent.iterdir())) * count
        with duckdb.connect() as connection:
            self._write(connection, target, slices, first, count)
        return target

    def _slice(self, connection: duckdb.DuckDBPyConnection, folder: Path, number: int) -> None:
        target = folder / f"{number:06}.parquet"
        self._write(connection, target, [number], number * self.in_slice, self.in_slice)

    def _write(
        self, connection: duckdb.DuckDBPyConnection, target: Path, slices: Sequence[int], first: int, count: int
    ) -> None:
        numbers = f"range({first}, {first + count}) AS numbers(i), unnest({list(slices)}) AS chosen(slice)"
        query = f"SELECT {self.columns} FROM {numbers}"
        connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


@contextmanager
def warm(flow: str) -> Iterator[Lake]:
    """Yield the lake of a new project, in a process in which Spark runs."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        root = Path(name)
        (root / "flows").mkdir()
        (root / "runnel.toml").write_text(SETTINGS)
        (root / "flows" / "flow.py").write_text(flow)
        with rn.open(root) as lake:
            try:
                lake.spark.range(1).count()
                yield lake
            finally:
                stop_spark()


def register(lake: Lake, table: str, rows: Rows, partition: str) -> None:
    """Make a table of all files of these rows."""
    lake.load(table, rows.files() / "*.parquet", partition=partition, in_place=True)


def change(lake: Lake, table: str, rows: Rows, slices: Sequence[int], count: int) -> None:
    """Load some more rows into these slices of a table, in one commit."""
    folder = lake.settings.root / "later" / table
    lake.load(table, rows.later(folder / f"{time.monotonic_ns()}.parquet", slices, count))


def spread(share: float, slices: int) -> list[int]:
    """Return the numbers of so many slices, at least one, evenly spread.

    >>> spread(0.3, 10), spread(0.01, 100)
    ([0, 3, 6], [0])
    """
    count = max(1, round(share * slices))
    return [number * slices // count for number in range(count)]


def seconds(work: Callable[..., object], *given: object, **named: object) -> float:
    """Return how long something takes, called with what is given."""
    started = time.perf_counter()
    work(*given, **named)
    return time.perf_counter() - started


def watched(lake: Lake, table: str) -> tuple[float, str]:
    """Run one table; return how long that took and what was done."""
    started = time.perf_counter()
    ran = lake.run(table)
    taken = time.perf_counter() - started
    return taken, next(step.action for step in ran.steps if str(step.table) == table)


def rounded(times: Iterable[float]) -> list[float]:
    """Return times as the details of a figure show them."""
    return [round(one, 3) for one in times]


def version(lake: Lake, table: str) -> str:
    """Return where a table is now."""
    return lake.store.state()[TableName.parse(table)].location


def require_same_rows(lake: Lake, one: str, other: str, what: str) -> None:
    """Raise where two versions, of any tables, differ in a row."""
    with duckdb.connect() as connection:
        first, second = (f"({_rows(lake, location)})" for location in (one, other))
        query = "SELECT count(*) FROM ({} EXCEPT ALL {})"
        found = [
            connection.execute(query.format(*pair)).fetchall()[0][0] for pair in ((first, second), (second, first))
        ]
        (rows,) = connection.execute(f"SELECT count(*) FROM {first}").fetchall()[0]
    if any(found) or not rows:
        raise RuntimeError(f"{what}: of {rows:,} rows {found[0]:,} are only in the first, {found[1]:,} in the second")


def require_answer(lake: Lake, table: str, sql: str) -> None:
    """Raise where the rows of a table are not those that a query of DuckDB makes of the tables it comes from."""

    def lacking(one: str, other: str) -> int:
        rows = lake.query(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})", engine="duckdb").rows()
        return int(rows[0][0])

    made = f"SELECT * FROM {table}"
    odd, missing = lacking(made, sql), lacking(sql, made)
    if odd or missing or not lake.query(f"{made} LIMIT 1", engine="duckdb").rows():
        raise RuntimeError(f"{table} has {odd:,} rows that it should not have, and lacks {missing:,}")


def _rows(lake: Lake, location: str) -> str:
    metadata = table_metadata.load_metadata(lake.store, location)
    found = list(read_entries(lake.store, metadata))
    if not all(entry.is_data for entry in found):
        raise RuntimeError(f"{location} has delete files, which this comparison does not read")
    columns = ", ".join(f'"{name}"' for name in sorted(field.name for field in metadata.schema().fields))
    paths = [normalize_location(entry.path) for entry in found]
    return f"SELECT {columns} FROM read_parquet({paths}, hive_partitioning = false)"
