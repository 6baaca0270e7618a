"""Rows that fail a check of a stream: set aside, dropped, or a stop after which nothing is lost."""

import json

import pytest

from runnel.lake.flow_state import append_log
from tests.run.stream.kafka_events import Events

CHECKED = """
@rn.task("dwd.{name}", stream="clicks", checks=[rn.check("page <> '/bad'", on_fail="{on_fail}")])
def {name}(clicks):
    return clicks.select("id", "page")
"""
ASIDE = CHECKED.format(name="aside", on_fail="quarantine")
DROPPED = CHECKED.format(name="dropped", on_fail="drop")
STOPPED = CHECKED.format(name="stopped", on_fail="stop")
ROUNDS = (("/a", "/bad", "/a"), ("/a", "/a"), ("/bad", "/a", "/bad"))


def ids(events: Events, table: str) -> list[int]:
    return sorted(row[0] for row in events.rows(table))


def send(events: Events, *pages: str, start: int) -> None:
    events.click(*((start + at, page, "ada", "10:00:00") for at, page in enumerate(pages)))


def test_bad_rows_of_all_batches_are_set_aside(events: Events) -> None:
    events.streams(ASIDE + DROPPED)
    told = []
    for number, pages in enumerate(ROUNDS):
        send(events, *pages, start=10 * number)
        told.append([step.set_aside for step in events.ran().steps if step.action == "stream"])
    assert told == [[1, 1], [0, 0], [2, 2]]
    assert ids(events, "dwd.aside") == ids(events, "dwd.dropped") == [0, 2, 10, 11, 21]
    aside = [json.loads(row[0])["id"] for row in events.rows("quarantine.dwd_aside")]
    assert sorted(aside) == [1, 20, 22]


def test_after_a_stop_it_goes_on_with_the_same_rows(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        append_log, "MAX_UNREAD_SNAPSHOTS", 1
    )  # so that what comes after the bad row has no room on the tape
    events.streams(STOPPED)
    send(events, "/a", start=0)
    events.ran()
    for number in (10, 20):
        send(events, "/bad", "/a", start=number)
        assert events.failed()[0] == "CHECK_FAILED"
    assert ids(events, "dwd.stopped") == [0]
    events.streams(STOPPED.replace('"stop"', '"drop"'))
    events.ran()
    assert ids(events, "dwd.stopped") == [0, 11, 21]
