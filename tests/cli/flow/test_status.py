"""`runnel status` and `runnel schedules` say whether a service is running, since when, and what nobody does."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import runnel as rn
from runnel.cli.flow.schedules import _describe_missed
from runnel.lake.catalog import schema
from runnel.lake.control import run_queue, schedules, workers
from runnel.lake.control.queue_entry import QueueRequest
from runnel.model.run_request import RunRequest
from runnel.project import instance_file
from runnel.project.inspection.schedule_list import ScheduleStatus, build_schedule_status
from runnel.project.instance_file import ServiceInstance, announce_instance

SCHEDULE = 'import runnel as rn\nrn.source("ods.orders", rn.manual())\nrn.schedule("nightly", cron="0 2 * * *")\n'
AT = "2026-01-02T08:00:00.000000Z"
NOTHING_RUNS = "nothing runs schedules, streams and sources until you start the service: `runnel up`"


@pytest.fixture
def lake(shop, tmp_path: Path):
    with rn.open(tmp_path) as lake:
        yield lake


def record_service(lake, name: str = "s1") -> None:
    workers.record_state(lake.store.db, name, workers.SERVICE, "ready", {"url": "http://127.0.0.1:8470"})


def set_times(lake, **times: str) -> None:
    lake.store.db.write(lambda connection: connection.execute(schema.workers.update().values(times)))


def test_never_started(shop) -> None:
    assert shop("status").out == f"down: no service is running\n{NOTHING_RUNS}\n\n"
    body = shop("status", "--json").json
    assert (body["state"], body["since"]) == ("down", None)


def test_up(shop, lake) -> None:
    record_service(lake)
    set_times(lake, started_at=AT)
    assert shop("status").out.splitlines()[0] == "up since 2026-01-02 08:00:00 UTC at http://127.0.0.1:8470"
    body = shop("status", "--json").json
    assert (body["state"], body["since"]) == ("up", AT)


def test_stopped(shop, lake) -> None:
    record_service(lake)
    workers.record_stop(lake.store.db, "s1")
    assert shop("status", "--json").json["state"] == "down"
    set_times(lake, renewed_at=AT)
    assert shop("status").out == f"down since 2026-01-02 08:00:00 UTC\n{NOTHING_RUNS}\n\n"


def test_crashed(shop, lake) -> None:
    record_service(lake)
    set_times(lake, renewed_at=AT)
    assert shop("status").out == f"down since 2026-01-02 08:00:00 UTC\n{NOTHING_RUNS}\n\n"


def test_starting_after_a_stop(shop, lake) -> None:
    record_service(lake)
    set_times(lake, renewed_at=AT)
    settings = lake.settings
    started_at, catalog = "2026-01-03T08:00:00.000000Z", instance_file.hash_catalog_url(settings.catalog)
    with announce_instance(settings.home, ServiceInstance(1, "http://127.0.0.1:8470", started_at, catalog)):
        lines = shop("status").out.splitlines()
    assert lines == ["starting since 2026-01-03 08:00:00 UTC: `runnel up` is running, but not ready yet", ""]


def test_a_worker_without_a_service(shop, lake) -> None:
    workers.record_state(lake.store.db, "w1", workers.WORKER, "ready", {})
    assert shop("status").out.splitlines()[:3] == [
        "down: no service is running",
        "nothing runs schedules and alerts until you start the service: `runnel up`",
        "workers: w1 ready; runs: 0 waiting, 0 running",
    ]


def test_schedules_that_nothing_runs(shop, lake, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir(exist_ok=True)
    (tmp_path / "flows/flow.py").write_text(SCHEDULE)
    listed = shop("schedules")
    assert listed.out.rstrip().endswith("no service is running")
    assert listed.err == "\nno service is running, so nothing is queued at these times: start it with `runnel up`\n"
    assert [item["has_service"] for item in shop("schedules", "--json").json] == [False]
    record_service(lake)
    listed = shop("schedules")
    assert (listed.out.split()[-1], listed.err) == ("on", "")


MISSED = {
    "one time": ("last", "02T00:30", "schedule hourly missed 2026-01-02 01:00:00 UTC: `runnel up` runs it"),
    "several": (
        "last",
        "01T22:30",
        "schedule hourly missed 3 times, the last one at 2026-01-02 01:00:00 UTC: `runnel up` runs the last one",
    ),
    "all": (
        "all",
        "01T22:30",
        "schedule hourly missed 3 times, the last one at 2026-01-02 01:00:00 UTC: `runnel up` runs all of them",
    ),
    "none": (
        "none",
        "02T00:30",
        "schedule hourly missed 2026-01-02 01:00:00 UTC: `runnel up` runs none of them "
        "(catch_up=\"none\"): `runnel run -s 'ods.*'` computes now",
    ),
    "nothing missed": ("last", "02T01:00", None),
}


@pytest.mark.parametrize(("catch_up", "queued_until", "line"), MISSED.values(), ids=MISSED)
def test_times_that_were_missed(lake, catch_up: str, queued_until: str, line: str | None) -> None:
    hourly = {"name": "hourly", "cron": "0 * * * *", "tz": "UTC", "select": "ods.*", "catch_up": catch_up}
    schedules.declare(lake.store.db, [hourly])
    cursor = json.dumps({"slot": f"2026-01-{queued_until}:00.000000Z"})
    lake.store.db.write(lambda connection: connection.execute(schema.schedules.update().values(cursor=cursor)))
    now = datetime(2026, 1, 2, 1, 20, tzinfo=UTC)

    def read_status() -> ScheduleStatus:
        return lake.store.db.read(
            lambda connection: build_schedule_status(connection, schedules.find(connection, "hourly"), now)
        )

    assert (_describe_missed(read_status()) if read_status().missed else None) == line
    record_service(lake)
    assert read_status().missed == 0


def test_schedules_names_what_was_missed(shop, lake, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir(exist_ok=True)
    (tmp_path / "flows/flow.py").write_text(SCHEDULE.replace('cron="0 2 * * *"', 'every="1 second"'))
    schedules.declare(lake.store.db, [{"name": "nightly", "every": "1 second"}])
    long_ago = schema.schedules.update().values(cursor=json.dumps({"slot": "2026-01-02T00:00:00.000000Z"}))
    lake.store.db.write(lambda connection: connection.execute(long_ago))
    assert "\nschedule nightly missed 1,000 times or more: `runnel up` runs the last one\n" in shop("schedules").err
    assert [item["missed"] for item in shop("schedules", "--json").json] == [1000]


def test_a_service_whose_worker_ended(shop, lake) -> None:
    record_service(lake)
    run_queue.submit(lake.store.db, QueueRequest(RunRequest(), "ada"))
    assert shop("status").out.splitlines()[1:3] == [
        "workers: none; runs: 1 waiting, 0 running",
        "no worker computes the waiting runs: `runnel up` restarts a worker that has ended, within seconds; "
        "`runnel worker` starts another one",
    ]


def test_rows_that_were_set_aside_are_shown(cli, tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/flow.py").write_text(
        'import runnel as rn\nrn.source("ods.o", rn.files("*.csv", schema="id long"), on_bad="quarantine")\n'
    )
    (tmp_path / "a.csv").write_text("id\n1\nx\ny\n")
    cli("run")
    assert "set aside: 2 rows of ods.o; `runnel quarantine TABLE` shows them\n" in cli("status").out
    (tmp_path / "a.csv").write_text("id\n1\n")
    cli("run")
    assert "set aside" not in cli("status").out
