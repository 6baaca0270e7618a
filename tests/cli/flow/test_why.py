"""`runnel why`, `lineage`, `replay`, `runs` and `logs` as a user types them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Done
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Cli = Callable[..., Done]
FLOW = """
@rn.task("dws.day", by="day", checks=[rn.check("amount < 9", on_fail="warn")])
def day(orders, *, least: int = 0):
    return orders.where(F.col("amount") >= least)
"""


def test_a_loaded_table(shop: Cli) -> None:
    told = shop("why", "ods.orders")
    assert told.code == 0 and all(len(line) <= 80 for line in told.out.splitlines())
    assert "made by    runnel load" in told.out and "data/orders.csv" in told.out
    assert shop("why", "ods.orders", "--json").json["kind"] == "load"
    missing = shop("why", "ods.ordres")
    assert missing.code == 2 and "close: `ods.orders`" in missing.err


def test_a_put_table_and_another_branch(shop: Cli) -> None:
    assert shop("branch", "dev").code == 0
    assert shop("put", "raw.files", "data", "--branch", "dev").code == 0
    assert shop("why", "raw.files").code == 2
    assert "made by    runnel put" in shop("why", "raw.files", "--at", "dev").out
    assert shop("merge", "dev").code == 0
    assert "merged into main" in shop("why", "raw.files").out


def test_nothing_to_replay(shop: Cli) -> None:
    told = shop("replay", "main")
    assert (told.code, "nothing to replay" in told.out) == (0, True)
    assert shop("replay", "main", "--json").json == {
        "commit": shop("log", "--json").json[0]["commit"],
        "same": True,
        "tables": [],
        "notes": [],
    }


def test_no_runs_yet(shop: Cli) -> None:
    assert "no runs yet" in shop("runs").out and shop("runs", "--json").json == []
    assert shop("runs", "nope").code == 2 and shop("logs", "nope").code == 2


def test_lineage_of_what_nobody_declares(shop: Cli) -> None:
    told = shop("lineage", "ods.orders")
    assert told.code == 0 and "ods.orders  loaded by hand" in told.out and "read by nothing" in told.out
    assert shop("lineage", "ods.orders", "--up", "--json").json["edges"] == []


@pytest.fixture
def ran(cli: Cli, tmp_path: Path, spark: "SparkSession") -> Cli:
    project = Project(tmp_path, spark)
    project.flow(FLOW)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 11))
    assert project.run(params=("least=1",)).state == "succeeded"
    return cli


def test_a_table_that_a_task_made(ran: Cli) -> None:
    told = ran("why", "dws.day")
    assert told.code == 0 and all(len(line) <= 80 for line in told.out.splitlines())
    for text in ("made by    task day, flows/flow.py:7", "how        full:", "least=1", "ods.orders  2 rows, commit"):
        assert text in told.out, told.out
    assert "amount < 9: 1 failed, warned of" in told.out
    assert "sha256" in ran("why", "ods.orders").out
    log = ran("log", "dws.day")
    assert "full: " in log.out and ran("log", "dws.day", "--json").json[0]["made"]["action"] == "full"
    tree = ran("lineage", "ods.orders").out
    assert "source files data/orders/*.csv" in tree and "  dws.day  task day, flows/flow.py:7" in tree
    (one,) = ran("runs", "--json").json
    assert (one["state"], one["tables"]) == ("succeeded", ["ods.orders", "dws.day"])
    assert one["run"] in ran("runs").out
    whole = ran("runs", one["run"], "--json").json
    assert [(step["table"], step["action"]) for step in whole["steps"]] == [
        ("ods.orders", "ingest"),
        ("dws.day", "full"),
    ]
    assert "dws.day" in ran("runs", one["run"]).out
    assert f"run {one['run']} on main" in ran("logs", one["run"]).out


def test_rows_of_a_task_lead_to_the_rows_and_files_of_its_inputs(
    cli: Cli, tmp_path: Path, spark: "SparkSession"
) -> None:
    project = Project(tmp_path, spark)
    project.flow("""
@rn.task("dwd.paid", rowwise=True, key="id")
def paid(orders):
    return orders.where("amount > 0")

@rn.task("dws.day", by="day")
def day(paid):
    return paid.groupBy("day").agg(F.sum("amount").alias("amount"))

@rn.task("dws.total")
def total(day):
    return day.agg(F.sum("amount").alias("amount"))
""")
    others = [(number, f"2026-01-{number:02}", 1) for number in range(4, 11)]
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 11), *others)
    assert project.run().state == "succeeded"
    project.orders("b", (3, "2026-01-02", 4))
    assert project.run().state == "succeeded"
    commits = [commit["commit"][:8] for commit in cli("log", "--json").json]
    lines = cli("why", "dws.day", "--row", "day = date '2026-01-02'").out.splitlines()
    assert lines[0] == f"dws.day at {commits[0]} on main: 1 row where day = date '2026-01-02'"
    assert lines[2] == "  row        day=2026-01-02, amount=15"
    note = "this run wrote the data file; an earlier run may have computed the row"
    assert lines[3] == f"  note       {note}"
    assert lines[6:] == [
        f"  from       dwd.paid at commit {commits[0]}: 2 rows where day = date '2026-01-02'",
        f"               ods.orders at commit {commits[0]}: 2 rows where id in (2, 3) (if it passes id through)",
        "                 data/orders/a.csv: 1 row",
        "                 data/orders/b.csv: 1 row",
    ]
    (total,) = cli("why", "dws.total", "--row", "amount = 27", "--json").json["rows"]
    (day,) = total["inputs"]
    assert (day["table"], day["row"], day["rows_total"], day["note"]) == (
        "dws.day",
        None,
        9,
        "any of its rows may have contributed",
    )
    assert cli("why", "dws.day", "--row", "dya = 1").err.startswith("WHY_COLUMN_UNKNOWN: `dws.day` has no column `dya`")


def test_show_lists_the_first_files_of_an_ingest(cli: Cli, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.flow("")
    for number in range(23):
        project.orders(f"{number:02}", (number, "2026-01-01", 5))
    project.run()
    lines = cli("show", "main").out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split() == ["table", "file", "size", "rows"])
    assert lines[start + 1].split() == ["ods.orders", "data/orders/00.csv", "added", "29", "B", "1"]
    assert lines[start + 21 :] == ["and 3 more files; --json has all"]
    files = cli("show", "main", "--json").json["files"]
    assert len(files) == 23 and files[22] == {
        "table": "ods.orders",
        "file": "data/orders/22.csv",
        "change": "added",
        "size": 30,
        "rows": 1,
    }
