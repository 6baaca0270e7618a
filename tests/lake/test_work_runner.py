"""Work units: results in order, progress by units, and nothing that can't travel to another process."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.errors import Cancelled, Mistake
from runnel.lake.piece_spill import PieceSpill
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.lake.work_runner import ProcessRunner, WorkContext
from runnel.model.work_place import PROCESS


def square(number: int) -> int:
    return number * number


def test_results_come_in_order_and_progress_counts_units() -> None:
    reports: list[tuple[str, int, int | None]] = []
    work = WorkContext(report_progress=lambda activity, done, total: reports.append((activity, done, total)))
    assert work.run(square, [3, 1, 2], 10, "square") == [9, 1, 4]
    assert reports == [("square", 1, 3), ("square", 2, 3), ("square", 3, 3)]
    assert ProcessRunner().place.name == PROCESS


def test_cancelling_ends_the_work_between_two_units() -> None:
    worked_on: list[int] = []

    def stop(_activity: str, done: int, _total: int | None) -> None:
        if done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        WorkContext(report_progress=stop).run(worked_on.append, [1, 2, 3], 0, "work")
    assert worked_on == [1, 2]


def test_secrets_of_a_store_are_not_in_the_repr() -> None:
    files = WarehouseFiles("s3://bucket/lake", {"s3.secret-access-key": "4711"})
    assert "4711" not in repr(files)
    assert pickle.loads(pickle.dumps(files)) == files  # the key is needed where the work is done


def split_digits(text: str) -> Iterator[tuple[int, bytes]]:
    for digit in text:
        if digit == "9":
            raise Mistake("NO_NINE", f"{text} has a nine")
        yield int(digit) % 3, digit.encode()


def join_pieces(bucket: int, pieces: Iterator[bytes]) -> tuple[int, bytes]:
    return bucket, b"".join(pieces)


def test_pieces_of_a_bucket_meet_and_a_bucket_may_be_empty() -> None:
    reports: list[tuple[int, int]] = []
    results = ProcessRunner().run_shuffled(split_digits, ["130", "46"], join_pieces, 3, lambda *d: reports.append(d))
    assert results == [(0, b"306"), (1, b"14"), (2, b"")]
    assert reports == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    with pytest.raises(Mistake, match="29 has a nine"):
        ProcessRunner().run_shuffled(split_digits, ["1", "29", "9"], join_pieces, 3)


def test_pieces_past_the_memory_limit_wait_in_files(tmp_path: Path) -> None:
    spill = PieceSpill(tmp_path, memory_bytes=10)
    for number in range(10):
        spill.add(number % 2, b"%d" % number * 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bucket-0", "bucket-1"]
    assert list(spill.take(0)) == [b"000", b"222", b"444", b"666", b"888"]
    assert list(spill.take(1)) == [b"111", b"333", b"555", b"777", b"999"]
    assert list(tmp_path.iterdir()) == []
    assert list(spill.take(2)) == []
