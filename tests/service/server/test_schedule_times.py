"""Times of schedules against a model that looks at every minute: random cron texts, zones, and clocks that jump."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runnel.declare.options.cron_syntax import validate_cron
from runnel.lake.store import Store
from runnel.project.inspection.schedule_times import list_due_times
from runnel.service.server.scheduler import Scheduler
from tests.service.server.test_scheduler import Clock, declare, slots

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
# Days on which each zone's clock is put forward or back: by an hour, at midnight, by half an hour, by a whole day.
CHANGES = {
    "UTC": ("2026-03-29", "2026-10-25"),
    "Asia/Shanghai": ("2026-03-29", "2026-10-25"),
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "America/Havana": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),
    "Pacific/Apia": ("2011-12-30", "2021-04-03"),
}
_EXAMPLES = int(os.environ.get("RUNNEL_TIMES_EXAMPLES", "100"))
_names = count()


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    listed = st.lists(number, min_size=2, max_size=4, unique=True).map(lambda found: ",".join(map(str, sorted(found))))
    ranged = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    return st.one_of(st.just("*"), number.map(str), listed, ranged, st.sampled_from(["*/2", "*/7"]))


def crons(minutes: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    days = st.sampled_from(["*", "*", "1-5", "0"])
    return st.builds(lambda minute, hour, day: f"{minute} {hour} * * {day}", minutes, field(0, 23), days)


FEW = crons(st.integers(0, 59).map(str) | st.sampled_from(["0,30", "10-12", "*/20"]))  # not every minute: quicker


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw a zone, and a moment within a day and a half of a change of its clock."""
    zone = draw(st.sampled_from(sorted(CHANGES)))
    day = datetime.fromisoformat(draw(st.sampled_from(CHANGES[zone]))).replace(tzinfo=UTC)
    return zone, day + timedelta(seconds=draw(st.integers(-129_600, 129_600)))


NICKNAMES = {
    "@hourly": ["01-30 13:00", "01-30 14:00"],
    "@daily": ["01-31 00:00", "02-01 00:00"],
    "@weekly": ["02-01 00:00", "02-08 00:00"],
    "@monthly": ["02-01 00:00", "03-01 00:00"],
    "@yearly": ["01-01 00:00", "01-01 00:00"],
    "0 2 L * *": ["01-31 02:00", "02-28 02:00"],
    "0 2 15,L * *": ["01-31 02:00", "02-15 02:00"],
}


@pytest.mark.parametrize(("cron", "expected"), NICKNAMES.items(), ids=NICKNAMES)
def test_nicknames_and_last_days(cron: str, expected: list[str]) -> None:
    validate_cron(cron)
    start = datetime(2026, 1, 30, 12, 30, tzinfo=UTC)
    times = list_due_times(cron, "UTC", None, start, start + 800 * DAY, limit=2)
    assert [f"{at:%m-%d %H:%M}" for at in times] == expected


