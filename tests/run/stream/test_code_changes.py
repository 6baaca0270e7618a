"""The code of a stream changes, or the columns of what it reads: it goes on, or says that it can't and what to do."""

import pytest

from runnel.lake.flow_state import streams
from runnel.names import TableName
from tests.run.stream.click_files import Clicks
from tests.run.stream.kafka_events import drop

COUNTED = """
@rn.task("dws.page", stream="clicks", output="update", key="page")
def page(clicks):
    return clicks.groupBy("page").agg({counted})
"""
KEPT = """
@rn.task("dwd.views", stream="clicks")
def views(clicks):
    return clicks.{kept}
"""
COUNT = COUNTED.format(counted='F.count("id").alias("n")')
MAX = COUNTED.format(counted='F.max("user").alias("n"), F.count("id").alias("m")')
RENAMED = COUNTED.format(counted='F.count("id").alias("n")').replace("groupBy", "where(\"page <> '/x'\").groupBy")
FIRST = ((1, "/a", "ada", "10:00:00"), (2, "/b", "bob", "10:00:01"))
SECOND = ((3, "/b", "bob", "10:00:02"), (4, "/x", "bob", "10:00:02"))


def reset(clicks: Clicks, table: str) -> None:
    with clicks.open() as lake:
        assert streams.reset(lake.store.db, "main", TableName.parse(table)) is not None


def test_a_compatible_change_goes_on(clicks: Clicks) -> None:
    clicks.streams(COUNT)
    clicks.click(*FIRST)
    clicks.ran()
    clicks.streams(RENAMED)
    clicks.click(*SECOND)
    clicks.ran()
    assert clicks.rows("dws.page") == [("/a", 1), ("/b", 2)]


def test_another_state_is_refused_until_a_reset(clicks: Clicks) -> None:
    clicks.streams(COUNT)
    clicks.click(*FIRST)
    clicks.ran()
    clicks.streams(MAX)
    clicks.click(*SECOND)
    for _ in range(2):
        error = clicks.run().errors[0]
        assert (error.code, "runnel stream reset dws.page" in str(error.fix)) == ("STREAM_OTHER_STATE", True), error
    assert clicks.rows("dws.page") == [("/a", 1), ("/b", 1)]
    reset(clicks, "dws.page")
    clicks.ran()
    assert clicks.rows("dws.page") == [("/a", "ada", 1), ("/b", "bob", 2), ("/x", "bob", 1)]


def test_a_life_that_makes_the_same_again_keeps_all(clicks: Clicks) -> None:
    clicks.streams(KEPT.format(kept='select("id")'))
    clicks.click(*FIRST)
    clicks.ran()
    reset(clicks, "dwd.views")
    clicks.ran()
    assert clicks.rows("dwd.views") == [(1,), (2,)]
    clicks.click(*SECOND)
    clicks.ran()
    assert clicks.rows("dwd.views") == [(1,), (2,), (3,), (4,)]


def test_columns_of_the_source_come_and_go(clicks: Clicks) -> None:
    clicks.streams(KEPT.format(kept='select("id", *[name for name in clicks.columns if name in ("page", "kind")])'))
    clicks.click(FIRST[0])
    clicks.ran()
    clicks.write("data/new.jsonl", '{"id": 5, "page": "/n", "user": "u", "ts": "2026-01-01T10:00:00Z", "kind": "k"}\n')
    clicks.ran()
    assert clicks.rows("dwd.views") == [(1, "/a", None), (5, "/n", "k")]
    clicks.streams(KEPT.format(kept='select("id", "kind")'))
    clicks.click(FIRST[1])
    error = clicks.run().errors[0]
    assert (error.code, "runnel stream reset dwd.views" in str(error.fix)) == ("STREAM_COLUMNS", True), error
    clicks.streams(KEPT.format(kept='select("id", "gone")'))
    assert clicks.run().errors[0].code == "RUN_COLUMN_UNKNOWN"
    reset(clicks, "dwd.views")
    clicks.streams(KEPT.format(kept='select("id", "kind")'))
    clicks.ran()
    assert clicks.rows("dwd.views") == [(1, None), (2, None), (5, "k")]


@pytest.mark.parametrize("is_dropped", [True, False], ids=["its table was dropped", "full refresh"])
def test_it_begins_anew(clicks: Clicks, is_dropped: bool) -> None:
    clicks.streams(COUNT)
    clicks.click(*FIRST)
    clicks.ran()
    if is_dropped:
        drop(clicks, "dws.page")
    clicks.click(*SECOND)
    clicks.ran(full_refresh=not is_dropped)
    assert clicks.rows("dws.page") == [("/a", 1), ("/b", 2), ("/x", 1)]
