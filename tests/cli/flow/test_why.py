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
