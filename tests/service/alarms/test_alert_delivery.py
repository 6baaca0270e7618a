"""From the flow to who is told: a worker declares it to the catalog, the service tells, `runnel status` shows it."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.catalog import schema
from runnel.lake.control import declarations, run_claims, run_queue, schedules
from runnel.lake.control.queue_entry import QueueRequest
from runnel.model.run_request import RunRequest
from runnel.project.inspection.declarations import collect_declarations
from runnel.project.planning.plan_project import load_project_flow
from runnel.service.server.server_process import ServerProcess
from tests.cli import conftest as commands
from tests.servers.http_server import Server
from tests.service.alarms.monitored_lake import steps

Cli = Callable[..., commands.Done]
cli = commands.cli
FLOW = """
import runnel as rn

rn.source("ods.orders", rn.files("data/*.csv", schema="id long"))

@rn.task("dws.day", tags=["daily"], deadline="08:00 Asia/Shanghai")
def day(orders): ...

@rn.task("dws.month")
def month(day): ...

rn.sink("dws.month", rn.files("out/month.csv"), name="month_out")
rn.schedule("nightly", cron="0 2 * * *", select="+dws.day")
rn.schedule("all", every="1 day")
rn.alert("team", webhook=rn.secret("HOOK_URL"), headers={"X-Key": rn.secret("HOOK_KEY"), "X-Team": "data"})
rn.alert("mail", email="ada@example.org", smtp="smtp://ada@host", password=rn.secret("P"), on="late",
         select="tag:daily+")
"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "flows").mkdir()
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n[service]\nport = 0\n')
    (tmp_path / "flows/flow.py").write_text(FLOW)
    with rn.open(tmp_path) as lake:
        yield lake


def test_what_the_catalog_is_told_of_a_flow(lake: Lake) -> None:
    db = lake.store.db
    declarations.write_declarations(db, collect_declarations(load_project_flow(lake)))
    found = db.read(declarations.read_declarations)
    day = found.tables["dws.day"]
    assert (day.readers, day.schedules, day.deadline) == (("dws.month",), ("all", "nightly"), "08:00 Asia/Shanghai")
    assert found.tables["dws.month"].schedules == ("all",)
    assert found.find_blocked(["ods.orders"]) == ["dws.day", "dws.month", "sink month_out"]
    mail, team = found.alerts
    assert (mail.on, mail.tables) == (("late",), frozenset({"dws.day", "dws.month"}))
    assert mail.channel == {"email": ["ada@example.org"], "smtp": "smtp://ada@host", "password": {"secret": "P"}}
    assert team.tables is None
    assert team.channel == {
        "webhook": {"secret": "HOOK_URL"},
        "headers": [["X-Key", {"secret": "HOOK_KEY"}], ["X-Team", "data"]],
    }


def test_another_deadline_counts_from_now_on(lake: Lake) -> None:
    db, flow = lake.store.db, lake.settings.root / "flows/flow.py"

    def since() -> dict[str, str]:
        declarations.write_declarations(db, collect_declarations(load_project_flow(lake)))
        return {name: one.since for name, one in db.read(declarations.read_declarations).tables.items()}

    first = since()
    assert since() == first
    flow.write_text(FLOW.replace("08:00", "09:00").replace('@rn.task("dws.month")\ndef month(day): ...\n', ""))
    flow.write_text(flow.read_text().replace('rn.sink("dws.month"', 'rn.sink("dws.day"'))
    second = since()
    assert second["ods.orders"] == first["ods.orders"] and second["dws.day"] > first["dws.day"]
    assert "dws.month" not in second


def test_the_service_tells_and_status_shows_it(lake: Lake, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    db, flow = lake.store.db, load_project_flow(lake)
    schedules.declare(db, [one.json() for one in flow.schedules])
    declarations.write_declarations(db, collect_declarations(flow))
    monkeypatch.setenv("HOOK_KEY", "hush")
    with Server() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url("/hook"))
        serving = ServerProcess(lake)
        thread = threading.Thread(target=serving.run, daemon=True)
        thread.start()
        run(lake, "failed")
        until(lambda: len(hook.posts) == 1)
        (alarm,) = cli("status", "--json").json["alarms"]
        assert (alarm["alarm"], alarm["blocks"]) == ("failed/schedule/nightly", ["dws.month", "sink month_out"])
        until(lambda: cli("status", "--json").json["alarms"][0]["told"][0]["told_at"] is not None)
        assert "alarm: schedule `nightly` failed: `dws.day`: 3 rows" in cli("status").out
        run(lake, "succeeded")
        until(lambda: len(hook.posts) == 2)
        assert cli("status", "--json").json["alarms"] == []
        assert [one.json["state"] for one in hook.posts] == ["open", "over"]
        assert hook.posts[0].headers["X-Key"] == "hush"
        serving.stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert db.read(lambda connection: connection.execute(schema.leases.select()).all()) == []


def run(lake: Lake, state: str) -> None:
    """Let a run of the schedule end so."""
    entry = QueueRequest(RunRequest(("+dws.day",)), "ada", cause="schedule/nightly")
    run_queue.submit(lake.store.db, entry)
    held = run_claims.claim(lake.store.db, "w1")
    assert held is not None
    run_claims.finish(lake.store.db, held.claim, state, steps(**{"dws.day": state}))


def until(is_so: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)
