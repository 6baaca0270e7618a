"""Runs, plans, backfills and schedules of a service, as if they were computed here."""

from collections.abc import Iterator

import pytest

import runnel as rn
from runnel.cli.flow.run import show_run
from runnel.errors import Mistake, Unreachable
from runnel.run.results.run_result import Event
from runnel.service.worker.worker import Worker
from tests.client.remote.conftest import Pair
from tests.service.api.api_server import working


@pytest.fixture
def worker(pair: Pair) -> Iterator[Worker]:
    with working(pair.api) as worker:
        yield worker


def test_a_run(pair: Pair, worker: Worker) -> None:
    seen: list[Event] = []
    plan = pair.remote.plan("ods.more")
    near = pair.local.plan("ods.more")
    assert plan.json() == near.json() and str(plan) == str(near)
    done = pair.remote.run("ods.more", message="from afar", watch=seen.append)
    assert (done.state, [(str(step.table), step.rows) for step in done.steps]) == ("succeeded", [("ods.more", 1)])
    assert pair.local.log(limit=1)[0].id == done.commit and pair.local.log(limit=1)[0].message == "from afar"
    assert [event.kind for event in seen if event.table is not None][-1] == "end"
    assert pair.remote.run("ods.more").state == "nothing"
    (found,) = pair.remote.runs(done.run)
    near_by = pair.local.runs(done.run)[0]
    assert (found.id, found.commit, found.detail["steps"]) == (done.run, done.commit, near_by.detail["steps"])
    assert (found.author, found.detail["cause"]) == ("ada", "user")
    assert [run.id for run in pair.remote.runs(limit=1)] == [run.id for run in pair.local.runs(limit=1)]
    assert "ods.more" in pair.remote.logs(done.run) and pair.remote.logs(done.run) == pair.local.logs(done.run)
    assert pair.remote.retry(done.run).state == "nothing"
    assert [one.name for one in pair.remote.schedules()] == [one.name for one in pair.local.schedules()]


def test_a_run_that_fails(pair: Pair, worker: Worker) -> None:
    with pytest.raises(Mistake) as error:
        pair.remote.run("ods.mroe")
    assert "close: `ods.more`" in error.value.what and error.value.exit_code == 2
    (pair.local.settings.root / "a.txt").write_text("id\nx\n")
    with pytest.raises(Exception) as failed:
        pair.remote.run("ods.more")
    with pytest.raises(type(failed.value)) as near:
        pair.local.run("ods.more")
    assert failed.value.code == near.value.code  # type: ignore[attr-defined]


def test_without_a_worker(pair: Pair) -> None:
    with pytest.raises(Unreachable) as error:
        pair.remote.plan()
    assert (error.value.code, error.value.exit_code) == ("WORKER_ABSENT", 3)
    with pytest.raises(Unreachable, match="no worker"):
        pair.remote.query("select initcap('a') as x")


def test_asked_for_followed_and_cancelled(pair: Pair) -> None:
    asked = pair.remote.submit("ods.more")
    assert (asked.state, asked.id) == ("queued", pair.local.runs(limit=1)[0].id)
    assert pair.remote.cancel(asked.id).state == "cancelled"
    assert pair.remote.follow(asked.id).state == "cancelled"
    assert pair.local.cancel(pair.local.submit().id).state == "cancelled"
    with pytest.raises(Mistake, match="close"):
        pair.remote.cancel(asked.id[:-1] + "!")


def test_backfills(pair: Pair) -> None:
    body = {"select": ["dws.*"], "from": "2026-01-01", "to": "2026-01-14", "chunk": "7d"}
    name = pair.api.post("/backfills", body, 202)["backfill"]
    assert pair.remote.backfills() == pair.local.backfills()
    assert pair.remote.pause_backfill(name).state == "paused"
    assert pair.local.resume_backfill(name).state == "running"
    assert pair.remote.cancel_backfill(name) == pair.local.backfills()[0]
    with pytest.raises(Mistake):
        pair.remote.backfill("dws.*", "2026-01-15", "2026-01-01")


def test_a_backfill_that_can_not_be(pair: Pair, worker: Worker) -> None:
    with pytest.raises(Mistake) as error:
        pair.remote.backfill("ods.more", "2026-01-01", "2026-01-02", chunk="1d")
    assert error.value.code == "BACKFILL_NO_TASK"


def test_values_of_parameters_go_along(pair: Pair, worker: Worker) -> None:
    with rn.open(pair.api.url, token=pair.api.secret, overrides=["least=3"]) as lake, pytest.raises(Mistake) as error:
        lake.run("ods.more")
    assert error.value.code == "DECLARE_PARAM_UNKNOWN" and "least" in str(error.value)


STREAM = """
import runnel as rn
rn.source("ods.orders", rn.manual(schema="id long, day date, amount decimal(12,2)"))

@rn.task("dws.live", stream="orders")
def live(orders):
    return orders
"""


def test_a_stream_goes_on_by_itself(pair: Pair, worker: Worker, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for a stream that the service keeps going is told so."""
    (pair.local.settings.root / "flows/flow.py").write_text(STREAM)
    done = pair.remote.run("dws.live")
    assert (done.state, [(str(step.table), step.state) for step in done.steps]) == (
        "nothing",
        [("dws.live", "skipped")],
    )
    show_run(done)
    assert "dws.live: the service keeps this stream going" in capsys.readouterr().out
