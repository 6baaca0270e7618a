"""`runnel backfill` and `runnel run --verify` as a user types them, in processes of their own."""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import runnel as rn
from runnel.lake.control import backfills
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNEL = Path(sys.executable).parent / "runnel"
DAYS = """
@rn.task("dws.day", by="day")
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
"""
# It promises to be sliced, but each day counts the days that it sees, in a function of pandas.
UNSLICED = """
@rn.task("dws.day", by="day", trust_by=True)
def day(orders):
    def count(frames):
        import pandas as pd
        kept = pd.concat(frames).drop_duplicates("day")[["day"]]
        kept["days"] = len(kept)
        yield kept
    return orders.coalesce(1).mapInPandas(count, "day date, days long")
"""


def runnel(project: Project, *words: str) -> tuple[int, str, str]:
    line = [str(RUNNEL), "-C", str(project.root), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def compute_five_days(project: Project, flow: str) -> Project:
    project.flow(flow)
    for number in range(1, 6):
        project.orders(f"{number}", (number, f"2026-01-0{number}", 5))
    assert project.run().state == "succeeded"
    return project


@pytest.fixture
def project(tmp_path: Path, spark: "SparkSession") -> Project:
    return Project(tmp_path, spark)


def test_backfill(project: Project) -> None:
    compute_five_days(project, DAYS)
    words = ("backfill", "-s", "dws.day", "--from", "2026-01-01", "--to", "2026-01-02")
    code, out, err = runnel(project, *words, "--dry-run")
    assert (code, err) == (0, "") and out.splitlines()[1].split()[:4] == ["dws.day", "slices", "2", "2"]
    code, out, _ = runnel(project, *words, "--chunk", "1d", "--json")
    told: dict[str, Any] = json.loads(out)
    assert (code, told["state"], told["next"]) == (0, "nothing", None)
    assert [(chunk["from"], chunk["state"]) for chunk in told["chunks"]] == [
        ("2026-01-01", "nothing"),
        ("2026-01-02", "nothing"),
    ]
    assert told["chunks"][0]["steps"][0]["action"] == "slices" and project.commits() == 2


WRONG = {
    "order": (("--from", "2026-01-02", "--to", "2026-01-01"), "BACKFILL_ORDER"),
    "date": (("--from", "2026-13-02", "--to", "2026-01-01"), "BACKFILL_DATE"),
    "chunk": (("--from", "2026-01-01", "--to", "2026-01-01", "--chunk", "5h"), "BACKFILL_CHUNK"),
    "nothing": ((), "USAGE"),
}


@pytest.mark.parametrize(("words", "code"), WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_ends_with_two(cli, words: tuple[str, ...], code: str) -> None:
    assert cli("init", "--template", "empty").code == 0
    done = cli("backfill", "-s", "dws.day", *words, "--json")
    assert (done.code, done.json["error"]["code"]) == (2, code)


def test_verify_names_what_differs_and_publishes_nothing(project: Project) -> None:
    compute_five_days(project, UNSLICED)
    project.orders("late", (9, "2026-01-02", 1))
    before = project.commits()
    code, out, err = runnel(project, "run", "--verify")
    assert code == 1 and project.commits() == before
    assert "RUN_VERIFY_DIFFERS: `dws.day` differs from a full computation: 1 row only in the table" in err
    assert "  day 2026-01-02: days 1 in the table, 5 in the full computation" in err
    assert "nothing was published" in err and "verified" not in out


def test_what_was_paused_or_cancelled_is_printed_so(shop, tmp_path: Path) -> None:
    days = DateRange(date(2026, 1, 1), date(2026, 1, 2))
    with rn.open(tmp_path) as lake:
        backfills.create(lake.store.db, "b1", [RunRequest(("dws.day",), days=days)], "ada")

    def read_state(*words: str) -> str:
        header, row = (line.split() for line in shop("backfills", *words).out.splitlines())
        assert header[:2] == ["backfill", "state"] and row[0] == "b1"
        return row[1]

    assert [read_state(action, "b1") for action in ("pause", "resume", "cancel")] == ["paused", "running", "cancelled"]
    assert read_state() == "cancelled"
