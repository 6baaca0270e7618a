"""People acknowledge, mute and dismiss alarms: what is notified afterwards, and when a dismissed alarm comes back."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.errors import Mistake
from runnel.lake.catalog.database import format_time, parse_time, read_clock
from runnel.lake.control import alarms, notifications
from runnel.lake.control.alarms import Alarm
from runnel.lake.control.notifications import Mute
from runnel.lake.store import Store
from runnel.project.execution.alarm_actions import (
    acknowledge_alarm,
    dismiss_alarm,
    mute_alarms,
    read_mutes,
    unmute_alarms,
)
from runnel.service.alarms.message import AlarmMessage
from runnel.service.alarms.monitor import AlarmMonitor
from tests.servers.http_server import Server
from tests.service.alarms.monitored_lake import Site, keys
from tests.service.alarms.test_notifier import Told, listener


@pytest.fixture
def hook() -> Iterator[Server]:
    with Server() as server:
        yield server


def states(hook: Server) -> list[str]:
    """Return the state of each notification."""
    return [post.json["state"] for post in hook.posts]


def test_an_acknowledged_alarm_is_open_and_only_its_end_is_notified(both: Store, tmp_path: Path, hook: Server) -> None:
    site = Told(both, tmp_path)
    site.declare(listener(hook.url("/hook")))
    site.ran(state="failed")
    site.tell()
    (alarm,) = site.open()
    status = acknowledge_alarm(both, alarm.id, "bob is on it")
    assert status.alarm.acknowledged_by == both.author and status.json()["state"] == "open"
    assert f"  acknowledged by {both.author} at " in "\n".join(status.lines())
    assert status.lines()[2].endswith("UTC: bob is on it")
    site.declare(listener(hook.url("/hook")), listener(hook.url("/hook"), "another"))
    site.ran(state="failed")  # the same alarm, and a listener that has not heard of it
    site.tell()
    (again,) = site.open()
    assert (again.id, again.acknowledged_at, states(hook)) == (alarm.id, status.alarm.acknowledged_at, ["open"])
    site.ran()
    site.tell()
    assert states(hook) == ["open", "over"] and site.open() == []


def test_a_dismissed_alarm_comes_back_only_if_another_run_fails(both: Store, tmp_path: Path, hook: Server) -> None:
    site = Told(both, tmp_path)
    site.declare(listener(hook.url("/hook")))
    site.ran("user", "failed", select=["dws.day"])
    site.tell()
    (alarm,) = site.open()
    status = dismiss_alarm(both, alarm.id[:5], "a test")
    assert (status.alarm.dismissed_by, status.json()["state"]) == (both.author, "over")
    site.tell()
    assert site.look() == [] and states(hook) == ["open", "over"]
    assert hook.posts[1].json["text"].splitlines()[1:] == [
        f"{both.author} dismissed it at {(status.alarm.dismissed_at or '')[:19].replace('T', ' ')} UTC",
        "note: a test",
    ]
    site.watchman.release_lease()
    site.watchman = AlarmMonitor(both.db, site.now)  # a service that starts anew
    site.tell()
    assert site.open() == [] and len(hook.posts) == 2
    site.ran("user", "failed", select=["dws.day"])
    site.tell()
    (new_alarm,) = site.open()
    assert (new_alarm.number, new_alarm.dismissed_at) == (2, None) and new_alarm.id != alarm.id
    assert states(hook) == ["open", "over", "open"]


def test_a_dismissed_alarm_that_is_over_can_be_raised_again(store: Store) -> None:
    site = Site(store)
    site.wait()
    for _ in range(2):
        site.pass_(minutes=2)
        site.look()
    dismiss_alarm(store, "worker")
    site.watchman.release_lease()
    site.watchman = AlarmMonitor(store.db, site.now)
    site.pass_(minutes=2)
    assert site.look() == []
    assert site.store.db.read(alarms.read_active_alarms)[0].dismissed_by == store.author
    alarms.update_alarms(store.db, [], site.now())
    alarms.update_alarms(store.db, [Alarm("worker", "worker", "no worker", format_time(site.now()))], site.now())
    assert [alarm.number for alarm in site.open()] == [2]


LATE = Alarm("late/dws.day", "late", "`dws.day` is late", "2026-01-02T08:00:00.000000Z", tables=("dws.day",))
DISMISSED = replace(LATE, dismissed_at="2026-01-02T08:30:00.000000Z", number=1)
REPORTS: dict[str, tuple[Alarm, Alarm, bool]] = {
    "the same deadline": (DISMISSED, LATE, False),
    "the deadline of the next day": (DISMISSED, replace(LATE, since="2026-01-03T08:00:00.000000Z"), True),
    "a forecast": (DISMISSED, replace(LATE, level="warning", since="2026-01-03T07:00:00.000000Z"), False),
    "the same run": (replace(DISMISSED, kind="failed", run="r1"), replace(LATE, kind="failed", run="r1"), False),
    "another run": (replace(DISMISSED, kind="failed", run="r1"), replace(LATE, kind="failed", run="r2"), True),
}


@pytest.mark.parametrize(("dismissed", "reported", "comes_back"), REPORTS.values(), ids=REPORTS)
def test_what_brings_a_dismissed_alarm_back(dismissed: Alarm, reported: Alarm, comes_back: bool) -> None:
    changes = alarms._find_changes([dismissed], {reported.key: reported})
    assert (bool(changes.raised), bool(changes.ended), changes.updated) == (comes_back, comes_back, [])


def test_a_muted_alarm_is_notified_when_the_mute_ends(both: Store, tmp_path: Path, hook: Server) -> None:
    site = Told(both, tmp_path)
    site.declare(listener(hook.url("/hook")))
    site.at = parse_time(both.db.read(read_clock))
    site.queued()
    mute = mute_alarms(both, "dws.day", "2 hours")
    assert (mute.kind, mute.subject, mute.muted_by) == ("table", "dws.day", both.author)
    site.ran(state="failed")
    site.tell()
    assert keys(site.open()) == ["failed/schedule/nightly"] and hook.posts == []
    site.pass_(hours=2)
    site.tell()
    assert states(hook) == ["open"]


ALARM = Alarm("failed/x", "failed", "x failed", "2026-01-02T02:00:00.000000Z", tables=("dws.a", "dws.b"))
SOON, LATER = "2026-01-02T04:00:00.000000Z", "2026-01-02T05:00:00.000000Z"
MUTES: dict[str, tuple[list[Mute], str | None]] = {
    "nothing": ([], None),
    "its key": ([Mute("failed/x", "alarm", SOON, "ada")], SOON),
    "its kind": ([Mute("failed", "kind", SOON, "ada")], SOON),
    "another kind": ([Mute("late", "kind", SOON, "ada")], None),
    "one of its tables": ([Mute("dws.a", "table", SOON, "ada")], None),
    "all of its tables": ([Mute("dws.a", "table", SOON, "ada"), Mute("dws.b", "table", LATER, "ada")], SOON),
    "the longer one counts": ([Mute("failed", "kind", SOON, "ada"), Mute("failed/x", "alarm", LATER, "bob")], LATER),
}


@pytest.mark.parametrize(("mutes", "until"), MUTES.values(), ids=MUTES)
def test_which_mute_applies(mutes: list[Mute], until: str | None) -> None:
    mute = notifications.find_mute(ALARM, mutes)
    assert (mute.muted_until if mute else None) == until


def test_mutes_are_listed_replaced_and_ended(both: Store) -> None:
    site = Site(both)
    site.ran(state="failed")
    (alarm,) = site.look()
    first, second = mute_alarms(both, "late", "1 hour"), mute_alarms(both, alarm.id, "30 minutes")
    assert second.subject == alarm.key and read_mutes(both) == [second, first]
    longer = mute_alarms(both, "late", "2 days")
    assert read_mutes(both) == [second, longer] and longer.muted_until > first.muted_until
    assert unmute_alarms(both, alarm.id) == second and unmute_alarms(both, "late") == longer
    assert read_mutes(both) == []


MISTAKES: dict[str, tuple[Callable[[Store, Alarm], object], str, str]] = {
    "no such alarm": (lambda store, _: acknowledge_alarm(store, "nothing"), "ALARM_UNKNOWN", "'nothing'"),
    "nearly its key": (
        lambda store, _: dismiss_alarm(store, "failed/schedule/nigtly"),
        "ALARM_UNKNOWN",
        "there is no open alarm 'failed/schedule/nigtly'; close: `failed/schedule/nightly`",
    ),
    "nearly a kind": (
        lambda store, _: mute_alarms(store, "lat", "2 hours"),
        "MUTE_UNKNOWN",
        "'lat' is no open alarm, no kind of alarms and no table; close: `late`",
    ),
    "nearly a table": (lambda store, _: mute_alarms(store, "dws.dya", "1 hour"), "MUTE_UNKNOWN", "close: `dws.day`"),
    "no duration": (lambda store, _: mute_alarms(store, "late", "soon"), "MUTE_DURATION", "is not a duration"),
    "no time at all": (lambda store, _: mute_alarms(store, "late", "0s"), "MUTE_DURATION", "can't be muted for '0s'"),
    "for ever": (lambda store, _: mute_alarms(store, "late", "999999999 weeks"), "MUTE_DURATION", "can't be muted"),
    "not muted": (lambda store, _: unmute_alarms(store, "late"), "MUTE_UNKNOWN", "'late' is not muted"),
}


@pytest.mark.parametrize(("change", "code", "what"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_name_the_nearest(
    store: Store, change: Callable[[Store, Alarm], object], code: str, what: str
) -> None:
    site = Site(store)
    site.ran(state="failed")
    (alarm,) = site.look()
    with pytest.raises(Mistake) as error:
        change(store, alarm)
    assert error.value.code == code and what in error.value.what


def test_an_alarm_that_is_over_is_not_changed(store: Store) -> None:
    site = Site(store)
    site.ran(state="failed")
    (alarm,) = site.look()
    dismiss_alarm(store, alarm.id)
    with pytest.raises(Mistake, match=f"is over: {store.author} dismissed it at") as error:
        acknowledge_alarm(store, alarm.id)
    assert error.value.code == "ALARM_OVER"
    with pytest.raises(Mistake, match="is over"):
        dismiss_alarm(store, alarm.key)


def test_the_message_of_a_failed_run_of_one_table() -> None:
    dismissed = replace(LATE, over_at=DISMISSED.dismissed_at, dismissed_at=DISMISSED.dismissed_at, dismissed_by="ada")
    assert AlarmMessage(dismissed, "over", "shop").text.splitlines() == [
        "shop: over: `dws.day` is late",
        "ada dismissed it at 2026-01-02 08:30:00 UTC",
    ]
