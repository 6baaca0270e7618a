"""Every number has its origin: what made it can be asked for, and what a commit computed can be computed again."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from runnel.errors import RunnelError
from runnel.lake.flow_state.code_store import load_code
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata as load_table
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.names import TableName
from tests.run.project import Project, did

FLOW = """
from lib.money import doubled

@rn.task("dwd.order", rowwise=True, checks=[rn.check("amount < 100", on_fail="drop"), rn.not_null("id")])
def order(orders, *, least: int = 0):
    return orders.where(F.col("amount") >= least)

@rn.task("dws.day", by="day", inputs={"order": "dwd.order"}, checks=[rn.unique("day")])
def day(order):
    return order.groupBy("day").agg(F.sum(doubled("amount")).alias("revenue"), F.avg("amount").alias("mean"))

@rn.task("ads.top", inputs={"day": "dws.day"})
def top(day):
    return day.orderBy(F.desc("revenue")).limit(1)
"""
LIB = """
from pyspark.sql import functions as F

def doubled(name):
    return F.col(name) * 2
"""


def shop(project: Project, flow: str = FLOW) -> Project:
    project.flow(flow)
    project.write("lib/money.py", LIB)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7), (3, "2026-01-02", 11), (4, "2026-01-02", 500))
    return project


def states(project: Project, ref: str | None) -> dict[str, str]:
    assert ref is not None
    with project.open() as lake:
        return {str(one.table): one.state for one in lake.replay(ref).tables}


def test_what_was_computed_comes_out_again(project: Project) -> None:
    """By rows, by slices, in full; also when the project's files are others by now, and after the source has gone."""
    shop(project)
    project.orders("c", *((10 + day, f"2026-02-{day:02}", 20 + day) for day in range(1, 20)))
    first = project.run(params=("least=6",))
    project.orders("b", (5, "2026-01-02", 13), (6, "2026-02-03", 99))
    second = project.run(params=("least=6",))
    assert did(second) == {"ods.orders": "ingest", "dwd.order": "rows", "dws.day": "slices", "ads.top": "full"}
    (project.root / "data/orders/a.csv").unlink()
    project.flow("\n@rn.task('x.y')\ndef y(orders):\n    return orders\n")
    (project.root / "lib/money.py").unlink()
    all_same = {"ads.top": "same", "dwd.order": "same", "dws.day": "same"}
    assert states(project, first.commit) == all_same
    assert states(project, second.commit) == all_same
    with project.open() as lake:
        before = len(lake.log()), lake.tables()
        assert lake.replay(str(second.commit)).is_same
        assert (len(lake.log()), lake.tables()) == before
        slots = lake.store.db.read(lambda c: c.exec_driver_sql("select count(*) from runnel_slots").scalar())
        assert slots == 0


def test_a_difference_is_told_with_what_may_explain_it(project: Project) -> None:
    shop(project, "@rn.task('dws.r')\ndef r(orders):\n    return orders.select('id', F.rand().alias('x'))\n")
    ran = project.run()
    with project.open() as lake:
        found = lake.replay(str(ran.commit))
        (one,) = found.tables
    assert (found.is_same, one.state, one.rows, one.rows_again) == (False, "different", 4, 4)
    assert one.frame_differences is not None and (
        one.frame_differences.only_left,
        one.frame_differences.only_right,
    ) == (4, 4)
    assert any("rand" in note for note in one.notes)


def test_a_commit_without_task_results_has_nothing_to_replay(project: Project) -> None:
    shop(project)
    ran = project.run("ods.orders")
    assert states(project, ran.commit) == {}


def test_inputs_that_are_gone_are_named(project: Project) -> None:
    shop(project)
    ran = project.run()
    with project.open() as lake:
        (made,) = lake.why("dwd.order").inputs
        Path(made.location.removeprefix("file://")).unlink()
        table_metadata.clear_cache()
        one = next(one for one in lake.replay(str(ran.commit)).tables if str(one.table) == "dwd.order")
    assert one.state == "gone" and one.error is not None
    assert (one.error.code, "`ods.orders`" in one.error.what) == ("REPLAY_GONE", True)


