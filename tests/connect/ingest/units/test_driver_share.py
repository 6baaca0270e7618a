"""What the driver does of an ingest on executors: it opens no file that it reads, and needs little memory for each."""

import multiprocessing
import os
import pickle
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.ingest.detect import digests
from runnel.connect.load.quarantine import read_quarantined_rows
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.lake.store import Store
from runnel.lake.work_runner import ReportUnits
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.lake.pickling_runner import PicklingRunner

MOST_BYTES_PER_FILE = 2048
opened_paths: list[str] | None = None
"""The files that this process opened; None if nobody wants to know."""


def watch_opened_files(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and opened_paths is not None:
        opened_paths.append(str(arguments[0]))


def work_on_pickled(text: bytes) -> bytes:
    work, unit = pickle.loads(text)
    return pickle.dumps(work(unit))


class OtherProcessRunner(PicklingRunner):
    """Works on units in another process, as executors do."""

    def __init__(self, pool: ProcessPoolExecutor, split_bytes: int) -> None:
        super().__init__(split_bytes=split_bytes)
        self.pool = pool

    def run(
        self, work: Callable[[Any], Any], units: Sequence[Any], report_units: ReportUnits | None = None
    ) -> list[Any]:
        self.units = units
        return [pickle.loads(self.pool.submit(work_on_pickled, pickle.dumps((work, unit))).result()) for unit in units]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield executor


Opening = Callable[[str, Files], Ingesting]


@pytest.fixture
def opening(tmp_path: Path, pool: ProcessPoolExecutor) -> Iterator[Opening]:
    stores: list[Store] = []

    def open_source(name: str, files: Files) -> Ingesting:
        folder = tmp_path / name
        stores.append(Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse"))
        source = Source(ORDERS, files, SourceLocation("flows/orders.py", 3), on_bad="quarantine")
        (folder / "shop" / "data").mkdir(parents=True)
        return Ingesting(stores[-1], folder / "shop", source, choose_runner=OtherProcessRunner(pool, 100))

    yield open_source
    for store in stores:
        store.close()


def test_the_driver_opens_no_file_that_executors_read(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    global opened_paths
    sys.addaudithook(watch_opened_files)
    monkeypatch.setattr(digests, "HASHED_BYTES", 10)  # so that all files count as large
    kinds = {
        "csv": Files("data/*.csv", "csv", options=(("multiline", "false"),), infers_schema=True),
        "whole": Files("data/*.csv", "csv", parse_columns("id long")),
        "jsonl": Files("data/*.jsonl", "jsonl", parse_columns("id long")),
    }
    for name, files in kinds.items():
        ods = opening(name, files)
        ods.write("a.csv", "id,v\n" + "1,2.5\n" * 50 + "x,1\n")
        ods.write("a.jsonl", '{"id": 1}\n' * 50 + "broken\n")
        for path in (ods.root / "data").iterdir():
            os.utime(path, (1e9, 1e9))  # a file that was written just now is identified once more
        ods.look()  # reads the ends of large files
        opened_paths = []
        try:
            monkeypatch.setattr(ods, "look", lambda found=ods.found: found)
            ods.run()
        finally:
            paths, opened_paths = opened_paths, None
        assert ods.done.rows in (50, 51)
        assert paths  # those of the table
        assert not [path for path in paths if f"{ods.root}/data" in path]


def measure_peak(ods: Ingesting, file_count: int) -> int:
    """Return how much memory this process needs to plan and ingest so many files."""
    for number in range(file_count):
        ods.write(f"orders-{number:06}.csv", f"id,name\n{number},a\n")
    tracemalloc.start()
    try:
        ods.run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_the_driver_for_each_file(opening: Opening) -> None:
    files = Files("data/*.csv", "csv", parse_columns("id long, name string"))
    measure_peak(opening("first", files), 50)  # imports
    peaks = {count: measure_peak(opening(str(count), files), count) for count in (500, 3000)}
    assert (peaks[3000] - peaks[500]) / 2500 <= MOST_BYTES_PER_FILE, peaks


def test_memory_of_the_driver_does_not_grow_with_bad_rows(opening: Opening) -> None:
    files = Files("data/*.csv", "csv", parse_columns("id long"))
    peaks: dict[int, int] = {}
    for count in (10, 500, 20_000):  # the first one for imports
        ods = opening(str(count), files)
        ods.write("a.csv", "id\n1\n" + "".join(f"order {number}\n" for number in range(count)))
        tracemalloc.start()
        ods.run()
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert ods.done is not None and ods.done.dropped == count
        assert len(read_quarantined_rows(ods.store, ORDERS)) == count
    assert peaks[20_000] - peaks[500] <= 100_000, peaks
