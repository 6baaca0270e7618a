"""Tables beside a stream that goes on: each batch sees them as they are by then, and all of them from one commit."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from runnel.names import TableName
from runnel.plan.fingerprint.fingerprints import Fingerprinter
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.stream.batch_publisher import BatchObserver
from runnel.run.stream.stream_query import StreamQuery, StreamSpec
from tests.run.stream.click_files import Clicks

BESIDE = """
rn.source("ods.left", rn.files("left/*.csv", schema="page string, l long"))
rn.source("ods.right", rn.files("right/*.csv", schema="page string, r long"))

@rn.task("dwd.both", stream="clicks", inputs={"left": "ods.left", "right": "ods.right"})
def both(clicks, left, right):
    return clicks.join(left, "page").join(right, "page").select("id", "l", "r")
"""
PATIENCE_SECONDS = 60


@contextmanager
def following(clicks: Clicks, table: str, *observers: BatchObserver) -> Iterator[StreamQuery]:
    """Keep a stream going beside the block; `observers` are called after each batch."""
    with clicks.open() as lake, ExitStack() as stack:
        flow = load_project_flow(lake)
        task, stop = flow.tasks[TableName.parse(table)], threading.Event()
        code = Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of(task)
        spec = StreamSpec(flow, task, "main", code, "r1")
        course = StreamQuery.open(stack, lake.store, spec, lake.spark, observers)
        query = course.start(is_endless=True)

        def wind() -> None:
            while not stop.is_set() and query.isActive:
                if not course.extend_logs():
                    stop.wait(0.01)
            course.finish()

        thread = threading.Thread(target=wind)
        thread.start()
        try:
            yield course
        finally:
            stop.set()
            thread.join()


def arrive(clicks: Clicks, number: int) -> None:
    for side in ("left", "right"):
        clicks.write(f"{side}/page.csv", f"page,{side[0]}\n/a,{number}\n")
    clicks.click((number, "/a", "ada", "10:00:00"))
    clicks.ran("ods.*")


def until(clicks: Clicks, number: int) -> list[tuple[Any, ...]]:
    """Wait for a row, and return all."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = clicks.rows("dwd.both")
        if number in {row[0] for row in found}:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.05)


def test_tables_beside_move_together(clicks: Clicks) -> None:
    clicks.streams(BESIDE)
    arrive(clicks, 1)
    clicks.ran()
    calls: list[str] = []
    observers = (lambda publisher: calls.append(f"first {publisher.commit}"), lambda _: calls.append("second"))
    with following(clicks, "dwd.both", *observers) as course:
        for number in (2, 3):
            arrive(clicks, number)
            assert (number, number, number) in until(clicks, number)
        for number in range(4, 9):
            arrive(clicks, number)
        found = until(clicks, 8)
    assert sorted(row[0] for row in found) == list(range(1, 9))
    assert all(left == right >= 3 for number, left, right in found if number > 3)
    assert not course.publisher.error
    assert len(calls) >= 4 and calls[1::2] == ["second"] * (len(calls) // 2)
    assert f"first {course.publisher.commit}" in calls
