"""Read rows of a database into Parquet files, with one connection or with several that see the same moment."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.connect.feed.protocol import Part, Progress
from runnel.connect.jdbc.database import Column, Database, Unfit
from runnel.connect.jdbc.value_conversion import schema_of, sift
from runnel.connect.load.quarantine import Aside

GROUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Read:
    """Files with all rows but those that are `bad`."""

    parts: tuple[Part, ...]
    bad: tuple[Aside, ...] = ()


class _Tally:
    """Counts rows of all connections, tells them, and ends the others when one has failed."""

    def __init__(self, tell: Progress, total: int | None) -> None:
        self._tell = tell
        self._total = total
        self._rows = 0
        self._lock = threading.Lock()
        self.is_over = False

    def add(self, rows: int) -> None:
        with self._lock:
            if self.is_over:
                raise _Over
            self._rows += rows
            total = self._total if self._total is None or self._total >= self._rows else None
            self._tell("reading", self._rows, total)


class _Over(Exception):
    """Another connection has failed."""


def read(
    database: Database,
    columns: Sequence[Column],
    relation: str,
    conditions: Sequence[str],
    folder: Path,
    name: str,
    tell: Progress,
    total: int | None = None,
) -> Read:
    """Read the rows that fulfil any of the conditions, each with a connection of its own if there are several."""
    try:
        return _read(database, columns, relation, conditions, folder, name, _Tally(tell, total))
    except Unfit:
        careful = [replace(column, read=column.safe or column.read, safe=None) for column in columns]
        return _read(database, careful, relation, conditions, folder, name, _Tally(tell, total))


def _read(
    database: Database,
    columns: Sequence[Column],
    relation: str,
    conditions: Sequence[str],
    folder: Path,
    name: str,
    tally: _Tally,
) -> Read:
    if len(conditions) == 1:
        return _one(database, columns, f"{relation} WHERE {conditions[0]}", folder / "rows.parquet", name, tally)
    many = len(conditions)

    def work(number: int, condition: str) -> Read:
        path, part = folder / f"rows-{number}.parquet", f"{name}, part {number + 1} of {many}"
        try:
            with database.another() as own:
                return _one(own, columns, f"{relation} WHERE {condition}", path, part, tally)
        except BaseException:
            tally.is_over = True
            raise

    with ThreadPoolExecutor(many, thread_name_prefix="runnel-jdbc") as pool:
        futures = [pool.submit(work, number, condition) for number, condition in enumerate(conditions)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, _Over)), errors[0])
    found = [future.result() for future in futures]
    return Read(tuple(part for one in found for part in one.parts), tuple(aside for one in found for aside in one.bad))


def _one(database: Database, columns: Sequence[Column], rest: str, path: Path, name: str, tally: _Tally) -> Read:
    bad: list[Aside] = []
    waiting: list[pa.Table] = []
    size = 0
    with (
        _writer(path, columns) as writer,
        closing(database.batches(columns, rest)) as batches,
    ):
        for batch in batches:
            sifted = sift(batch, columns, name)
            bad += sifted.bad
            waiting.append(sifted.rows)
            size += sifted.rows.nbytes
            tally.add(sifted.rows.num_rows + len(sifted.bad))
            if size >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    return Read((Part(path, name, "parquet"),), tuple(bad))


def _writer(path: Path, columns: Sequence[Column]) -> pq.ParquetWriter:
    """Return a writer that is quick rather than thorough: the file is read once, at once, and whole."""
    return pq.ParquetWriter(path, schema_of(columns), compression="lz4", use_dictionary=False, write_statistics=False)
