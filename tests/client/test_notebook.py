"""What a notebook shows, and that it sees changed code without a restart. No Spark is needed for any of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.errors import Mistake
from runnel.names import TableName
from runnel.plan.steps import Plan, PlanStep
from runnel.run.results.run_result import RunResult, StepResult

FLOW = """
import runnel as rn
from shared import scaled

rn.source("ods.orders", rn.files("data/*.csv", schema="id long, name string"))

@rn.task("dws.day")
def day(orders):
    return scaled(orders)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "flows").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "runnel.toml").write_text('[project]\nname = "a <b>shop</b>"\n')
    (tmp_path / "flows/flow.py").write_text(FLOW)
    (tmp_path / "flows/shared.py").write_text("def scaled(frame):\n    return frame\n")
    (tmp_path / "data/a.csv").write_text("id,name\n1,<script>\n2,\n")
    with rn.open(tmp_path) as lake:
        yield lake


def test_a_lake(lake: Lake, tmp_path: Path) -> None:
    assert "no tables yet" in lake._repr_html_()
    lake.load("ods.people", tmp_path / "data/a.csv")
    lake.branch("dev")
    shown = lake._repr_html_()
    assert "a &lt;b&gt;shop&lt;/b&gt;" in shown and "branches: main, dev" in shown
    assert '<td>ods.people</td><td style="text-align:right">2</td>' in shown


def test_an_answer_can_still_be_read_after_it_was_shown(lake: Lake, tmp_path: Path) -> None:
    lake.load("ods.people", tmp_path / "data/a.csv")
    found = lake.query("select id, name from ods.people order by id")
    shown = found._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown and "2 rows, by duckdb" in shown
    assert found._repr_html_() == shown
    assert [row[0] for row in found.rows()] == [1, 2]
    assert found._repr_html_() == shown
    found.close()


def test_a_long_answer_is_cut(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(300)))
    lake.load("ods.many", tmp_path / "many.csv")
    found = lake.query("select a.id from ods.many a cross join ods.many b")
    assert found._repr_html_().count("<tr>") == 21 and "the first 20 rows" in found._repr_html_()
    assert sum(batch.num_rows for batch in found.batches()) == 90_000
    assert "read or closed already" in found._repr_html_()


def test_a_plan(lake: Lake) -> None:
    shown = lake.plan()._repr_html_()
    assert "<td>ods.orders</td><td>ingest</td><td>1 new file</td>" in shown
    assert "<td>dws.day</td><td>~full</td><td>not computed yet</td>" in shown and "starts Spark" in shown
    skip = PlanStep(TableName("ods", "x"), "skip", "nothing changed")
    assert Plan("main", "c", (skip,), False, ("a <note>",))._repr_html_() == (
        "<div>a &lt;note&gt;</div><div>nothing to do: 1 skipped</div>"
    )
    assert "ods.orders" in str(lake.plan())


def test_a_run() -> None:
    steps = (
        StepResult(TableName("ods", "a"), "ingest", "succeeded", "1 new file", rows=1204, seconds=1.24),
        StepResult(TableName("dws", "b"), "full", "failed", "why", error=Mistake("RUN_X", "it's <bad>")),
        StepResult(TableName("dws", "c"), "skip", "skipped", "nothing changed"),
    )
    shown = RunResult("r", "failed", "main", None, 2.0, steps)._repr_html_()
    assert "<b>failed</b> on main, 2.0 s, 1 skipped" in shown
    assert "1,204" in shown and "RUN_X: it&#x27;s &lt;bad&gt;" in shown and "dws.c" not in shown


def test_a_mistake_has_no_stack_trace() -> None:
    assert Mistake("A", "what", fix="do")._render_traceback_() == ["A: what", "  fix: do"]


def test_changed_code_is_seen_without_a_restart(lake: Lake, tmp_path: Path) -> None:
    from runnel.plan.fingerprint.fingerprints import Fingerprinter
    from runnel.project.planning.plan_project import load_project_flow

    def digest() -> str:
        flow = load_project_flow(lake)
        return Fingerprinter(flow.root).fingerprint_of(flow.tasks[TableName("dws", "day")]).digest

    assert [step.action for step in lake.plan().steps] == ["ingest", "full"]
    before = digest()
    (tmp_path / "flows/shared.py").write_text("def scaled(frame):\n    return fname\n")  # as long as before
    assert digest() != before
    (tmp_path / "flows/shared.py").write_text("def scaled(frame):\n    return (frame)  # equal\n")
    assert digest() == before
    (tmp_path / "flows/flow.py").write_text(FLOW.replace("dws.day", "dws.days"))
    assert [str(step.table) for step in lake.plan().steps] == ["ods.orders", "dws.days"]
