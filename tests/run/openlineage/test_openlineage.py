"""What OpenLineage is told of runs, as a server on loopback gets it; a server that is away or slow holds up nothing."""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runnel.declare.settings import load_settings
from runnel.errors import Mistake
from runnel.model.run_request import RunRequest
from runnel.names import TableName
from runnel.project.execution.run_project import ClaimedRun, run_project
from runnel.run.openlineage.sender import get_sender
from runnel.run.results.run_result import RunResult
from tests.run.project import Project
from tests.servers.http_server import Server

DAY = """
@rn.task("dws.day", owner="sales", checks=[rn.unique("day"), rn.check("revenue > {least}")])
def day(orders):
    '''Revenue of each day.'''
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
"""
RUNS = '[project]\nname = "shop"\n[openlineage]\nurl = "{url}"\n'


def told(project: Project) -> bool:
    """Wait until everything was sent."""
    sender = get_sender(load_settings(project.root).openlineage)
    return sender is not None and sender.flush(30)


def tell(project: Project, server: Server, more: str = "") -> None:
    (project.root / "runnel.toml").write_text(RUNS.format(url=server.url("/hook/")) + more)


def events(server: Server) -> list[dict[str, Any]]:
    """Return what came; each must have all that the standard wants of an event and of its facets."""
    found = [post.json for post in server.posts]
    for one in found:
        assert one["eventTime"].endswith("Z") and one["producer"].startswith("urn:runnel:") and one["schemaURL"]
        assert uuid.UUID(one["run"]["runId"]) and one["job"]["namespace"] and one["job"]["name"]
        parts = [one["run"], one["job"], *one["inputs"], *one["outputs"]]
        facets = [facet for part in parts for facet in part.get("facets", {}).values()]
        facets += [facet for part in one["outputs"] for facet in part.get("outputFacets", {}).values()]
        assert all(facet["_producer"] and facet["_schemaURL"] for facet in facets)
    return found


def by_job(found: list[dict[str, Any]]) -> dict[str, list[str]]:
    jobs: dict[str, list[str]] = {}
    for one in found:
        jobs.setdefault(one["job"]["name"], []).append(one["eventType"])
    return jobs


def last(found: list[dict[str, Any]], job: str) -> dict[str, Any]:
    return [one for one in found if one["job"]["name"] == job][-1]


