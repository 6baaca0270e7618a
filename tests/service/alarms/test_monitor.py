"""What is wrong is raised once and is over once, with a clock that the test sets."""

from dataclasses import replace

import pytest

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.control import alarms, declarations, queue_entry, run_claims, run_queue, schedules, workers
from runnel.lake.control.alarms import Alarm
from runnel.lake.control.declarations import ProjectDeclarations, SourceDeclaration, TableDeclaration
from runnel.lake.flow_state import sink_positions, streams
from runnel.lake.flow_state.inbox_writer import PushRequest, write_events
from runnel.lake.flow_state.stream_metrics import SourceLook, record_look
from runnel.lake.store import Store
from runnel.model.run_request import RunRequest
from runnel.names import TableName
from runnel.service.alarms.message import AlarmMessage
from runnel.service.alarms.monitor import AlarmMonitor
from tests.lake.factories import create, rows
from tests.service.alarms.monitored_lake import NIGHTLY, SINKS, TABLES, Site, keys, steps


@pytest.fixture
def site(store: Store) -> Site:
    return Site(store)


def test_a_failed_schedule_is_one_alarm_until_it_succeeds(both: Store) -> None:
    site = Site(both)
    run = site.ran(state="failed", outcome=steps(**{"ods.orders": "succeeded", "dws.day": "failed"}))
    (alarm,) = site.look()
    assert (alarm.key, alarm.kind, alarm.level, alarm.run) == ("failed/schedule/nightly", "failed", "alarm", run)
    assert alarm.what == "schedule `nightly` failed: `dws.day`: 3 rows have no seller"
    assert (alarm.tables, alarm.blocks) == (("dws.day",), ("dws.month", "sink dws.month:files-1"))
    assert alarm.fix == f"correct the rows; `runnel logs {run}` shows more; `runnel retry {run}` runs it again"
    site.pass_(days=1)
    site.ran(state="failed")
    (again,) = site.look()
    assert (again.number, again.since) == (1, alarm.since) and again.run != run
    site.ran(state="cancelled")
    assert len(site.look()) == 1
    site.ran()
    assert site.look() == []
    site.ran(state="failed")
    assert [one.number for one in site.look()] == [2]


def test_the_message_says_what_since_when_what_it_blocks_and_what_to_do() -> None:
    what = "schedule `a` failed: x\n    a.csv, line 3: y\n    b.csv, line 7: z"
    alarm = Alarm("k", "failed", what, "2026-01-02T02:03:04.000000Z", blocks=("d.b",), fix="do y")
    assert AlarmMessage(alarm, "alarm", "shop").text.splitlines() == [
        "shop: schedule `a` failed: x",
        "  a.csv, line 3: y",
        "  b.csv, line 7: z",
        "since 2026-01-02 02:03:04 UTC",
        "blocks `d.b`",
        "to do: do y",
    ]
    over = AlarmMessage(replace(alarm, over_at="2026-01-02T03:00:00.000000Z"), "over", "shop")
    assert over.text.splitlines() == [
        "shop: over: schedule `a` failed: x",
        "it lasted from 2026-01-02 02:03:04 UTC to 2026-01-02 03:00:00 UTC",
    ]


MENDED = {
    "the tables were made by another run": {"cause": "user", "select": ["dws.day"]},
    "a retry by hand": {"cause": "user", "outcome": {"steps": []}},
    "found up to date by another schedule": {"cause": "schedule/other", "state": "nothing"},
}


@pytest.mark.parametrize("how", MENDED.values(), ids=MENDED)
def test_mended_by_somebody_else(site: Site, how: dict) -> None:
    site.ran(state="failed")
    assert keys(site.look()) == ["failed/schedule/nightly"]
    how = {"outcome": steps(**{"dws.day": "skipped"}), **how}
    site.ran(**how)
    assert site.look() == []


RUNS_BY_HAND = {
    "a run on main": ({"select": ["dws.day"]}, ["failed/dws.day"]),
    "a run of everything": ({}, ["failed/everything"]),
    "a run elsewhere": ({"branch": "dev"}, []),
    "a mistyped selection": ({"outcome": {"error": {"what": "there is no table"}}}, []),
}


@pytest.mark.parametrize(("how", "expected"), RUNS_BY_HAND.values(), ids=RUNS_BY_HAND)
def test_what_people_run_by_hand(site: Site, how: dict, expected: list[str]) -> None:
    site.ran("user", "failed", **how)
    assert keys(site.look()) == expected


