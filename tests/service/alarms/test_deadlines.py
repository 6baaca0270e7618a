"""Whether a table is late, or will be, with a clock that the test sets."""

from datetime import UTC, datetime

import pytest

from runnel.declare.options.deadline import parse_deadline
from runnel.errors import Mistake
from runnel.lake.control.declarations import ProjectDeclarations, TableDeclaration
from runnel.service.alarms.deadlines import (
    DeadlineTerm,
    TimedSchedule,
    find_current_term,
    find_passed_term,
    forecast_ready_at,
    judge_deadline,
)
from runnel.service.alarms.lateness_alarms import find_lateness_alarms

NIGHTLY = TimedSchedule("nightly", cron="0 2 * * *", run_seconds=1200.0)
EVENING = TimedSchedule("evening", cron="0 22 * * *", run_seconds=600.0)
WORKDAYS = TimedSchedule("workdays", cron="0 2 * * mon-fri")
OFTEN = TimedSchedule("often", every="10 minutes", run_seconds=60.0)
MORNING = TimedSchedule("morning", cron="30 7 * * *", run_seconds=3300.0)
CHANGES = TimedSchedule("changes", run_seconds=300.0)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-{text}").replace(tzinfo=UTC)


def going(one: TimedSchedule, since: str) -> TimedSchedule:
    return TimedSchedule(one.name, one.cron, one.tz, one.every, one.is_paused, one.run_seconds, at(since))


# deadline, schedules, when it was last made, now: what is told (January 2026: the 2nd is a Friday)
CASES = {
    "ready": ("08:00", [NIGHTLY], "02T02:20", "02T09:00", None),
    "ready before its schedule, today": ("08:00", [NIGHTLY], "02T00:10", "02T09:00", None),
    "made yesterday, its run is due in time": ("08:00", [NIGHTLY], "01T02:20", "02T01:00", None),
    "its run goes on and will end in time": ("08:00", [going(NIGHTLY, "02T07:30")], "01T02:20", "02T07:40", None),
    "its run began too late": (
        "08:00",
        [going(NIGHTLY, "02T07:50")],
        "01T02:20",
        "02T07:51",
        "will be late 08:00, ready 02T08:10",
    ),
    "its run takes longer than ever": (
        "08:00",
        [going(NIGHTLY, "02T07:30")],
        "01T02:20",
        "02T08:01",
        "late since 08:00, ready 02T08:01",
    ),
    "its runs take too long": ("08:00", [MORNING], "01T08:25", "02T00:00", "will be late 08:00, ready 02T08:25"),
    "its run has failed, and the next is too late": (
        "08:00",
        [NIGHTLY],
        "01T02:20",
        "02T02:30",
        "will be late 08:00, ready 03T02:20",
    ),
    "due right now, and about to be queued": (
        "08:00",
        [TimedSchedule("nightly", cron="0 2 * * *", run_seconds=1200.0, last_queued_at=at("01T02:00"))],
        "01T02:20",
        "02T02:00",
        None,
    ),
    "late": ("08:00", [NIGHTLY], "01T02:20", "02T08:00", "late since 08:00, ready 03T02:20"),
    "still late when the next day begins": ("08:00", [NIGHTLY], "01T02:20", "03T00:30", "late since 02T08:00"),
    "made late, but made": ("08:00", [NIGHTLY], "02T11:00", "02T11:01", None),
    "never made": ("08:00", [NIGHTLY], None, "02T09:00", "late since 08:00"),
    "made the evening before, as its schedule says": ("08:00", [EVENING], "01T22:10", "02T09:00", None),
    "not made the evening before": ("08:00", [EVENING], "01T21:00", "02T07:00", "will be late 08:00, ready 02T22:10"),
    "nobody works on Sundays": ("08:00", [WORKDAYS], "02T02:01", "04T12:00", None),
    "Friday is late until Monday": ("08:00", [WORKDAYS], "01T02:00", "04T12:00", "late since 02T08:00"),
    "a schedule that comes often": ("08:00", [OFTEN], "02T00:01", "02T07:59", None),
    "a paused schedule is no forecast": (
        "08:00",
        [TimedSchedule("n", cron="0 2 * * *", is_paused=True)],
        "01T02:20",
        "02T02:30",
        None,
    ),
    "a paused schedule is late": (
        "08:00",
        [TimedSchedule("n", cron="0 2 * * *", is_paused=True)],
        "01T02:20",
        "02T08:30",
        "late since 08:00, ready None",
    ),
    "only changes make it": ("08:00", [CHANGES], "01T02:20", "02T07:00", None),
    "only changes make it, and none came": ("08:00", [CHANGES], "01T02:20", "02T08:01", "late since 08:00, ready None"),
    "no schedule at all": ("08:00", [], "01T02:20", "02T08:01", "late since 08:00, ready None"),
    "in another zone it is morning already": ("08:00 Asia/Shanghai", [], "01T15:00", "02T00:30", "late since 02T00:00"),
    "in another zone today began yesterday": ("08:00 Asia/Shanghai", [], "01T17:00", "02T00:30", None),
    "so long after its schedule": ("2 hours", [NIGHTLY], "02T03:00", "02T05:00", None),
    "longer after its schedule": ("2 hours", [NIGHTLY], "01T03:00", "02T04:01", "late since 02T04:00"),
    "before that, with time left": ("2 hours", [going(NIGHTLY, "02T02:00")], "01T03:00", "02T02:30", None),
    "before that, too slow": (
        "10 minutes",
        [going(NIGHTLY, "02T02:00")],
        "01T03:00",
        "02T02:05",
        "will be late 02T02:10, ready 02T02:20",
    ),
}


