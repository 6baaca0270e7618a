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


def open_ods(folder: Path, files: Files, pool: ProcessPoolExecutor) -> Ingesting:
    store = Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse")
    source = Source(ORDERS, files, SourceLocation("flows/orders.py", 3), on_bad="quarantine")
    (folder / "shop" / "data").mkdir(parents=True)
    return Ingesting(store, folder / "shop", source, choose_runner=OtherProcessRunner(pool, 100))


@pytest.fixture
def opening(tmp_path: Path, pool: ProcessPoolExecutor) -> Iterator[Opening]:
    opened: list[Ingesting] = []

    def open_source(name: str, files: Files) -> Ingesting:
        opened.append(open_ods(tmp_path / name, files, pool))
        return opened[-1]

    yield open_source
    for ods in opened:
        ods.store.close()


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


def measure_peak(folder: Path, files: dict[str, str]) -> int:
    """Return how much memory this process needs to plan and ingest the files; its executors are another process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        ods = open_ods(folder, Files("data/*.csv", "csv", parse_columns("id long, name string")), pool)
        for name, text in files.items():
            ods.write(name, text)
        tracemalloc.start()
        try:
            ods.run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            ods.store.close()


def measure_peaks(folder: Path, *batches: dict[str, str]) -> list[int]:
    """Return the peaks of batches in one process, in which nothing else goes on; the first one imports modules."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as driver:
        return [
            driver.submit(measure_peak, folder / str(number), batch).result() for number, batch in enumerate(batches)
        ]


def test_memory_of_the_driver_for_each_file(tmp_path: Path) -> None:
    batches = [{f"{number:06}.csv": f"id,name\n{number},a\n" for number in range(count)} for count in (50, 500, 3000)]
    _, few, many = measure_peaks(tmp_path, *batches)
    assert (many - few) / 2500 <= MOST_BYTES_PER_FILE, (few, many)


def test_memory_of_the_driver_does_not_grow_with_bad_rows(tmp_path: Path) -> None:
    batches = [
        {"a.csv": "id,name\n1,a\n" + "".join(f"order {number},b\n" for number in range(count))}
        for count in (10, 500, 20_000)
    ]
    _, few, many = measure_peaks(tmp_path, *batches)
    assert many - few <= 100_000, (few, many)
    store = Store.open(f"sqlite:///{tmp_path}/2/lake/catalog.db", f"{tmp_path}/2/lake/warehouse")
    assert len(read_quarantined_rows(store, ORDERS)) == 20_000
    store.close()
