"""What follows from a log of changes depends on the set of its rows, and on nothing else."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.changes import apply, log_update
from runnel.errors import RunnelError
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.scan import row_pieces
from runnel.lake.store import Store
from runnel.lake.work_runner import run_in_process
from tests.connect.changes.change_log import Applying, Row, customers, expected
from tests.lake.pickling_runner import PicklingRunner

ORDERS, BATCHES = 100, 5
NewApplying = Callable[..., Applying]


@pytest.fixture(params=["process", "buckets", "units"])
def applying(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> NewApplying:
    """Return what creates a log: applied in this process, at once or by buckets, or in units as on executors."""
    if request.param == "buckets":
        monkeypatch.setattr(apply, "WHOLE_BYTES", 0)
        monkeypatch.setattr(row_pieces, "BUCKET_BYTES", 4000)
    runner = PicklingRunner() if request.param == "units" else run_in_process
    return partial(Applying, store, choose_runner=runner)


def log_of_customers(seed: int) -> list[Row]:
    """Return a log with inserts, updates and deletes of a few keys, of which some share their place."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for _ in range(40):
        op = chance.choice("IUUUD")
        name = None if op == "D" or chance.random() < 0.1 else chance.choice("abcdef")
        rows.append(("eu", chance.randrange(6), chance.randrange(12), op, name))
    return rows