def test_a_schedule_that_is_gone_is_no_alarm(site: Site) -> None:
    site.ran(state="failed", outcome={"error": {"what": "the flow can't be loaded"}})
    (alarm,) = site.look()
    assert alarm.tables == ("dws.day", "dws.month", "ods.orders") and alarm.blocks == ("sink dws.month:files-1",)
    schedules.declare(site.store.db, [])
    assert site.look() == []


def test_a_table_that_is_gone_is_no_alarm(site: Site) -> None:
    site.ran("user", "failed", outcome=steps(**{"dws.old": "failed"}))
    assert site.look() == []


def test_mended_by_a_run_outside_of_the_queue(site: Site) -> None:
    site.ran(state="failed")
    assert keys(site.look()) == ["failed/schedule/nightly"]
    site.pass_(minutes=1)
    published(site, "dws.day")
    assert site.look() == []
    site.watchman.release_lease()
    site.watchman = AlarmMonitor(site.store.db, site.now)
    assert site.look() == [] and len(site.store.db.read(lambda c: alarms.read_alarms(c, over_after=""))) == 1


def test_a_backfill_that_is_given_up_is_over(site: Site) -> None:
    site.ran("backfill/b1", "failed")
    assert keys(site.look()) == ["failed/backfill/b1"]
    site.ran("backfill/b1", "cancelled")
    assert site.look() == []


def test_who_looks_anew_knows_the_same(site: Site) -> None:
    site.ran(state="failed")
    site.look()
    site.watchman.release_lease()
    site.watchman = AlarmMonitor(site.store.db, site.now)
    assert [one.number for one in site.look()] == [1]


def test_of_two_who_look_one_does(both: Store) -> None:
    site = Site(both)
    other = AlarmMonitor(both.db, site.now)
    site.look()
    site.ran(state="failed")
    other.update_alarms()
    assert site.open() == []
    assert len(site.look()) == 1


def test_a_stream_that_fails_for_a_minute(site: Site) -> None:
    table = TableName("dws", "day")

    def is_now(state: str) -> None:
        problem = "SOURCE_GONE: Kafka does not answer\n  fix: start it" if state == "failed" else None
        streams.record_state(site.store.db, "main", table, state, problem)

    is_now("failed")
    assert site.look() == []
    site.pass_(seconds=59)
    assert site.look() == []
    for state in ("running", "failed"):  # it was started again, and failed again
        is_now(state)
        site.look()
        site.pass_(seconds=1)
    (alarm,) = site.look()
    assert (alarm.key, alarm.what) == (
        "stream/dws.day",
        "the stream of `dws.day` has failed: Kafka does not answer",
    )
    assert alarm.fix == "start it; it continues automatically then"
    is_now("running")
    assert len(site.look()) == 1
    site.pass_(seconds=61)
    assert site.look() == []


def test_a_source_that_waits_is_called_a_source(site: Site) -> None:
    sources = {"ods.orders": SourceDeclaration("ods.orders", "files")}
    declarations.write_declarations(site.store.db, ProjectDeclarations(TABLES, sources=sources))
    streams.record_state(site.store.db, "main", TableName("ods", "orders"), "waiting", "the folder can't be read")
    site.look()
    site.pass_(minutes=1)
    (alarm,) = site.look()
    assert (alarm.key, alarm.what) == ("stream/ods.orders", "the source `ods.orders` waits: the folder can't be read")


def test_a_sink_that_fails_for_a_minute(site: Site) -> None:
    with sink_positions.lease_sink(site.store.db, "dws.month:files-1") as hold:
        assert hold is not None
        hold.record_failure("the disk is full")
    site.look()
    site.pass_(minutes=1)
    (alarm,) = site.look()
    assert (alarm.key, alarm.kind) == ("sink/dws.month:files-1", "sink")
    assert alarm.what == "the sink `dws.month:files-1` of `dws.month` fails: the disk is full"
    sink_positions.reset_position(site.store.db, "dws.month:files-1")
    site.look()
    site.pass_(minutes=1)
    assert site.look() == []


def test_runs_that_wait_for_room(site: Site) -> None:
    workers.record_state(site.store.db, "w1", workers.WORKER, "ready", {})
    run_queue.submit(site.store.db, queue_entry.QueueRequest(RunRequest(("dws.day",)), "ada"))
    held = run_claims.claim(site.store.db, "w1")
    assert held is not None
    error = {"code": "DISK_FULL", "what": "no space left on device", "kind": "NoRoom"}
    run_claims.finish(site.store.db, held.claim, "failed", {"error": error}, retry=True, counts_as_attempt=False)
    assert site.look() == []
    site.pass_(minutes=2)
    workers.record_state(site.store.db, "w1", workers.WORKER, "ready", {})
    (alarm,) = site.look()
    assert (alarm.key, alarm.kind) == ("disk", "disk")
    assert alarm.what == "a disk is full, and 1 run waits for space: no space left on device"


