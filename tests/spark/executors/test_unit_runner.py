"""Work units on executors: the same results and errors as in this process, with progress, and cancelled at once."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.errors import Cancelled, Mistake, Unreachable
from runnel.lake.diff.row_diff import diff_rows
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.work_runner import IN_PROCESS, WorkContext
from runnel.model.work_place import EXECUTORS, WorkPlace
from runnel.names import TableName
from runnel.spark.executors.probe import check_facts, probe_executor
from runnel.spark.executors.unit_runner import ExecutorRunner
from tests.lake.factories import add, create, read, rows
from tests.lake.table_changes import overwrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ods.orders"


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def refuse_two(number: int) -> int:
    if number == 2:
        raise Mistake("UNIT_TWO", "two is refused", at="units:2", fix="leave it out")
    return number


def divide_by_zero(number: int) -> float:
    return number / 0


def read_duckdb_limits(_unit: int) -> tuple[int, str]:
    with connect_duckdb() as connection:
        settings = connection.execute("SELECT current_setting('threads'), current_setting('memory_limit')").fetchone()
    assert settings is not None
    return settings


def wait_for_file(path: str) -> None:
    Path(f"{path}.started").touch()
    while not Path(path).exists():
        time.sleep(0.01)


def split_digits(text: str) -> Iterator[tuple[int, bytes]]:
    for digit in text:
        if digit == "9":
            raise Mistake("NO_NINE", f"{text} has a nine", at="units:9", fix="leave it out")
        yield int(digit) % 3, digit.encode() * 10_000


def join_pieces(bucket: int, pieces: Iterator[bytes]) -> tuple[int, str, int]:
    content = b"".join(pieces)
    if b"7" in content:
        raise Mistake("NO_SEVEN", f"bucket {bucket} has a seven")
    return bucket, "".join(sorted({chr(byte) for byte in content})), len(content)


def refuse_first_piece(bucket: int, pieces: Iterator[bytes]) -> int:
    return bucket


def test_pieces_meet_by_bucket_on_executors(spark: "SparkSession") -> None:
    runner = ExecutorRunner(spark, "units shuffled")
    reports: list[tuple[int, int]] = []
    units = ["130", "46", "3" * 50]
    results = runner.run_shuffled(split_digits, units, join_pieces, 4, lambda *d: reports.append(d))
    assert results == [(0, "036", 530_000), (1, "14", 20_000), (2, "", 0), (3, "", 0)]
    assert reports[-1] == (7, 7)


def test_errors_of_a_shuffle_arrive_whole_and_the_first_unit_counts(spark: "SparkSession") -> None:
    runner = ExecutorRunner(spark, "units shuffle mistake")
    for merge in (join_pieces, refuse_first_piece):
        with pytest.raises(Mistake) as caught:
            runner.run_shuffled(split_digits, ["1", "29", "7", "9"], merge, 3)
        assert str(caught.value) == "NO_NINE: 29 has a nine\n  at units:9\n  fix: leave it out"
    with pytest.raises(Mistake, match="NO_SEVEN: bucket 1 has a seven"):
        runner.run_shuffled(split_digits, ["1", "27"], join_pieces, 3)


def test_results_come_in_order_from_other_processes(spark: "SparkSession") -> None:
    runner = ExecutorRunner(spark, "units order", "the test wants it")
    reports: list[tuple[int, int]] = []
    results = runner.run(double, [5, 1, 3], lambda done, total: reports.append((done, total)))
    assert [doubled for doubled, _ in results] == [10, 2, 6]
    assert os.getpid() not in {pid for _, pid in results}
    assert reports[-1] == (3, 3)
    assert (runner.place.name, runner.place.reason) == (EXECUTORS, "the test wants it")
    assert runner.run(double, []) == []


def test_errors_for_users_arrive_whole(spark: "SparkSession") -> None:
    with pytest.raises(Mistake) as caught:
        ExecutorRunner(spark, "units mistake").run(refuse_two, [1, 2, 3])
    assert str(caught.value) == "UNIT_TWO: two is refused\n  at units:2\n  fix: leave it out"


def test_other_errors_are_described_in_one_line(spark: "SparkSession") -> None:
    with pytest.raises(Unreachable) as caught:
        ExecutorRunner(spark, "units defect").run(divide_by_zero, [1])
    assert caught.value.what == "work on Spark's executors failed: ZeroDivisionError: division by zero"


def test_a_task_uses_its_share_of_the_machine(spark: "SparkSession") -> None:
    [(threads, memory)] = ExecutorRunner(spark, "units limits").run(read_duckdb_limits, [1])
    assert threads == 1
    assert memory.endswith("iB")


def test_cancelling_ends_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    reported = threading.Event()

    def cancel(_done: int, _total: int) -> None:
        if (tmp_path / "go.started").exists():
            reported.set()
            raise Cancelled

    with pytest.raises(Cancelled):
        ExecutorRunner(spark, "units cancelled").run(wait_for_file, [str(tmp_path / "go")], cancel)
    assert reported.is_set()
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    (tmp_path / "go").touch()  # the Python worker, if it still waits


def test_executors_have_the_packages_of_this_process(spark: "SparkSession", tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.write_text("4711")
    facts = probe_executor(spark, str(shown))
    assert facts.file_content == "4711"
    check_facts(facts)


def test_compaction_on_executors_keeps_the_rows(spark: "SparkSession", store: Store) -> None:
    create(store, NAME, rows((0, "a", 0)))
    for start in range(1, 7):
        add(store, NAME, rows(*((start * 1000 + number, "a", number * start) for number in range(1000))))
    before = sorted(read(store, NAME))
    work = WorkContext(lambda _bytes, _paths=(): ExecutorRunner(spark, "units compact"))
    (done,) = compact(store, target_bytes=20_000, work=work)
    assert done.files_after < done.files_before
    assert sorted(read(store, NAME)) == before


def test_an_erasure_on_executors_removes_the_rows_of_all_versions(spark: "SparkSession", store: Store) -> None:
    create(store, NAME, rows((0, "a", 0)))
    for start in range(1, 4):
        add(store, NAME, rows(*((start * 10 + number, "ab"[number % 2], number) for number in range(10))))
    refs = ("main", "main~1", "main~2")
    expected = [[row for row in read(store, NAME, ref) if row[1] != "b"] for ref in refs]
    work = WorkContext(lambda _bytes, _paths=(): ExecutorRunner(spark, "units erase", "a test"))
    erased = erase(store, TableName.parse(NAME), "day = 'b'", work=work)
    assert (erased.rows, erased.files, erased.place) == (15, 3, WorkPlace(EXECUTORS, "a test"))
    assert [sorted(read(store, NAME, ref)) for ref in ("main~1", "main~2", "main~3")] == list(map(sorted, expected))
    with pytest.raises(Mistake, match="ERASE_CONDITION"):
        erase(store, TableName.parse(NAME), "id = cast('99999999999999999999' as bigint)", work=work)


def test_a_runner_says_whether_spark_speculates(spark: "SparkSession") -> None:
    runner = ExecutorRunner(spark, "speculation")
    assert not runner.may_run_twice
    conf = spark.sparkContext._conf
    conf.set("spark.speculation", "true")
    try:
        assert runner.may_run_twice
    finally:
        conf.set("spark.speculation", "false")


def test_executors_find_the_rows_that_differ(spark: "SparkSession", store: Store) -> None:
    before = create(store, NAME, rows(*((number, "a", number % 3) for number in range(500))))
    overwrite(store, NAME, rows(*((number, "a", number % 4) for number in range(100, 600))))
    diffs = [
        diff_rows(store, before.id, "main", TableName.parse(NAME), key=["id"], limit=30, work=work)
        for work in (IN_PROCESS, WorkContext(lambda _bytes, _paths=(): ExecutorRunner(spark, "units diff")))
    ]
    assert replace(diffs[1], place=None) == replace(diffs[0], place=None)
    assert (diffs[1].rows_added, diffs[1].rows_removed) == (100, 100)
    assert diffs[1].place is not None and diffs[1].place.name == EXECUTORS