def in_batches(rows: list[Row], chance: random.Random) -> list[list[Row]]:
    """Return rows in a random order, some of them twice, cut at random."""
    shuffled = [*rows, *chance.sample(rows, len(rows) // 4)]
    chance.shuffle(shuffled)
    cuts = sorted(chance.choices(range(len(shuffled) + 1), k=BATCHES - 1))
    return [shuffled[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]


@pytest.mark.parametrize("scd", [1, 2])
def test_a_hundred_orders_of_arrival_converge(applying: NewApplying, scd: int) -> None:
    """Each order is a region of its own of one log, so that all of them are applied at once, batch by batch."""
    rows, made = log_of_customers(seed=scd), applying(customers(scd=scd))
    orders = [in_batches(rows, random.Random(seed)) for seed in range(ORDERS)]
    for number in range(BATCHES):
        made.take([(f"r{at}", *row[1:]) for at, order in enumerate(orders) for row in order[number]])
        made.apply()
    found: dict[str, list[Row]] = {}
    for row in made.rows():
        found.setdefault(row[0], []).append(("eu", *row[1:]))
    wanted = expected(rows, scd)
    assert wanted
    assert len(found) == ORDERS
    assert all(sorted(state, key=repr) == wanted for state in found.values())


@pytest.mark.parametrize("scd", [1, 2])
def test_files_come_and_go(applying: NewApplying, scd: int) -> None:
    """What is left of a log after files of it went is all that counts."""
    chance, made = random.Random(scd), applying(customers(scd=scd))
    for batch in in_batches(log_of_customers(3), chance)[:3]:
        made.take(batch)
        made.apply()
        if chance.random() < 0.7:
            made.lose(0)
            made.apply()
        assert made.log is not None
        assert made.rows() == expected(made.rows(made.log), scd)


A, B = ("eu", 1, 1, "I", "a"), ("eu", 1, 2, "U", "b")
GONE, AGAIN = ("eu", 1, 3, "D", None), ("eu", 1, 4, "I", "c")
CASES: dict[str, tuple[list[list[Row]], list[Row], list[Row]]] = {
    "a late row": ([[B], [A]], [B], [(*A, 1, 2), (*B, 2, None)]),
    "a delete before its insert": ([[GONE], [A]], [], [(*A, 1, 3)]),
    "inserted again after a delete": ([[A], [GONE], [AGAIN]], [AGAIN], [(*A, 1, 3), (*AGAIN, 4, None)]),
    "a delete between": ([[A, AGAIN], [GONE]], [AGAIN], [(*A, 1, 3), (*AGAIN, 4, None)]),
    "nothing but deletes": ([[GONE], [GONE]], [], []),
    "duplicates": ([[A, A], [A]], [A], [(*A, 1, None)]),
    "the greatest of the same place": (
        [[("eu", 1, 1, "I", "z")], [A, ("eu", 1, 1, "I", None)]],
        [("eu", 1, 1, "I", "z")],
        [("eu", 1, 1, "I", "z", 1, None)],
    ),
    "a delete at the same place": ([[("eu", 1, 1, "D", None)], [A]], [], []),
    "another key": (
        [[A], [("us", 1, 0, "I", "u")]],
        [A, ("us", 1, 0, "I", "u")],
        [(*A, 1, None), ("us", 1, 0, "I", "u", 0, None)],
    ),
}


@pytest.mark.parametrize(("batches", "one", "two"), CASES.values(), ids=CASES)
def test_what_follows(applying: NewApplying, batches: list[list[Row]], one: list[Row], two: list[Row]) -> None:
    last, versions = (applying(customers(scd=scd)) for scd in (1, 2))
    for batch in batches:
        last.take(batch)
        last.apply()
        versions.log = last.log
        versions.apply()
    rows = [row for batch in batches for row in batch]
    assert last.rows() == one == expected(rows, 1)
    assert versions.rows() == two == expected(rows, 2)


def files(made: Applying) -> set[str]:
    assert made.head is not None
    return {
        entry.path for entry in read_entries(made.store, table_metadata.load_metadata(made.store, made.head.location))
    }


def test_only_files_with_rows_that_differ_are_written_again(applying: NewApplying) -> None:
    made = applying(customers())
    made.take([A])
    made.apply()
    made.take([("us", 7, 1, "I", "x")])
    assert made.apply().rows == 1
    before = files(made)
    made.take([A, ("us", 7, 0, "I", "older")])
    assert made.apply().rows == 0
    assert files(made) == before
    made.take([("us", 7, 2, "U", "y")])
    made.apply()
    assert len(files(made) & before) == 1
    assert made.rows() == [A, ("us", 7, 2, "U", "y")]


def test_a_log_whose_files_are_rewritten_changes_nothing(applying: NewApplying) -> None:
    made = applying(customers(scd=2))
    made.take([A, B], [GONE])
    made.apply()
    before = files(made)
    made.lose(0)
    made.lose(0)
    made.take([GONE, A, B])
    assert made.apply().rows == 0
    assert files(made) == before


DECLARED: dict[str, dict[str, Any]] = {
    "versions": {"scd": 2},
    "another key": {"key": ("id",)},
    "another sequence": {"sequence_by": ("name",)},
    "another delete": {"delete_when": None},
}


@pytest.mark.parametrize("changes", DECLARED.values(), ids=DECLARED)
def test_another_declaration_applies_the_log_anew(applying: NewApplying, changes: dict[str, Any]) -> None:
    made = applying(customers(on_bad="drop"))
    made.take([A, B], [("us", 1, 9, "D", "x")])
    made.apply()
    made.source = customers(on_bad="drop", **changes)
    deletes = '"t1"."op" = \'D\'' if "delete_when" not in changes else None
    made.apply(deletes)
    fresh = applying(made.source, made.log)
    fresh.apply(deletes)
    assert made.rows() == fresh.rows()
    assert made.head is not None and fresh.head is not None
    assert made.head.content == fresh.head.content != made.head.location


def test_a_log_whose_history_is_gone_is_applied_anew(applying: NewApplying) -> None:
    made = applying(customers())
    made.take([A])
    made.apply()
    assert made.log is not None
    old = Path(normalize_location(made.log.location))
    made.take([B])
    old.unlink()
    table_metadata.clear_cache()
    made.apply()
    assert made.rows() == [B]


def test_rows_that_somebody_else_wrote_are_not_built_on(applying: NewApplying) -> None:
    made = applying(customers())
    made.take([A])
    made.apply()
    assert made.head is not None
    made.head = replace(made.head, content="/elsewhere/1.metadata.json")
    made.take([("us", 1, 1, "I", "x")])
    assert made.apply().rows == 2


def test_rows_without_a_key(applying: NewApplying) -> None:
    made = applying(customers())
    made.take([A, (None, 2, 1, "I", "x"), ("eu", 3, None, "I", "y")])
    with pytest.raises(RunnelError, match=r"2 rows of the log of `ods\.customers` are null in one of"):
        made.apply()
    made.source = customers(on_bad="drop")
    assert made.apply().left_out == 2
    assert made.rows() == [A]
    made.take([(None, 2, 1, "I", "x")])
    assert made.apply().left_out == 1
    assert made.rows() == [A]


def test_executors_apply_a_log_by_buckets(store: Store) -> None:
    runner = PicklingRunner()
    made = Applying(store, customers(scd=2), choose_runner=runner)
    rows = log_of_customers(7)
    made.take(rows[:20], rows[20:])
    done = made.apply()
    assert made.rows() == expected(rows, 2)
    assert done.place == runner.place
    assert runner.shuffled_buckets == 4
    assert made.log is not None
    log_entries = read_entries(store, table_metadata.load_metadata(store, made.log.location))
    assert runner.chosen == [sum(entry.file.file_size_in_bytes for entry in log_entries)]


@pytest.mark.parametrize("most_key_bytes", [0, log_update.MOST_KEY_BYTES], ids=["all rows meet", "keys are sent"])
@pytest.mark.parametrize("scd", [1, 2])
def test_executors_update_a_table_by_the_touched_keys(
    store: Store, monkeypatch: pytest.MonkeyPatch, scd: int, most_key_bytes: int
) -> None:
    """Generated histories of a log, in both places: the same rows are written, and the table has the same rows."""
    monkeypatch.setattr(log_update, "MOST_KEY_BYTES", most_key_bytes)
    chance = random.Random(scd)
    runner = PicklingRunner(parallel_units=3)
    process = Applying(store, customers(scd=scd, on_bad="drop"))
    units = Applying(store, customers(scd=scd, on_bad="drop"), choose_runner=runner)
    for number in range(4):
        batch = [("eu", *row[1:]) for row in log_of_customers(number)][: chance.randrange(5, 40)]
        process.take([*batch, (None, number, 1, "I", "x")], [("us", number, number, "I", "y")])
        if number == 2:
            process.lose(0)
        units.log = process.log
        outcomes = [(done.rows, done.left_out) for done in (process.apply(), units.apply())]
        assert outcomes[0] == outcomes[1]
        assert units.rows() == process.rows()
    assert units.done is not None and units.done.place == runner.place
    assert runner.shuffled_buckets >= 4 * 3
    assert process.log is not None
    log_rows = [row for row in process.rows(process.log) if row[0] is not None]
    assert units.rows() == expected(log_rows, scd)
