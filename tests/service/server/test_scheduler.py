"""Schedules with a clock that the test sets: each time once, whatever the clock does."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.samples import Sample

from runnel.lake.catalog.database import format_time
from runnel.lake.control import alarms, run_claims, run_queue, schedules, workers
from runnel.lake.control.queue_entry import QueueEntry
from runnel.lake.control.schedules import list_schedules
from runnel.lake.store import Store
from runnel.project.inspection.schedule_list import build_schedule_status
from runnel.project.inspection.schedule_times import list_due_times
from runnel.service.alarms.monitor import AlarmMonitor
from runnel.service.api.metrics.catalog_gauges import _catalog_metrics
from runnel.service.server.declaration_check import LoadedFlows
from runnel.service.server.scheduler import Scheduler
from tests.lake.factories import add, create, rows


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, at: str) -> None:
        self.at = datetime.fromisoformat(at).replace(tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def set(self, at: str) -> None:
        self.at = datetime.fromisoformat(at).replace(tzinfo=UTC)

    def pass_(self, **amount: float) -> None:
        self.at += timedelta(**amount)


def declare(store: Store, at: Clock, *declared: dict[str, object]) -> None:
    """Declare schedules, as of the time of the clock."""
    schedules.declare(store.db, declared)
    since = format_time(at())
    table = schedules.schema.schedules
    store.db.write(lambda connection: connection.execute(table.update().values(seen_at=since)))


def nightly(**more: object) -> dict[str, object]:
    return {"name": "nightly", "cron": "0 2 * * *", "select": "dws.*", **more}


def queued(store: Store) -> list[QueueEntry]:
    found = store.db.read(lambda connection: run_queue.list_entries(connection))
    return sorted(found, key=lambda one: one.slot or "")


def slots(store: Store) -> list[str]:
    return [(one.slot or "").rpartition("/")[2] for one in queued(store)]


def test_each_time_once(both: Store) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(both, clock, nightly())
    scheduler = Scheduler(both, clock)
    assert scheduler.queue_due_runs() == []
    clock.set("2026-01-02T01:59:59")
    assert scheduler.queue_due_runs() == []
    clock.set("2026-01-02T02:00:00")
    assert len(scheduler.queue_due_runs()) == 1
    assert scheduler.queue_due_runs() == []
    assert slots(both) == ["2026-01-02T02:00:00Z"]
    (one,) = queued(both)
    assert (one.cause, one.request.select, one.state) == ("schedule/nightly", ("dws.*",), "queued")


def test_two_schedulers_queue_it_once(both: Store, tmp_path) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(both, clock, nightly())
    clock.set("2026-01-02T02:00:01")
    found = both.db.read(schedules.list_schedules)
    one, other = Scheduler(both, clock), Scheduler(both, clock)
    steps = [
        scheduler._advance_schedule(found[0], clock()) for scheduler in (one, other)
    ]  # both saw it before either queued
    taken = [schedules.advance(both.db, [step]) for step in steps if step is not None]
    assert [len(ids) for ids in taken] == [1, 0]


CATCH_UP = {
    "last": ["2026-01-05T02:00:00Z"],
    "all": ["2026-01-02T02:00:00Z", "2026-01-03T02:00:00Z", "2026-01-04T02:00:00Z", "2026-01-05T02:00:00Z"],
    "none": [],
}


@pytest.mark.parametrize(("policy", "expected"), CATCH_UP.items(), ids=CATCH_UP)
def test_times_that_were_missed(store: Store, policy: str, expected: list[str]) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, nightly(catch_up=policy))
    clock.set("2026-01-05T12:00")
    Scheduler(store, clock).queue_due_runs()
    assert slots(store) == expected
    clock.set("2026-01-06T01:59:59.9")
    scheduler = Scheduler(store, clock)
    scheduler.queue_due_runs()
    clock.set("2026-01-06T02:00:30")  # a slow poll, but the service was running
    scheduler.queue_due_runs()
    assert slots(store) == [*expected, "2026-01-06T02:00:00Z"]


MISSED_BY_SECONDS = {
    "a service that started later": ("2026-01-02T02:00:15", None, []),
    "a service that started before": ("2026-01-02T01:59:50", "2026-01-02T02:00:15", ["2026-01-02T02:00:00Z"]),
    "a computer that slept": ("2026-01-02T01:50:00", "2026-01-02T02:00:15", []),
    "a computer that awoke in time": ("2026-01-02T01:50:00", "2026-01-02T02:00:04", ["2026-01-02T02:00:00Z"]),
}


@pytest.mark.parametrize(("started_at", "polled_at", "expected"), MISSED_BY_SECONDS.values(), ids=MISSED_BY_SECONDS)
def test_a_time_that_was_missed_by_seconds(
    store: Store, started_at: str, polled_at: str | None, expected: list[str]
) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, nightly(catch_up="none"))
    clock.set(started_at)
    scheduler = Scheduler(store, clock)
    clock.set(polled_at or started_at)
    scheduler.queue_due_runs()
    assert slots(store) == expected


def test_a_clock_that_jumps_queues_nothing_twice_and_loses_nothing(store: Store) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, {"name": "hourly", "every": "1 hour", "catch_up": "all"})
    scheduler = Scheduler(store, clock)
    for hours in (1, 24, -24, 1, 1, 23, -48, 48, 2):  # a day forth, a day back, and on
        clock.pass_(hours=hours)
        scheduler.queue_due_runs()
    last = clock()
    first = datetime(2026, 1, 1, 13, tzinfo=UTC)
    furthest = max(last, first + timedelta(hours=26))
    every = [first + timedelta(hours=number) for number in range(int((furthest - first).total_seconds() // 3600) + 1)]
    assert slots(store) == [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in every]


DAYLIGHT = {
    "a time that is skipped comes right after": ("30 2 * * *", "2026-03-28T12:00", 2, ["29T01:00", "30T00:30"]),
    "a time that comes twice comes once": ("30 2 * * *", "2026-10-24T12:00", 2, ["25T00:30", "26T01:30"]),
    "each real hour once, in spring": ("0 * * * *", "2026-03-29T00:00", 3, ["29T01:00", "29T02:00", "29T03:00"]),
    "each real hour once, in autumn": ("0 * * * *", "2026-10-25T00:00", 3, ["25T01:00", "25T02:00", "25T03:00"]),
}


@pytest.mark.parametrize(("cron", "after", "number", "expected"), DAYLIGHT.values(), ids=DAYLIGHT)
def test_daylight_saving(cron: str, after: str, number: int, expected: list[str]) -> None:
    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = list_due_times(cron, "Europe/Berlin", None, start, start + timedelta(days=3), limit=number)
    assert [f"{at:%dT%H:%M}" for at in found] == expected


def test_paused_and_resumed(store: Store) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, nightly())
    schedules.pause(store.db, "nightly", "ada")
    clock.set("2026-01-03T12:00")
    assert Scheduler(store, clock).queue_due_runs() == []
    resumed = schedules.pause(store.db, "nightly", "ada", resume=True)
    assert resumed.paused_at is None
    Scheduler(store, clock).queue_due_runs()
    assert slots(store) == ["2026-01-03T02:00:00Z"]


def test_what_is_no_longer_declared_queues_nothing(store: Store) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, nightly())
    schedules.declare(store.db, [])
    clock.set("2026-01-03T12:00")
    assert Scheduler(store, clock).queue_due_runs() == []
    declare(store, clock, nightly())
    assert Scheduler(store, clock).queue_due_runs() == []  # it begins anew


def test_changed_times_begin_anew_and_other_changes_go_on(store: Store) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, nightly())
    clock.set("2026-01-02T03:00")
    Scheduler(store, clock).queue_due_runs()
    schedules.declare(store.db, [nightly(priority=3)])
    (one,) = store.db.read(schedules.list_schedules)
    assert one.cursor == {"slot": "2026-01-02T02:00:00.000000Z"}
    schedules.declare(store.db, [nightly(cron="0 4 * * *")])
    (one,) = store.db.read(schedules.list_schedules)
    assert one.cursor == {}


@pytest.fixture
def changes(store: Store) -> Callable[..., Scheduler]:
    """Return what declares a schedule on the changes of ods.orders."""
    create(store, "ods.orders", rows())

    def make(clock: Clock, **more: object) -> Scheduler:
        declare(store, clock, {"name": "orders_in", "on_change": ["ods.orders"], "select": "ods.orders+", **more})
        return Scheduler(store, clock)

    return make


def append(store: Store, *numbers: int) -> None:
    add(store, "ods.orders", rows(*((number, "a", number) for number in numbers)))


def done(store: Store) -> None:
    """Let what is queued have been run."""
    while (held := run_claims.claim(store.db, "w1")) is not None:
        run_claims.finish(store.db, held.claim, "succeeded", {})


def test_a_change_is_followed_once_the_run_before_has_ended(store: Store, changes: Callable[..., Scheduler]) -> None:
    scheduler = changes(Clock("2026-01-01T12:00"))
    assert len(scheduler.queue_due_runs()) == 1  # what is there already
    append(store, 1, 2)
    assert scheduler.queue_due_runs() == []  # the one before still waits, and will take it
    done(store)
    assert len(scheduler.queue_due_runs()) == 1
    assert scheduler.queue_due_runs() == []
    done(store)
    assert scheduler.queue_due_runs() == []


def test_at_most_so_often(store: Store, changes: Callable[..., Scheduler]) -> None:
    clock = Clock("2026-01-01T12:00")
    scheduler = changes(clock, at_most_every="10 minutes")
    scheduler.queue_due_runs(), done(store)
    append(store, 1)
    clock.pass_(minutes=9)
    assert scheduler.queue_due_runs() == []
    clock.pass_(minutes=1)
    assert len(scheduler.queue_due_runs()) == 1


def test_only_when_enough_has_changed(store: Store, changes: Callable[..., Scheduler]) -> None:
    scheduler = changes(Clock("2026-01-01T12:00"), min_rows=5)
    append(store, 1, 2, 3)
    assert scheduler.queue_due_runs() == []
    append(store, 4, 5)
    assert len(scheduler.queue_due_runs()) == 1
    done(store)
    append(store, 6)
    assert scheduler.queue_due_runs() == []


def test_a_thousand_at_once(store: Store) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, *({"name": f"s{number:04}", "cron": "0 2 * * *"} for number in range(1000)))
    clock.set("2026-01-02T02:00")
    assert len(Scheduler(store, clock).queue_due_runs()) == 1000
    assert len({one.id for one in queued(store)}) == 1000


BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "a branch that is gone": (
        {"on_change": ["ods.orders"], "branch": "nowhere"},
        "'nowhere' is no branch, tag or commit",
    ),
    "a day that never comes": ({"cron": "0 0 31 2 *"}, "can't compute when it is due, cron '0 0 31 2 *' in UTC: "),
    "a zone that nobody knows": ({"cron": "0 2 * * *", "tz": "Mars/Base"}, "can't compute when it is due"),
    "an interval of another version": ({"every": "1 fortnight"}, "'1 fortnight' is not a duration"),
    "a priority that is no number": ({"every": "1 hour", "priority": "high"}, "ValueError: invalid literal"),
}


@pytest.mark.parametrize(("broken", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_schedule_that_cannot_be_read_holds_up_no_other(store: Store, broken: dict[str, object], reason: str) -> None:
    clock = Clock("2026-01-01T12:00")
    declare(store, clock, {"name": "broken", **broken}, nightly())
    clock.set("2026-01-02T02:00")
    scheduler = Scheduler(store, clock)
    watchman = AlarmMonitor(store.db, clock, lambda: scheduler.problems)
    assert len(scheduler.queue_due_runs()) == 1
    watchman.update_alarms()
    (alarm,) = store.db.read(alarms.read_alarms)
    assert (alarm.key, alarm.kind, alarm.since) == ("schedule/broken", "schedule", format_time(clock()))
    assert alarm.what.startswith(f"schedule `broken` queues nothing: {reason}"), alarm.what
    assert alarm.fix
    lines = {
        line.name: line
        for line in store.db.read(lambda c: [build_schedule_status(c, one, clock()) for one in list_schedules(c)])
    }
    assert lines["nightly"].next_at == "2026-01-03T02:00:00.000000Z" and lines["nightly"].problem is None
    figures = {(one.name, *one.labels.values()) for one in _samples(store)}
    assert ("runnel_schedule_lag_seconds", "nightly") in figures
    declare(store, clock, nightly())
    (
        scheduler.queue_due_runs(),
        clock.pass_(minutes=2),
        watchman.update_alarms(),
        clock.pass_(minutes=2),
        watchman.update_alarms(),
    )
    assert "schedule/broken" not in [one.key for one in store.db.read(alarms.read_alarms)], (
        "nobody declares it any more"
    )


def _samples(store: Store) -> list[Sample]:
    return [sample for metric in store.db.read(lambda c: list(_catalog_metrics(c))) for sample in metric.samples]


def test_one_that_cannot_be_read_is_shown_as_broken(store: Store) -> None:
    declare(store, clock := Clock("2026-01-01T12:00"), {"name": "never", "cron": "0 0 31 2 *"}, nightly())
    lines = {
        line.name: line
        for line in store.db.read(lambda c: [build_schedule_status(c, one, clock()) for one in list_schedules(c)])
    }
    figures = {(one.name, *one.labels.values()): one.value for one in _samples(store)}
    assert lines["never"].next_at is None and "can't compute when" in str(lines["never"].problem)
    assert (figures["runnel_schedule_broken", "never"], figures["runnel_schedule_broken", "nightly"]) == (1, 0)


def test_nothing_is_queued_until_a_worker_has_declared_what_the_files_say(both: Store) -> None:
    """The service was down; meanwhile a schedule was taken out of the flow files."""
    clock = Clock("2026-01-01T12:00")
    declare(both, clock, nightly(), {"name": "removed", "every": "1 hour", "catch_up": "all"})
    workers.record_state(
        both.db, "died", workers.WORKER, "ready", {"has_declared": True}
    )  # a row that a crash left behind
    clock.set("2026-01-02T02:00")
    flows = LoadedFlows(both.db)
    scheduler = Scheduler(both, clock, flows.are_declared)
    watchman = AlarmMonitor(both.db, clock, are_declared=flows.are_declared)
    assert (scheduler.queue_due_runs(), scheduler.queue_due_runs()) == ([], [])
    watchman.update_alarms(), clock.pass_(minutes=1), watchman.update_alarms()
    (alarm,) = both.db.read(alarms.read_alarms)
    assert (alarm.key, alarm.what) == ("flows", "2 schedules wait: no worker has loaded the flow files so far")
    workers.record_state(both.db, "w1", workers.WORKER, "starting", {"has_declared": False})
    assert scheduler.queue_due_runs() == []
    schedules.declare(both.db, [nightly()])
    workers.record_state(both.db, "w1", workers.WORKER, "starting", {"has_declared": True})
    assert len(scheduler.queue_due_runs()) == 1 and slots(both) == ["2026-01-02T02:00:00Z"]
    workers.remove(both.db, "w1")
    clock.set("2026-01-03T02:00")
    assert len(scheduler.queue_due_runs()) == 1, "a worker that goes away later holds up no schedule"


def test_a_service_that_comes_back_sees_the_worker_that_is_there(both: Store) -> None:
    workers.record_state(both.db, "w1", workers.WORKER, "ready", {"has_declared": True})
    flows = LoadedFlows(both.db)
    assert not flows.are_declared(), "it may be the row of one that died"
    workers.record_state(both.db, "w1", workers.WORKER, "ready", {"has_declared": True})
    assert flows.are_declared()
