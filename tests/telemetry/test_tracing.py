"""Traces as a collector on loopback gets them: requests, the runs that they queue, schedules; and that nobody waits."""

import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import runnel as rn
from runnel.declare.settings import load_settings
from runnel.lake.control import run_queue, schedules
from runnel.service.server.scheduler import Scheduler
from runnel.telemetry import tracing
from tests.run.project import Project
from tests.servers.http_server import Server
from tests.service.api.api_server import serving, working
from tests.telemetry.trace_collector import below, spans, telling

ABOVE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DAY = """
@rn.task("dws.day", checks=[rn.row_count(min={least})])
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
"""


def test_a_run_with_its_steps(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", ABOVE)
    with Server() as server, telling(server) as settings:
        (project.root / "runnel.toml").write_text(settings)
        project.flow(DAY.format(least=1))
        project.orders("a", (1, "2026-01-01", 5))
        ran = project.run()
        assert ran.state == "succeeded" and tracing.flush(30)
        found = spans(server)
    (run,) = [one for one in found if one.name == "run"]
    assert (run.trace, run.parent) == (ABOVE.split("-")[1], ABOVE.split("-")[2]) and run.error is None
    assert run.attributes["runnel.run"] == ran.run and run.attributes["runnel.commit"] == ran.commit
    steps = {one.name: one for one in below(found, run)}
    assert set(steps) == {"plan", "step ods.orders", "step dws.day", "publish"}
    phases = {one.name for one in below(found, steps["step dws.day"])}
    assert {"plan", "compute", "check", "write"} <= phases
    assert all(run.start <= one.start <= one.end for one in found) and {one.trace for one in found} == {run.trace}


def test_a_run_that_fails(project: Project) -> None:
    with Server() as server, telling(server) as settings:
        (project.root / "runnel.toml").write_text(settings)
        project.flow(DAY.format(least=9))
        project.orders("a", (1, "2026-01-01", 5))
        assert project.run().state == "failed" and tracing.flush(30)
        found = {one.name: one for one in spans(server)}
    assert "row_count" in (found["run"].error or "") and "row_count" in (found["step dws.day"].error or "")
    assert found["run"].parent == "" and found["step ods.orders"].error is None


def test_the_batches_of_a_stream(project: Project) -> None:
    with Server() as server, telling(server) as settings:
        (project.root / "runnel.toml").write_text(settings)
        project.flow("""
            @rn.task("dws.copied", stream="orders")
            def copied(orders):
                return orders.select("id")
        """)
        project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
        ran = project.run()
        assert ran.state == "succeeded" and tracing.flush(30)
        found = spans(server)
    (batch,) = [one for one in found if one.name == "batch dws.copied"]
    assert (batch.attributes["runnel.rows"], batch.attributes["runnel.commit"]) == (2, ran.commit)
    assert {"compute", "write", "publish"} <= {one.name for one in below(found, batch)}


def test_a_request_and_the_run_that_it_queues(tmp_path: Path) -> None:
    """One trace from whoever asks over the service and the queue to the worker."""
    with Server() as server, telling(server) as settings:
        (tmp_path / "runnel.toml").write_text(settings)
        with rn.open(tmp_path) as lake, serving(lake) as api, working(api):
            asked = api.ask("POST", "/runs", json={"select": ["ods.more"]}, headers={"traceparent": ABOVE}).json()
            while api.get(f"/runs/{asked['run']}")["state"] in ("queued", "running"):
                pass
            assert api.get("/tables/no.such", 404) and api.ask("GET", "/health").status_code == 200
        assert tracing.flush(30)
        found = spans(server)
    (post,) = [one for one in found if one.name == "POST /api/v1/runs"]
    assert (post.trace, post.parent) == (ABOVE.split("-")[1], ABOVE.split("-")[2])
    assert post.attributes["http.response.status_code"] == 202
    names = {one.name: one for one in below(found, post)}
    assert set(names) == {"queue", "run"} and names["run"].attributes["runnel.run"] == asked["run"]
    missing = [one for one in found if one.attributes.get("http.response.status_code") == 404]
    assert [one.name for one in missing] == ["GET /api/v1/tables/{name}"] and missing[0].trace != post.trace
    assert not [one for one in found if "health" in one.name]


def test_a_schedule(tmp_path: Path) -> None:
    with Server() as server, telling(server) as settings:
        (tmp_path / "runnel.toml").write_text(settings)
        with rn.open(tmp_path) as lake:
            assert tracing.configure(lake.settings.telemetry, "shop")
            db, later = lake.store.db, datetime.now(UTC) + timedelta(hours=2)
            schedules.declare(db, [{"name": "often", "every": "1 hour", "select": "ods.*"}])
            scheduler = Scheduler(lake.store, lambda: later)
            (entry,) = scheduler.queue_due_runs()
            assert scheduler.queue_due_runs() == []
            queued = db.read(lambda c: run_queue.find(c, entry))
        assert tracing.flush(30)
        (found,) = spans(server)
    assert found.name == "schedule often" and found.attributes["runnel.runs"] == 1
    assert str(queued.trace).startswith(f"00-{found.trace}-{found.id}-")


@pytest.mark.parametrize("trouble", ["away", "slow"])
def test_a_collector_in_trouble_holds_up_nothing(
    tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project(tmp_path)
    project.flow("")
    project.orders("a", (1, "2026-01-01", 5))
    with Server() as server, telling(server) as settings:
        server.fail("drop" if trouble == "away" else "slow", times=1000)
        (tmp_path / "runnel.toml").write_text(settings)
        with caplog.at_level(logging.WARNING, "runnel.telemetry"):
            assert project.run().state == "succeeded" and server.posts == []
            if trouble == "slow":
                assert not tracing.flush(0.05)
                return
            project.orders("b", (2, "2026-01-01", 5))
            assert project.run().state == "succeeded" and tracing.flush(30)
    assert [one.message for one in caplog.records] == ["traces do not reach their collector and are dropped"]


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(Project(tmp_path).root).telemetry
    assert not tracing.configure(settings, "shop") and tracing.current_traceparent() is None
    with Server() as server, telling(server):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url("/hook"))
        assert tracing.configure(settings, "shop")
        with tracing.span("outer") as outer, tracing.span("inner", rows=3):
            assert outer.traceparent is not None and tracing.current_traceparent() != outer.traceparent
        assert tracing.flush(30)
        first, second = spans(server)
        assert (first.name, second.parent, second.attributes) == ("outer", first.id, {"runnel.rows": 3})
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        assert not tracing.configure(settings, "shop")


def test_nothing_is_imported_unless_it_is_wanted(tmp_path: Path) -> None:
    """Neither by a command that plans, nor by the service and a worker: their start must not become slower."""
    project = Project(tmp_path)
    project.flow("")
    project.orders("a", (1, "2026-01-01", 5))
    heavy = ("openlineage", "opentelemetry.sdk", "opentelemetry.exporter")  # FastAPI has the bare API by itself
    code = (
        f"HEAVY = {heavy!r}\n"
        "import sys, runnel as rn, runnel.run.execute\n"
        "import runnel.service.server.server_process, runnel.service.worker.worker_process\n"
        "from runnel.service.api.app import make_app\n"
        f"lake = rn.open({str(tmp_path)!r}); lake.plan(); lake.run(); make_app(lake)\n"
        "print([name for name in sys.modules if name.startswith(HEAVY)])"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENLINEAGE"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=False)
    assert done.stdout == "[]\n", done.stderr