def test_nobody_works(site: Site) -> None:
    site.wait()
    site.look()
    site.pass_(minutes=1)
    (alarm,) = site.look()
    assert (alarm.key, alarm.what) == ("worker", "no worker is running, and 1 run waits in the queue")
    workers.record_state(site.store.db, "w1", workers.WORKER, "ready", {})
    site.look()
    site.pass_(minutes=1)
    assert site.look() == []


def test_events_and_rows_that_nobody_reads_are_an_alarm_within_a_minute(both: Store) -> None:
    site = Site(both)
    sources = {
        "ods.orders": SourceDeclaration("ods.orders", "push", "ods.orders"),
        "dws.day": SourceDeclaration("dws.day", "kafka"),
    }
    declarations.write_declarations(site.store.db, ProjectDeclarations(TABLES, SINKS, sources=sources))
    workers.record_state(site.store.db, "w1", workers.WORKER, "ready", {})
    write_events(site.store.db, [PushRequest("ods.orders", ['{"id": 1}', '{"id": 2}'])])
    site.write(schema.inbox.update().values(received_at="2026-01-02T00:59:00.000000Z"))
    seen = SourceLook("2026-01-02T00:59:30.000000Z", "2026-01-02T00:58:00.000000Z", rows=1)
    streams.record_state(site.store.db, "main", TableName("dws", "day"), "running", None)
    record_look(site.store.db, "main", TableName("dws", "day"), seen)
    site.look()
    site.pass_(minutes=2)
    assert site.look() == [], "a worker is running"
    workers.remove(site.store.db, "w1")
    site.look()
    site.pass_(seconds=30)
    (alarm,) = site.look()
    assert (alarm.key, alarm.kind, alarm.since) == ("worker/backlog", "worker", "2026-01-02T00:58:00.000000Z")
    assert alarm.what == (
        "no worker is running, and 1 row, seen at 2026-01-02 00:59:30 UTC, waits for the source `dws.day`; "
        "2 rows wait for the source `ods.orders`"
    )
    assert alarm.fix == (
        "`runnel up` or `runnel worker` starts one, which reads them; `runnel status` shows how many there are"
    )
    assert (alarm.tables, alarm.blocks) == (("dws.day", "ods.orders"), ("dws.month", "sink dws.month:files-1"))
    workers.record_state(site.store.db, "w2", workers.WORKER, "ready", {})
    site.look()
    site.pass_(minutes=1)
    assert site.look() == []


def test_a_run_that_waits_for_its_next_try_is_no_alarm(site: Site) -> None:
    entry = site.wait()
    later = schema.queue.update().values(not_before="2999-01-01T00:00:00.000000Z")
    site.write(later.where(schema.queue.c.id == entry))
    site.look()
    site.pass_(minutes=5)
    assert site.look() == []


def test_a_warning_then_late_then_over(both: Store) -> None:
    site = Site(both, "2026-01-01T02:00")
    site.declare(day="08:00")
    for _ in range(3):
        site.ran(seconds=7 * 3600)  # until 09:00, an hour late
        site.look()
        site.pass_(hours=17)
    assert site.open() == []
    site.at = site.at.replace(hour=0)
    (alarm,) = site.look()
    assert (alarm.key, alarm.level, alarm.since) == ("late/dws.day", "warning", format_time(site.at))
    assert alarm.what == "`dws.day` will be late: forecast ready at 09:00, and its deadline is 08:00 UTC"
    assert alarm.blocks == ("dws.month", "sink dws.month:files-1")
    site.at = site.at.replace(hour=8)
    (alarm,) = site.look()
    assert (alarm.level, alarm.since, alarm.number) == ("alarm", format_time(site.at), 1)
    assert alarm.what.startswith("`dws.day` is late: it was due by 08:00 UTC")
    site.ran(seconds=60)
    assert site.look() == []