def test_a_run_with_its_steps(project: Project) -> None:
    project.flow(DAY.format(least=0))
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 7))
    with Server() as server:
        tell(project, server, 'api_key = { env = "OL_KEY" }\n')
        server.token = "hush"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OL_KEY", "hush")
            with project.open() as lake:
                taken = ClaimedRun("20260102t020000-aaaaaaaa", cause="schedule/nightly", due="2026-01-02T02:00:00Z")
                ran = run_project(lake, RunRequest(), claimed_run=taken)
                state = lake.store.state("main")
                sender = get_sender(lake.settings.openlineage)
                assert sender is not None and sender.flush(30) and "hush" in lake.settings.secrets
        found = events(server)
    assert ran.state == "succeeded"
    assert by_job(found) == {key: ["START", "COMPLETE"] for key in ("shop.nightly", "ods.orders", "dws.day")}
    run, source, day = (last(found, job) for job in ("shop.nightly", "ods.orders", "dws.day"))
    parent = day["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == run["run"]["runId"] and parent["job"]["name"] == "shop.nightly"
    assert day["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2026-01-02T02:00:00Z"
    assert (source["inputs"][0]["namespace"], Path(source["inputs"][0]["name"]).name) == ("file", "*.csv")
    made, facets = day["outputs"][0], day["outputs"][0]["facets"]
    assert (made["namespace"], made["name"]) == ("shop", "dws.day")
    assert [(one["name"], one["type"]) for one in facets["schema"]["fields"]] == [("day", "date"), ("revenue", "long")]
    assert facets["version"]["datasetVersion"] == state[TableName("dws", "day")].location
    assert made["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert made["outputFacets"]["outputStatistics"]["size"] > 0
    checks = {one["name"]: one["success"] for one in facets["dataQualityAssertions"]["assertions"]}
    assert checks == {"revenue > 0": True, "unique(day)": True}
    assert day["inputs"][0]["facets"]["version"]["datasetVersion"] == state[TableName("ods", "orders")].location
    job = day["job"]["facets"]
    assert job["sourceCodeLocation"]["path"] == "flows/flow.py" and job["ownership"]["owners"][0]["name"] == "sales"
    assert job["documentation"]["description"] == "Revenue of each day." and job["jobType"]["integration"] == "RUNNEL"
    assert {one["name"]: one["facets"]["runnel_version"]["commit"] for one in run["outputs"]} == {
        "ods.orders": ran.commit,
        "dws.day": ran.commit,
    }


def test_a_run_that_fails_on_a_branch(project: Project) -> None:
    project.flow(DAY.format(least=6))
    project.orders("a", (1, "2026-01-01", 5))
    with Server() as server:
        tell(project, server)
        with project.open() as lake:
            lake.branch("dev")
        ran = project.run(branch="dev")
        assert told(project)
        found = events(server)
    assert ran.state == "failed"
    assert by_job(found) == {
        "shop.run": ["START", "FAIL"],
        "ods.orders": ["START", "COMPLETE"],
        "dws.day": ["START", "FAIL"],
    }
    day, run = last(found, "dws.day"), last(found, "shop.run")
    assert {one["job"]["namespace"] for one in found} == {"shop/dev"} and run["outputs"] == []
    assert day["run"]["facets"]["errorMessage"]["message"].startswith("CHECK_FAILED: ")
    assert "CHECK_FAILED" in run["run"]["facets"]["errorMessage"]["message"]
    failed = [one for one in day["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"] if not one["success"]]
    assert [(one["name"], one["actual"], one["severity"]) for one in failed] == [("revenue > 6", "1", "error")]


def test_a_stream(project: Project) -> None:
    project.flow("""
        @rn.task("dws.copied", stream="orders")
        def copied(orders):
            return orders.select("id")
    """)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    with Server() as server:
        tell(project, server)
        ran = project.run()
        assert told(project)
        found = events(server)
    assert ran.state == "succeeded" and by_job(found)["dws.copied"] == ["START", "COMPLETE"]
    copied = last(found, "dws.copied")
    assert copied["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert [one["name"] for one in copied["inputs"]] == ["ods.orders"]
    (made,) = copied["outputs"]
    assert made["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert made["facets"]["runnel_version"]["commit"] == ran.commit


def source_only(root: Path) -> Project:
    project = Project(root)
    project.flow("")
    project.orders("a", (1, "2026-01-01", 5))
    return project


def log_of(ran: RunResult) -> list[str]:
    assert ran.log is not None
    return [line for line in Path(ran.log).read_text().splitlines() if "OpenLineage" in line]


def test_a_server_that_is_away(tmp_path: Path) -> None:
    project = source_only(tmp_path)
    with Server() as server:
        tell(project, server)
    ran = project.run()
    assert ran.state == "succeeded" and told(project)
    (line,) = log_of(ran)
    assert "can't be delivered to http://127.0.0.1" in line


def test_a_server_that_is_slow(tmp_path: Path) -> None:
    """The run has ended, and is published, while the server has not answered its first event."""
    project = source_only(tmp_path)
    with Server() as server:
        tell(project, server)
        server.fail("slow", times=100, path="/hook")
        ran = project.run()
        sender = get_sender(load_settings(project.root).openlineage)
        assert ran.state == "succeeded" and ran.commit is not None and server.posts == []
        assert sender is not None and not sender.flush(0.05)


def test_a_file(tmp_path: Path) -> None:
    project = source_only(tmp_path)
    path = tmp_path / "events.jsonl"
    (project.root / "runnel.toml").write_text(RUNS.format(url=f"file:{path}"))
    assert project.run().state == "succeeded" and told(project)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert by_job(found) == {"shop.run": ["START", "COMPLETE"], "ods.orders": ["START", "COMPLETE"]}
    assert project.run().state == "nothing" and told(project)
    assert len(path.read_text().splitlines()) == 4, "where nothing is done nothing is told"


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Take back what the client adds to the variables of this process."""
    yield monkeypatch
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE__")]:
        del os.environ[name]


def test_the_environment(tmp_path: Path, environ: pytest.MonkeyPatch) -> None:
    project = source_only(tmp_path)
    assert get_sender(load_settings(project.root).openlineage) is None
    with Server() as server:
        environ.setenv("OPENLINEAGE_URL", server.url("/hook/"))
        assert project.run().state == "succeeded" and told(project)
        assert by_job(events(server))["ods.orders"] == ["START", "COMPLETE"]
    environ.setenv("OPENLINEAGE_DISABLED", "true")
    assert get_sender(load_settings(project.root).openlineage) is None


def test_an_address_that_is_none(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.root / "runnel.toml").write_text(RUNS.format(url="marquez:5000"))
    with pytest.raises(Mistake, match=r"openlineage\.url"):
        load_settings(project.root)
