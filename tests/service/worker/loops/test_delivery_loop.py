"""A sink that fails is tried again after growing pauses, which the documentation states, and delays no other sink."""

import time
from collections.abc import Callable
from pathlib import Path

import runnel as rn
from runnel.errors import RunnelError
from runnel.lake.flow_state.sink_positions import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.deliver import FIRST_PAUSE_SECONDS
from runnel.run.results.delivery_result import DeliveryResult
from runnel.service.worker.loops.delivery_loop import PAUSE_SECONDS, DeliveryLoop, SinkPauses
from runnel.service.worker.loops.loop import LONGEST_SECONDS, SHORTEST_SECONDS
from runnel.service.worker.loops.loop_context import LoopContext

DOCS = Path(__file__).parents[4] / "docs"
FLOW = """
import runnel as rn

rn.source("ods.orders", rn.files("data/*.csv", schema="id long"))


@rn.sink("ods.orders", name="broken")
def broken(rows):
    raise RuntimeError("no")


rn.sink("ods.orders", rn.files("export/orders.csv"), name="export")
"""


def failed(sink: str) -> DeliveryResult:
    return DeliveryResult(sink, "ods.orders", "failed", error=RunnelError("SINK_FAILED", "no"))


def test_the_pauses_of_a_failing_sink() -> None:
    now = [0.0]
    pauses = SinkPauses(lambda: now[0])
    lengths = []
    for _ in range(9):
        pauses.update(pauses.list_paused(), [failed("broken")])
        assert pauses.list_paused() == {"broken"}
        started_at = now[0]
        while pauses.list_paused():
            pauses.update(pauses.list_paused(), [DeliveryResult("export", "ods.orders", "delivered")])
            now[0] += 0.5
        lengths.append(now[0] - started_at)
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    pauses.update(pauses.list_paused(), [])  # it was tried, and has everything
    pauses.update(pauses.list_paused(), [failed("broken")])
    now[0] += SHORTEST_SECONDS
    assert pauses.list_paused() == frozenset(), "the pauses start from the first again"


def test_the_documented_pauses_are_those_of_the_code() -> None:
    page = (DOCS / "sinks.md").read_text()
    first, later = FIRST_PAUSE_SECONDS, MIN_RETRY_SECONDS
    sentences = [
        f"`retries` times, after pauses of {first:g}, {2 * first:g}, {4 * first:g}, ... seconds",
        f"with pauses of {first:g}, {2 * first:g}, {4 * first:g}, ... seconds; 2 by default",
        f"for {later:g} seconds after the first failure in a row, then {2 * later:g}, {4 * later:g}, ...,"
        f" at most {MAX_RETRY_SECONDS:g} seconds",
        f"New commits are looked for every {PAUSE_SECONDS:g} seconds",
        f"tried again after {SHORTEST_SECONDS:g} second, then {2 * SHORTEST_SECONDS:g}, {4 * SHORTEST_SECONDS:g}, ...,"
        f" at most {LONGEST_SECONDS:g} seconds",
    ]
    assert [sentence for sentence in sentences if sentence not in page] == []


def test_a_failing_sink_delays_no_other(tmp_path: Path) -> None:
    for folder in ("flows", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows/flow.py").write_text(FLOW)
    reports: list[str] = []
    with rn.open(tmp_path) as lake:
        for number in (1, 2):
            (tmp_path / f"data/{number}.csv").write_text(f"id\n{number}\n")
            lake.run("ods.orders")
        loop = DeliveryLoop(LoopContext(lake, load_project_flow(lake), "main", "r", reports.append))
        loop._pauses = SinkPauses(lambda: 0.0)  # the failing sink waits for ever
        loop.start()
        wait_until(lambda: bool(reports))
        head = lake.rewind("ods.orders", to="main~1").commit  # which nothing but the loop delivers
        assert head is not None
        wait_until(lambda: lake.sinks()[1].commit == head.id)
        loop.stop.set()
        assert loop.join(30)
        assert (tmp_path / "export/orders.csv").read_text().split() == ["id", "1"]
    assert [report.split(":")[0] for report in reports] == ["broken"], "it was tried once, by the loop"


def wait_until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