@pytest.mark.parametrize(("deadline", "schedules", "made", "now", "expected"), CASES.values(), ids=CASES)
def test_late_or_not(
    deadline: str, schedules: list[TimedSchedule], made: str | None, now: str, expected: str | None
) -> None:
    found = judge_deadline(parse_deadline(deadline), schedules, at(made) if made else None, at("01T00:00"), at(now))
    if expected is None:
        assert found is None
        return
    assert found is not None
    ready = f"{found.ready_at:%dT%H:%M}" if found.ready_at else "None"
    told = f"{'late since' if found.is_late else 'will be late'} {found.term.due_at:%dT%H:%M}, ready {ready}"
    expected = expected.replace(" 08:00", " 02T08:00")
    assert told.startswith(expected), told


def test_deadlines_before_it_was_declared_do_not_count() -> None:
    deadline = parse_deadline("08:00")
    assert judge_deadline(deadline, [NIGHTLY], None, at("02T08:30"), at("02T09:00")) is None
    assert judge_deadline(deadline, [NIGHTLY], None, at("02T08:30"), at("03T09:00")) is not None


def test_where_the_clock_is_put_forward_the_day_is_shorter() -> None:
    deadline = parse_deadline("08:00 Europe/Berlin")
    march = datetime(2026, 3, 29, 7, tzinfo=UTC)
    start, by = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 6, tzinfo=UTC)
    assert find_passed_term(deadline, [], march) == DeadlineTerm(start, by)
    assert find_current_term(deadline, [], march) is None


def test_the_first_schedule_that_ends_counts() -> None:
    assert forecast_ready_at([NIGHTLY, OFTEN], at("02T01:05")) == at("02T01:11")
    assert forecast_ready_at([], at("02T01:05")) is None


SECONDS = {
    "a time of day": (
        "08:00:30 Asia/Shanghai",
        "01T00:00:29",
        "`dws.day` will be late: forecast ready at 08:20, and its deadline is 08:00:30 Asia/Shanghai",
    ),
    "passed by a second": (
        "08:00:30 Asia/Shanghai",
        "01T00:00:31",
        "`dws.day` is late: it was due by 08:00:30 Asia/Shanghai, and is forecast for 08:20",
    ),
    "a duration": (
        "90 seconds",
        "01T00:00:10",
        "`dws.day` will be late: forecast ready at 00:20, and its deadline is 00:01:30 UTC",
    ),
    "a minute that is missed by seconds": (
        "00:19 UTC",
        "01T00:00:10",
        "`dws.day` will be late: forecast ready at 00:20, and its deadline is 00:19 UTC",
    ),
}


@pytest.mark.parametrize(("deadline", "now", "what"), SECONDS.values(), ids=SECONDS)
def test_deadlines_with_seconds(deadline: str, now: str, what: str) -> None:
    schedule = TimedSchedule("often", cron="0 0 * * *", run_seconds=1170.0, started_at=at("01T00:00:00"))
    declared = ProjectDeclarations(
        {"dws.day": TableDeclaration("dws.day", (), ("often",), deadline, since="2025-12-01T00:00:00.000000Z")}
    )
    published_at = {"dws.day": "2025-12-31T02:00:00.000000Z"}
    (alarm,) = find_lateness_alarms(declared, {"often": schedule}, published_at, at(now))
    assert alarm.what == what


def test_what_is_no_deadline() -> None:
    for text in ("08:00:60", "08:00:5", "08:00:30:10", "25:00:00"):
        with pytest.raises(Mistake) as error:
            parse_deadline(text)
        assert error.value.fix == (
            "write a time of day, 06:30, 06:30:15 or 06:30 Asia/Shanghai, or a duration, 2 hours or 90 seconds"
        )
