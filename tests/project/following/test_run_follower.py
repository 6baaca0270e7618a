"""One follower for every way to a run: what is shown, what Ctrl-C does, and what happens when a way is lost."""

from collections.abc import Generator, Sequence
from datetime import date
from itertools import repeat
from typing import Any

import pytest

from runnel.errors import Mistake, Unreachable
from runnel.model.date_range import DateRange
from runnel.project.following.fallback_event_source import FallbackEventSource
from runnel.project.following.run_follower import (
    FinishedRun,
    FollowedItem,
    NumberedEvent,
    RunFollower,
    follow_chunks,
    poll_run,
)
from runnel.run.results.run_result import Event

LOST = Unreachable("SERVICE_LOST", "it does not answer")


def event(number: int, kind: str = "note") -> NumberedEvent:
    return NumberedEvent(number, {"kind": kind, "text": f"text {number}"})


def ended(state: str = "succeeded", **outcome: Any) -> FinishedRun:
    return FinishedRun("r1", state, "main", None, {"run": "r1", "steps": [], **outcome})


class ScriptedSource:
    """A run whose `follow` plays one list of items after the other; an exception is raised in its place."""

    def __init__(self, *plays: Sequence[FollowedItem | BaseException], cancel: BaseException | None = None) -> None:
        self.calls: list[str] = []
        self._plays, self._cancel = list(plays), cancel

    def follow(self, after: int) -> Generator[FollowedItem, None, None]:
        self.calls.append(f"follow {after}")
        try:
            for item in self._plays.pop(0):
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.calls.append("close")

    def cancel(self) -> None:
        self.calls.append("cancel")
        if self._cancel is not None:
            raise self._cancel


class Watcher:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.messages: list[str] = []

    def __call__(self, event: Event) -> None:
        self.texts.append(event.text)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_events_for_users_are_shown_and_the_result_is_returned(watcher: Watcher) -> None:
    source = ScriptedSource([event(1), event(2, "log"), event(3, "end"), ended(seconds=1.5)])
    follower = RunFollower(source, watcher, watcher.messages.append)
    result = follower.follow()
    assert (result.run, result.state, result.seconds) == ("r1", "succeeded", 1.5)
    assert (watcher.texts, watcher.messages, follower.last_event) == (["text 1", "text 3"], [], 3)


def test_a_run_that_failed_before_its_first_step_raises_its_error() -> None:
    error = {"kind": "Mistake", "code": "X", "what": "no", "at": None, "fix": None}
    source = ScriptedSource([FinishedRun("r1", "failed", "main", None, {"error": error})])
    with pytest.raises(Mistake, match="no"):
        RunFollower(source).follow()


def test_ctrl_c_cancels_and_waits(watcher: Watcher) -> None:
    source = ScriptedSource([event(1), KeyboardInterrupt()], [event(2), ended("cancelled")])
    result = RunFollower(source, watcher, watcher.messages.append).follow()
    assert (result.state, watcher.texts) == ("cancelled", ["text 1", "text 2"])
    assert source.calls == ["follow 0", "close", "cancel", "follow 1", "close"]
    assert watcher.messages == ["stopping the run; press Ctrl-C again to leave without waiting for it"]


def test_ctrl_c_while_an_event_is_shown_stops_reading_first(watcher: Watcher) -> None:
    def interrupt_once(event: Event) -> None:
        watcher(event)
        if len(watcher.texts) == 1:
            raise KeyboardInterrupt

    source = ScriptedSource([event(1), event(2), ended()], [event(2), ended("cancelled")])
    assert RunFollower(source, interrupt_once).follow().state == "cancelled"
    assert source.calls == ["follow 0", "close", "cancel", "follow 1", "close"]


def test_a_second_ctrl_c_leaves_the_run_alone() -> None:
    source = ScriptedSource([KeyboardInterrupt()], [KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        RunFollower(source).follow()
    assert source.calls.count("cancel") == 1


def test_polling_reads_the_state_first_and_each_event_once(watcher: Watcher) -> None:
    states, events = [None, None, ended()], {0: [event(1)], 1: [], 2: []}
    read_after: list[int] = []

    def read_events(after: int) -> list[NumberedEvent]:
        read_after.append(after)
        return [event(2)] if states == [] and after == 1 else events[after]

    items = list(poll_run(lambda: states.pop(0), read_events, 0, repeat(0.0)))
    assert (items, read_after) == ([event(1), event(2), ended()], [0, 1, 1])


def test_a_lost_service_is_replaced_without_showing_an_event_twice(watcher: Watcher) -> None:
    service, catalog = ScriptedSource([event(1), event(2), LOST]), ScriptedSource([event(3), ended()])
    source = FallbackEventSource(service, lambda: catalog)
    assert RunFollower(source, watcher).follow().state == "succeeded"
    assert (catalog.calls[0], watcher.texts) == ("follow 2", ["text 1", "text 2", "text 3"])


def test_a_run_of_a_lost_service_is_cancelled_all_the_same() -> None:
    service = ScriptedSource([KeyboardInterrupt()], cancel=LOST)
    catalog = ScriptedSource([ended("cancelled")])
    assert RunFollower(FallbackEventSource(service, lambda: catalog)).follow().state == "cancelled"
    assert catalog.calls == ["cancel", "follow 0", "close"]


def test_what_the_fallback_can_not_reach_is_told() -> None:
    source = FallbackEventSource(ScriptedSource([LOST]), lambda: ScriptedSource([Unreachable("DB", "no database")]))
    with pytest.raises(Unreachable, match="no database"):
        RunFollower(source).follow()


def days(*numbers: int) -> DateRange:
    return DateRange(date(2026, 1, numbers[0]), date(2026, 1, numbers[-1]))


CHUNKS = {
    "all succeed": (["succeeded", "nothing"], ["succeeded", "nothing"]),
    "later ones are not followed after a failure": (["failed", "succeeded"], ["failed"]),
    "nor after a cancelled one": (["succeeded", "cancelled", "succeeded"], ["succeeded", "cancelled"]),
}


@pytest.mark.parametrize(("states", "expected"), CHUNKS.values(), ids=CHUNKS)
def test_chunks_are_followed_up_to_the_first_that_fails(states: list[str], expected: list[str]) -> None:
    chunks = [(days(number), ScriptedSource([ended(state)])) for number, state in enumerate(states, 1)]
    assert [result.state for result in follow_chunks(chunks)] == expected


def test_ctrl_c_stops_a_backfill(watcher: Watcher) -> None:
    first, second = ScriptedSource([KeyboardInterrupt()], [ended("cancelled")]), ScriptedSource([])
    chunks = [(days(1, 2), first), (days(3), second)]
    results = list(follow_chunks(chunks, watcher, watcher.messages.append))
    assert ([result.state for result in results], first.calls.count("cancel"), second.calls) == (["cancelled"], 1, [])
    assert watcher.texts == ["chunk 1 of 2: 2026-01-01 to 2026-01-02"]
    assert watcher.messages == ["stopping the backfill; press Ctrl-C again to leave without waiting for it"]