def test_what_to_do_about_a_late_table(site: Site) -> None:
    site.declare(day="08:00")
    site.pass_(hours=8)
    (alarm,) = site.look()
    compute = "`runnel run -s +dws.day` computes it now, with what it reads"
    assert alarm.fix == f"`runnel runs` shows what ran; {compute}"
    schedules.pause(site.store.db, "nightly", "ada")
    (alarm,) = site.look()
    assert alarm.fix == f"schedule `nightly` is paused: `runnel schedules resume nightly` resumes it; {compute}"
    failed = site.ran(state="failed")
    alarm = site.look()[0]
    assert alarm.fix == (
        f"run {failed} of schedule `nightly` failed: `runnel runs {failed}` shows why; `runnel retry {failed}` "
        "runs it again"
    )
    run = site.wait("schedule/nightly")
    alarm = site.look()[0]
    assert alarm.fix == (
        f"run {run} of schedule `nightly` waits in the queue: `runnel status` shows the workers, `runnel runs {run}` "
        "its attempts"
    )
    held = run_claims.claim(site.store.db, "w1")
    assert held is not None
    alarm = site.look()[0]
    shows = f"`runnel runs {run}` shows its attempts, `runnel cancel {run}` stops it"
    assert alarm.fix == f"run {run} of schedule `nightly` is running: {shows}"
    run_claims.finish(site.store.db, held.claim, "failed", {}, retry=True)
    site.write(schema.queue.update().values(not_before=""))
    assert run_claims.claim(site.store.db, "w2") is not None
    alarm = site.look()[0]
    assert alarm.fix == f"run {run} of schedule `nightly` is running, attempt 2: {shows}"
    assert alarm.key == "late/dws.day"


def test_a_failed_check_names_its_table_once(site: Site) -> None:
    outcome = steps(**{"dws.day": "failed"})
    outcome["steps"][0]["error"]["what"] = "task `dws.day`: 1 check failed\n    revenue >= 0: 1 row failed"
    site.ran(state="failed", outcome=outcome)
    assert site.look()[0].what == "schedule `nightly` failed: `dws.day`: 1 check failed\n    revenue >= 0: 1 row failed"


def test_a_run_that_failed_before_its_first_step_has_no_log_to_show(site: Site) -> None:
    run = site.ran(state="failed", outcome={"error": {"what": "`a.b` reads `c.d`", "fix": "select it"}})
    assert site.look()[0].fix == f"select it; `runnel runs {run}` shows more; `runnel retry {run}` runs it again"


def test_a_run_outside_of_the_queue_makes_it_ready(site: Site) -> None:
    site.declare(day="08:00")
    site.pass_(hours=9)
    assert keys(site.look()) == ["late/dws.day"]
    published(site, "dws.day")
    assert site.look() == []


def published(site: Site, table: str) -> None:
    """Let a run in somebody's own process have published a table now."""
    create(site.store, table, rows())
    site.write(schema.commits.update().values(run="20260102t100000-1", at=format_time(site.at)))


def test_what_was_over_long_ago_is_forgotten(site: Site) -> None:
    site.ran(state="failed")
    site.look()
    site.ran()
    site.look()
    assert alarms.delete_old(site.store.db, 3600.0, site.at) == 0
    site.pass_(hours=2)
    assert alarms.delete_old(site.store.db, 3600.0, site.at) == 1
    assert site.store.db.read(lambda c: alarms.read_alarms(c, over_after="")) == []


def test_a_pause_of_a_schedule_keeps_its_alarm(site: Site) -> None:
    site.ran(state="failed")
    schedules.pause(site.store.db, str(NIGHTLY["name"]), "ada")
    assert len(site.look()) == 1


def test_a_deadline_that_cannot_be_read_hides_nothing_else(site: Site) -> None:
    site.declare(day="08:00", month="08:00 Mars/Base")
    site.pass_(hours=9)
    found = {one.key: one for one in site.look()}
    assert found.keys() == {"late/dws.day", "late/dws.month"}
    assert found["late/dws.month"].what.startswith(
        "it is unknown whether `dws.month` is late: its deadline '08:00 Mars"
    )


def test_a_schedule_that_cannot_be_read_takes_no_deadline_along(site: Site) -> None:
    tables = {"dws.day": TableDeclaration("dws.day", schedules=("nightly", "never"), deadline="08:00")}
    declarations.write_declarations(site.store.db, ProjectDeclarations(tables))
    site.write(schema.declared.update().values(since="2025-01-01T00:00:00.000000Z"))
    schedules.declare(site.store.db, [NIGHTLY, {"name": "never", "cron": "0 0 31 2 *"}])
    site.queued(), site.pass_(hours=9)
    assert [one.what[:20] for one in site.look()] == ["`dws.day` is late: i"]
