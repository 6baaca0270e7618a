"""Operators' requests that a worker serves: the answers, errors and effects are those of the project's folder."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.errors import Mistake, Unreachable
from runnel.lake.control import declarations, queue_entry, run_claims, run_queue, workers
from runnel.lake.flow_state import streams
from runnel.model.operation_request import LineageRequest, RewindRequest
from runnel.model.worker_request import parse_worker_request
from runnel.names import TableName
from runnel.project.execution.release import format_quarantined_rows
from runnel.project.inspection.declarations import collect_declarations
from runnel.project.planning.plan_project import load_project_flow
from runnel.service.api.worker_request import ask_worker
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.worker import Worker
from tests.client.remote.conftest import Pair
from tests.service.api.api_server import serving

FLOW = """
import runnel as rn

rn.source("ods.events", rn.files("data/*.csv", schema="id long, amount decimal(6,2)"), on_bad="quarantine")
rn.sink("ods.events", rn.files("export/events.csv"), name="export")
rn.sink("ods.events", rn.files("/proc/nowhere/events.csv"), name="broken", retries=0)


@rn.task("dws.sums")
def sums(events):
    return events
"""
TABLE = "ods.events"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Pair]:
    """Serve a project with a source, two sinks and a task, with a worker that does nothing by itself."""
    for folder in ("flows", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows/flow.py").write_text(FLOW)
    (tmp_path / "data/a.csv").write_text("id,amount\n1,1.00\n")
    with rn.open(tmp_path) as lake, serving(lake) as api, rn.open(api.url, token=api.secret) as remote:
        lake.run(TABLE)
        (tmp_path / "data/b.csv").write_text("id,amount\n2,2.00\nx,3.00\ny,4.00\n")
        lake.run(TABLE)
        declarations.write_declarations(lake.store.db, collect_declarations(load_project_flow(lake)))
        worker = Worker(lake, FlowCache(lake, os.environ), parallel=1)
        worker.start()
        try:
            yield Pair(lake, remote, api)
        finally:
            worker.end()


def test_lineage_sinks_and_deliveries(site: Pair) -> None:
    assert site.remote.lineage(TABLE) == site.local.lineage(TABLE)
    assert site.remote.lineage("dws.sums", down=False) == site.local.lineage("dws.sums", down=False)
    assert site.api.get(f"/tables/{TABLE}/lineage", down="false") == site.local.lineage(TABLE, down=False).json()
    assert site.remote.sinks() == site.local.sinks()
    broken, export = site.remote.sinks()
    assert (broken.state, broken.kind, export.state, export.behind) == ("failing", "files", "current", 0)
    assert export.commit == site.local.log(limit=1)[0].id and broken.failing_since is not None
    assert site.remote.reset_sink("export") == "export"
    assert site.remote.sinks()[1].commit is None
    (delivery,) = site.remote.deliver("export")
    assert (delivery.sink, delivery.state, delivery.rows) == ("export", "delivered", 2)
    (failed,) = site.remote.deliver()
    assert (failed.sink, failed.state) == ("broken", "failed") and failed.error is not None
    assert failed.error.what == site.local.deliver("broken")[0].error.what  # type: ignore[union-attr]


def test_release_unchanged_and_corrected(site: Pair, tmp_path: Path) -> None:
    unchanged = site.remote.release(TABLE)
    assert (unchanged.rows, unchanged.accepted, unchanged.bad, unchanged.commit) == (2, 0, 2, None)
    reasons = [row.row.reason for row in unchanged.still_bad]
    assert reasons == [row.row.reason for row in site.local.release(TABLE).still_bad]
    bad = tmp_path / "bad.csv"
    lines = format_quarantined_rows(site.local, TABLE, site.local.quarantine(TABLE))
    bad.write_text("\n".join(lines).replace("x,3.00", "3,3.00") + "\n")
    result = site.remote.release(TABLE, bad)
    assert (result.rows, result.accepted, result.bad) == (2, 1, 1)
    assert [(row.line, row.row.raw) for row in result.still_bad] == [(3, "y,4.00")]
    assert result.commit == site.local.log(limit=1)[0]
    assert (result.commit.kind, result.commit.author) == ("release", "ada")
    assert [row.raw for row in site.remote.quarantine(TABLE)] == ["y,4.00"]
    assert site.remote.query(f"select id from {TABLE} order by id").rows() == [(1,), (2,), (3,)]
    assert not list((tmp_path / ".runnel/warehouse").glob("_uploads/*/*")), "the upload is removed"


def test_release_over_rest(site: Pair) -> None:
    headers = {"Content-Type": "text/csv"}
    answer = site.api.ask("POST", f"/quarantine/{TABLE}/release", data=b"id,amount\n7,7.00\n8,8.00\n", headers=headers)
    assert answer.status_code == 200, answer.text
    assert {name: answer.json()[name] for name in ("table", "rows", "taken", "bad", "still_bad")} == {
        "table": TABLE,
        "rows": 2,
        "taken": 2,
        "bad": 0,
        "still_bad": [],
    }
    json_body = site.api.ask("POST", f"/quarantine/{TABLE}/release", json={"x": 1})
    assert (json_body.status_code, json_body.json()["code"]) == (415, "RELEASE_MEDIA_TYPE")
    too_large = site.api.ask("POST", f"/quarantine/{TABLE}/release", data=bytes(2**26 + 1), headers=headers)
    assert too_large.status_code == 413 and "64 MiB at most" in too_large.json()["what"]


def test_rewind(site: Pair) -> None:
    planned = site.remote.rewind(TABLE, to="main~1", dry_run=True)
    assert planned == site.local.rewind(TABLE, to="main~1", dry_run=True) and planned.commit is None
    result = site.remote.rewind(TABLE, to="main~1")
    assert (result.files, result.drops, result.commit) == (1, False, site.local.log(limit=1)[0])
    assert (result.commit.kind, result.commit.author) == ("rewind", "ada")
    assert site.remote.query(f"select id from {TABLE}").rows() == [(1,)]


def test_a_stream_starts_from_scratch(site: Pair) -> None:
    with streams.acquire_lease(site.local.store.db, "main", TableName.parse("dws.sums"), "code") as lease:
        lease.record_start("q1", "code")
        running = site.api.post("/streams/dws.sums/reset", expected=409)
        assert running["code"] == "STREAM_RUNNING"
    assert "close: `dws.sums`" in site.api.post("/streams/dws.sum/reset", expected=404)["what"]
    answer = site.api.post("/streams/dws.sums/reset", {"branch": "main"})
    assert answer == {"table": "dws.sums", "branch": "main", "state": "reset"}
    assert site.local.store.db.read(streams.list_streams) == {}


WRONG: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "lineage of no table": (lambda lake: lake.lineage("dws.sum"), "TABLE_UNKNOWN", "close: `dws.sums`"),
    "a sink that is none": (lambda lake: lake.deliver("exprot"), "SINK_UNKNOWN", "close: `export`"),
    "resetting no sink": (lambda lake: lake.reset_sink("exprot"), "SINK_UNKNOWN", "close: `export`"),
    "a table with two sinks": (lambda lake: lake.deliver(TABLE), "SINK_UNKNOWN", "several sinks"),
    "rewinding no source": (lambda lake: lake.rewind("ods.event", to="main~1"), "REWIND_UNKNOWN", "close"),
    "rewinding to nothing": (lambda lake: lake.rewind(TABLE, to="main"), "REWIND_NOTHING", "are already as"),
    "releasing a task's rows": (lambda lake: lake.release("dws.sums"), "RELEASE_TASK", "a task computes"),
    "releasing no source": (lambda lake: lake.release("ods.evnts"), "RELEASE_UNKNOWN", "close: `ods.events`"),
    "no corrected file": (lambda lake: lake.release(TABLE, "nowhere.csv"), "RELEASE_NO_FILE", "nowhere.csv"),
    "no rows of a file": (lambda lake: lake.release(TABLE, file="a.csv"), "RELEASE_NOTHING", "no row of a.csv"),
    "no stream": (lambda lake: lake.reset_stream("dws.sum"), "STREAM_UNKNOWN", "there is no stream"),
}


def test_the_same_errors(site: Pair) -> None:
    for name, (ask, code, what) in WRONG.items():
        errors = []
        for lake in (site.local, site.remote):
            with pytest.raises(Mistake) as error:
                ask(lake)
            errors.append((type(error.value), error.value.to_json()))
        assert errors[0] == errors[1], name
        assert errors[0][1]["code"] == code and what in str(errors[0][1]["what"]), name


def test_a_mistake_in_an_uploaded_file_names_it_as_its_sender_does(site: Pair, tmp_path: Path) -> None:
    (tmp_path / "data/c.csv").write_text("id,amount\nz,5.00\n")
    site.local.run(TABLE)
    other = tmp_path / "other.csv"
    other.write_text("id,amount\n1,1.00\n")
    with pytest.raises(Mistake) as error:
        site.remote.release(TABLE, other)
    assert error.value.what == "other.csv does not say which of 2 files each of its rows belongs to"
    assert error.value.at == "other.csv:1"


def test_without_a_worker(seen: Pair) -> None:
    for ask in (
        lambda: seen.remote.lineage("ods.orders"),
        lambda: seen.remote.rewind("ods.orders", to="v1"),
        lambda: seen.remote.release("ods.orders"),
        lambda: seen.remote.deliver(),
    ):
        with pytest.raises(Unreachable) as error:
            ask()
        assert error.value.code == "WORKER_ABSENT"
    assert seen.remote.sinks() == [], "positions need no worker"


def test_a_change_that_takes_long_goes_on(pair: Pair) -> None:
    """A change that a worker has started is not cancelled; what nobody has started is."""
    store = pair.local.store
    workers.record_state(store.db, "w1", workers.WORKER, "ready", {})
    request = RewindRequest("ods.orders", "v1")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask_worker, store, request, seconds=2)
        while (entry := run_claims.claim(store.db, "w1", (request.kind,))) is None:
            assert not answer.done()
    with pytest.raises(Unreachable, match="a worker has not finished the rewind within 2 s; it continues"):
        answer.result()
    assert entry.request == request and entry.author == store.author
    current = store.db.read(lambda connection: run_queue.find(connection, entry.id))
    assert (current.state, current.cancel_at) == ("running", None)
    with pytest.raises(Mistake, match="is a rewind, not a run"):
        queue_entry.require_run(entry)
    with pytest.raises(Unreachable, match="no worker has answered within 0 s"):
        ask_worker(store, request, seconds=0)
    assert run_claims.claim(store.db, "w1", (request.kind,)) is None, "it was cancelled"


def test_requests_are_stored_and_read() -> None:
    for request in (LineageRequest("a.b", up=False), RewindRequest("a.b", "v1", "dev", True)):
        assert parse_worker_request(request.kind, json.loads(json.dumps(request.to_json())), "main") == request
