"""Whatever happens to a table that is read as a stream: nothing is lost or doubled, or it says that it can't go on."""

from collections.abc import Callable

import pytest

from runnel.lake.flow_state import streams
from runnel.lake.iceberg import table_metadata
from runnel.lake.upkeep.compact.compact import compact
from runnel.names import TableName
from tests.run.stream.click_files import Clicks
from tests.run.stream.kafka_events import Events, drop

CLICKS, VIEWS = TableName.parse("ods.clicks"), TableName.parse("dwd.views")
KEPT = """
@rn.task("dwd.views", stream="clicks")
def views(clicks):
    return clicks.select("id")
"""


def send(events: Events, number: int) -> None:
    events.click((number, "/a", "ada", "10:00:00"))


def ingest(events: Events, number: int) -> str | None:
    send(events, number)
    return events.ran("ods.clicks").commit


def ids(events: Events, table: str = "dwd.views") -> list[int]:
    return sorted(row[0] for row in events.rows(table))


def begun(events: Events) -> None:
    events.streams(KEPT)
    for number in (1, 2):
        send(events, number)
        events.ran()


def compacted(events: Events, table: TableName = CLICKS) -> None:
    with events.open() as lake:
        assert compact(lake.store, table, force=True)[0].commit


def many(events: Events) -> None:
    for number in range(100, 113):
        ingest(events, number)


def compacted_with_unread(events: Events) -> None:
    ingest(events, 50)
    compacted(events)
    ingest(events, 51)
    compacted(events)


def reverted_unread(events: Events) -> None:
    commit = ingest(events, 60)
    with events.open() as lake:
        lake.revert(str(commit))


GOES_ON: dict[str, Callable[[Events], None]] = {
    "compacted": compacted,
    "compacted with rows that are not read yet": compacted_with_unread,
    "more commits than a tape has room for": many,
    "reverted before it was read": reverted_unread,
}


def test_it_goes_on(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        table_metadata.trim_snapshots, "__defaults__", (4,)
    )  # so that a tape soon loses its first snapshots
    begun(events)
    for number, change in enumerate(GOES_ON.values(), 3):
        change(events)
        send(events, number)
        events.ran()
        assert ids(events) == ids(events, "ods.clicks"), change
    compacted(events, VIEWS)
    send(events, 9)
    events.ran()
    assert ids(events) == ids(events, "ods.clicks")


def test_rows_that_were_read_went(events: Events) -> None:
    begun(events)
    commit = ingest(events, 3)
    events.ran()
    with events.open() as lake:
        lake.revert(str(commit))
    code, told = events.failed()
    assert (code, "runnel stream reset" in told) == ("STREAM_ROWS_WENT", True)
    assert ids(events) == [1, 2, 3]
    with events.open() as lake:
        streams.reset(lake.store.db, "main", VIEWS)
    events.ran()
    assert ids(events) == ids(events, "ods.clicks") == [1, 2]
    with events.open() as lake:
        lake.rewind("ods.clicks", to=f"{commit}~1")
    events.ran()  # what was read again is a new row of the table, and comes to the stream once
    assert ids(events) == ids(events, "ods.clicks") == [1, 2, 3]


def test_the_table_is_dropped(events: Events) -> None:
    begun(events)
    drop(events, "ods.clicks")
    with pytest.raises(Exception, match=r"ods\.clicks"):
        raise events.run("dwd.views").errors[0]
    assert ids(events) == [1, 2]


def test_its_own_table_is_compacted_in_the_middle_of_a_batch(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    from runnel.run.stream import failpoints

    begun(events)
    done: list[str] = []

    def reach(point: str) -> None:
        if point == failpoints.BATCH_WRITTEN and not done:
            done.append(point)
            compacted(events, VIEWS)

    monkeypatch.setattr(failpoints, "reach", reach)
    send(events, 3)
    events.ran()
    assert done
    assert ids(events) == [1, 2, 3]


def test_a_file_of_the_source_is_changed(clicks: Clicks) -> None:
    clicks.streams(KEPT)
    clicks.click((1, "/a", "ada", "10:00:00"), (2, "/a", "ada", "10:00:00"))
    clicks.ran()
    clicks.write("data/0000.jsonl", '{"id": 3, "page": "/a", "user": "ada", "ts": "2026-01-01T10:00:00Z"}\n')
    error = clicks.run().errors[0]
    assert (error.code, "runnel stream reset" in str(error.fix)) == ("STREAM_ROWS_WENT", True)
    with clicks.open() as lake:
        streams.reset(lake.store.db, "main", VIEWS)
    clicks.ran()
    assert clicks.rows("dwd.views") == [(3,)]