def test_results_of_a_failed_run_are_replayed_where_they_are_published(project: Project) -> None:
    bad = FLOW.replace('F.desc("revenue")', 'F.desc("revenu")')
    shop(project, bad)
    assert project.run().state == "failed"
    project.flow(FLOW)
    ran = project.run()
    assert did(ran)["dws.day"] == "reuse"
    assert states(project, ran.commit) == {"ads.top": "same", "dwd.order": "same", "dws.day": "same"}


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def test_why_leads_to_the_run_that_computed_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a merge and a revert; secrets are nowhere."""
    monkeypatch.setenv("PIN", "s3cret")
    project.write("runnel.toml", '[project]\nname = "shop"\n[params]\nleast = 6\npin = { env = "PIN" }\n')
    shop(project, FLOW.replace("least: int = 0", 'least: int = 0, pin: str = ""'))
    project.write(".gitignore", ".runnel/\n")
    project.write("flows/.env", "KEY=s3cret\n")
    git(project.root, "init", "-q")
    git(project.root, "add", "flows/flow.py", "lib", "runnel.toml", ".gitignore")
    git(project.root, "commit", "-qm", "first")
    with project.open() as lake:
        lake.branch("dev")
        ran = project.run(branch="dev")
        lake.merge("dev")
        found = lake.why("dwd.order")
        told = found.json()
        assert (found.kind, told["run"], told["action"], told["rows"]) == ("task", ran.run, "full", 2)
        assert told["params"] == {"least": "6", "pin": "'***'"}
        assert told["place"] == "flows/flow.py:9"
        assert told["git"] == {"commit": git(project.root, "rev-parse", "HEAD"), "dirty": False}
        assert {"python", "pyspark", "pyiceberg", "runnel", "iceberg-spark-runtime"} <= told["packages"].keys()
        (used,) = told["inputs"]
        assert (used["table"], used["rows"], used["commit"]) == ("ods.orders", 4, ran.commit)
        assert [(one["check"], one["failed"], one["on_fail"]) for one in told["checks"]] == [
            ("amount < 100", 1, "drop"),
            ("not_null(id)", 0, "stop"),
        ]
        assert [step.commit.kind for step in found.carrying_steps] == ["merge"]
        code = lake.store.db.read(lambda c: load_code(c, told["code"]))
        assert code is not None and set(code.files) == {"runnel.toml", "flows/flow.py", "lib/money.py"}
        assert "s3cret" not in str(told) + str(code.files)
        source = lake.why("ods.orders")
        assert (source.kind, source.files_total, source.files[0].name) == ("source", 1, "data/orders/a.csv")
        assert states(project, ran.commit) == {"ads.top": "same", "dwd.order": "same", "dws.day": "same"}
        project.write("flows/flow.py", (project.root / "flows/flow.py").read_text() + "\n# changed\n")
        project.orders("b", (5, "2026-01-02", 13))
        later = project.run()
        assert lake.why("dws.day").json()["git"]["dirty"] is True
        lake.revert(str(later.commit))
        back = lake.why("dws.day")
        assert back.run == ran.run and [step.commit.kind for step in back.carrying_steps] == ["revert", "merge"]
        assert lake.why("dws.day", at=str(later.commit)).run == later.run


def test_code_stays_as_long_as_it_is_named(project: Project) -> None:
    shop(project)
    first = project.run()
    now = Retention(commits="0 seconds", failed="0 seconds", grace="0 seconds")
    with project.open() as lake:
        code = lake.why("dws.day").json()["code"]
        assert gc(lake.store, now).expired_codes == 0  # the newest commit names it
        project.flow(FLOW.replace("limit(1)", "limit(2)").replace("least: int = 0", "least: int = 1"))
        project.orders("b", (5, "2026-01-02", 13))
        project.run(full_refresh=True)
        again = lake.why("dws.day").json()["code"]
        gc(lake.store, now)
        kept = [lake.store.db.read(lambda c, one=one: load_code(c, one)) is not None for one in (code, again)]
        assert kept[1] and again != code
        with pytest.raises(RunnelError):
            lake.replay(str(first.commit))


def test_a_compaction_keeps_the_origin(project: Project) -> None:
    shop(project)
    first = project.run("dwd.order", "ods.orders")
    project.orders("b", (5, "2026-01-02", 13))
    second = project.run("dwd.order", "ods.orders")
    assert did(second)["dwd.order"] == "rows"
    with project.open() as lake:
        name = TableName("dwd", "order")
        compact(lake.store, name, force=True)
        found = lake.why("dwd.order")
        assert (found.run, found.kind) == (second.run, "task") and first.run != second.run
        assert [step.commit.kind for step in found.carrying_steps] == ["compact"]
        assert len(list(read_entries(lake.store, load_table(lake.store, found.version.location)))) == 1


def test_lineage(project: Project) -> None:
    shop(project)
    project.run()
    with project.open() as lake:
        lake.load("raw.extra", project.root / "data/orders/a.csv")
        found: Any = lake.lineage("dwd.order").json()
        assert (found["up"], found["down"]) == (["ods.orders"], ["dws.day", "ads.top"])
        assert ["ods.orders", "dwd.order"] in found["edges"] and ["dws.day", "ads.top"] in found["edges"]
        assert lake.lineage("dwd.order", down=False).down == ()
        assert lake.lineage("raw.extra").makers[lake.lineage("raw.extra").table] == "loaded by hand"
        project.flow("\n@rn.task('x.y')\ndef y(orders):\n    return orders\n")
        recorded: Any = lake.lineage("ads.top").json()
        assert recorded["up"] == ["dws.day", "dwd.order", "ods.orders"]
        assert "not declared any more" in recorded["makers"]["ads.top"]
        with pytest.raises(RunnelError, match=r"close: `ads[.]top`"):
            lake.lineage("ads.topp")