def model(cron: str, tz: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the times after a moment and until another, by looking at every minute."""
    zone, fields = ZoneInfo(tz), cron.split()
    minutes, hours, days = (numbers(fields[at], high) for at, high in ((0, 59), (1, 23), (4, 6)))

    def fits(at: datetime) -> bool:
        return at.minute in minutes and at.hour in hours and at.isoweekday() % 7 in days

    first, last = start.replace(second=0, microsecond=0), end
    if fields[0].startswith("*") or fields[1].startswith("*"):
        found = {at for at in every_minute(first, last) if fits(at.astimezone(zone))}
    else:
        local = [at.astimezone(zone).replace(tzinfo=None, fold=0) for at in (first - 2 * DAY, last + 2 * DAY)]
        found = {real(at, zone) for at in every_minute(*local) if fits(at)}
    return sorted(at for at in found if start < at <= end)


def every_minute(first: datetime, last: datetime) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += MINUTE


def real(at: datetime, zone: ZoneInfo) -> datetime:
    """Return when a local time is: the first time that it comes, and right after the change where it never does."""
    while at.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at:
        at += MINUTE
    return at.replace(tzinfo=zone).astimezone(UTC)


def numbers(text: str, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        ends, _, step = part.partition("/")
        low, _, top = ends.partition("-")
        first, last = (0, high) if ends == "*" else (int(low), int(top or low))
        found |= set(range(first, last + 1, int(step or 1)))
    return found


@settings(max_examples=2 * _EXAMPLES, deadline=None)
@given(crons(field(0, 59)), moments())
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 10, 25, 1, 10, tzinfo=UTC)))  # in the hour that comes again
@example("* 0 * * *", ("Australia/Lord_Howe", datetime(2026, 4, 3, 13, 30, tzinfo=UTC)))  # put back by half an hour
def test_times_are_those_of_the_model(cron: str, moment: tuple[str, datetime]) -> None:
    zone, start = moment
    assert list_due_times(cron, zone, None, start, start + 2 * DAY, limit=10_000) == model(
        cron, zone, start, start + 2 * DAY
    )


JUMPS = st.lists(st.integers(-90_000, 90_000) | st.integers(0, 7_200), min_size=1, max_size=6)  # seconds


@settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cron=FEW, moment=moments(), jumps=JUMPS)
def test_each_time_once_and_none_lost_however_the_clock_jumps(
    store: Store, cron: str, moment: tuple[str, datetime], jumps: list[int]
) -> None:
    zone, start = moment
    furthest = assert_followed(store, start, jumps, {"cron": cron, "tz": zone})
    assert queued(store) == model(cron, zone, start, furthest)


@settings(max_examples=_EXAMPLES // 2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(minutes=st.integers(7, 2_000), moment=moments(), jumps=JUMPS)
def test_intervals_are_followed_however_the_clock_jumps(
    store: Store, minutes: int, moment: tuple[str, datetime], jumps: list[int]
) -> None:
    furthest = assert_followed(store, moment[1], jumps, {"every": f"{minutes} minutes"})
    first = moment[1].replace(second=0, microsecond=0)
    wanted = [at for at in every_minute(first, furthest) if int(at.timestamp()) % (60 * minutes) == 0]
    assert queued(store) == [at for at in wanted if at > moment[1]]


def assert_followed(store: Store, start: datetime, jumps: list[int], times: dict[str, object]) -> datetime:
    """Let the clock jump, two schedulers look after each jump, and return how far it has ever been."""
    clock = Clock(start.replace(tzinfo=None).isoformat())
    name = f"s{next(_names)}"  # of the schedules of a lake only the newest is declared
    declare(store, clock, {"name": name, "catch_up": "all", **times})
    furthest = start
    for seconds in jumps:
        clock.pass_(seconds=seconds)
        furthest = max(furthest, clock())
        assert_all_queued(Scheduler(store, clock), Scheduler(store, clock))
    return furthest


def assert_all_queued(one: Scheduler, other: Scheduler) -> None:
    """Let one queue all that is due, so many at a time; the other finds nothing left."""
    while one.queue_due_runs():
        pass
    assert other.queue_due_runs() == []


def queued(store: Store) -> list[datetime]:
    """Return the times that the newest schedule has queued, in order, and forget them."""
    from runnel.lake.catalog import schema

    found = [datetime.fromisoformat(one) for one in slots(store)]
    store.db.write(lambda connection: connection.execute(schema.queue.delete()))
    return found


@pytest.mark.parametrize(("policy", "most"), [("last", 1), ("none", 0)])
def test_a_day_that_was_slept_through_is_made_up_for_as_the_policy_says(store: Store, policy: str, most: int) -> None:
    clock = Clock("2026-03-28T12:00:30")
    declare(store, clock, {"name": "often", "cron": "*/5 * * * *", "tz": "Europe/Berlin", "catch_up": policy})
    clock.pass_(days=1)
    while Scheduler(store, clock).queue_due_runs():
        pass
    found = slots(store)
    assert found == ["2026-03-29T12:00:00Z"][:most]
    clock.pass_(days=-1)
    assert Scheduler(store, clock).queue_due_runs() == []
