"""Events years late, from the future, and without a time: counted, and none of them lets the watermark jump."""

from tests.run.stream.kafka_events import Events

MINUTES = """
@rn.task("dws.minute", stream="clicks", watermark=("ts", "5 minutes"))
def minute(clicks):
    rows = clicks.groupBy(F.window("ts", "1 minute")).agg(F.sum("id").alias("ids"))
    return rows.selectExpr("date_format(window.start, 'HH:mm') AS minute", "ids")
"""


def test_strange_times(events: Events) -> None:
    events.streams(MINUTES)
    events.click((1, "/a", "ada", "10:00:00"), (2, "/a", "ada", "2099-01-01T00:00:00Z"), (3, "/a", "ada", ""))
    assert warned(events) == ["left out: 1 row of `ods.clicks` more than 1 hour ahead"]
    events.click((4, "/a", "ada", "10:00:30"), (5, "/a", "ada", "10:08:00"))
    assert warned(events) == []
    events.click((6, "/a", "ada", "2011-01-01T00:00:00Z"), (7, "/a", "ada", "11:00:00"))
    assert warned(events) == ["left out: 1 row later than the watermark allows"]
    assert events.rows("dws.minute") == [("10:00", 5), ("10:08", 5)]


def warned(events: Events) -> list[str]:
    return [told for step in events.ran().steps for told in step.warnings]
