"""A stream that remembers things is killed at each of its failpoints, one after the other: each row counts once."""

from runnel.run.stream import failpoints
from tests.connect.lifecycle.source_lifecycle import run_once
from tests.faults.process_helpers import killed, start
from tests.run.stream.kafka_events import Events, rows_of

MINUTES = """
@rn.task("dws.minute", stream="clicks", watermark=("ts", "1 minute"))
def minute(clicks):
    rows = clicks.where("ts < timestamp '2026-01-02'").groupBy(F.window("ts", "1 minute"), "page").count()
    return rows.selectExpr("window.start AS minute", "page", "count")
"""
POINTS = (failpoints.LOGS_EXTENDED, failpoints.BATCH_STARTED, failpoints.BATCH_WRITTEN, failpoints.BATCH_PUBLISHED)


def test_killed_at_every_point(events: Events) -> None:
    events.streams(MINUTES)
    events.click((0, "/a", "ada", "10:00:00"))
    for number, point in enumerate(POINTS, 1):
        events.click((number, "/a", "ada", f"10:0{number}:00"), (number, "/a", "ada", f"10:0{number - 1}:30"))
        assert killed(start(run_once, str(events.root), fail=f"{point}:kill")), point
    events.click((9, "/a", "ada", "10:30:00"), (99, "/z", "end", "2026-01-03T00:00:00Z"))
    events.ran()
    assert rows_of(events, "dws.minute") == events.in_batch("dws.minute")
