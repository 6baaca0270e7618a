"""A kill at each named step of write, publish, merge, gc: nothing acknowledged is lost, nothing is torn."""

import pytest

from runnel.failpoint import POINTS
from tests.faults import workload
from tests.faults.process_helpers import killed, start
from tests.faults.verify import verify

# Which work passes a point, by the first word of its name.
WORK = {
    "write": "pair",
    "publish": "pair",
    "fork": "merge",
    "merge": "merge",
    "revert": "undo",
    "files": "put",
    "compact": "compact",
    "gc": "gc",
    "erase": "erase",
    "adopt": "adopt",
    "result": "result",
    "slot": "slot",
}
LAKE_POINTS = sorted(point for point in POINTS if point.split(".")[0] in WORK)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> workload.Place:
    """Make one lake, which is crashed again and again."""
    folder = tmp_path_factory.mktemp("lake")
    place = workload.Place(f"sqlite:///{folder}/catalog.db", folder)
    workload.prepare(place)
    return place


@pytest.mark.crash
@pytest.mark.parametrize("point", LAKE_POINTS)
def test_kill_at(point: str, place: workload.Place) -> None:
    job = WORK[point.split(".")[0]]
    workload.ready(place, job)
    process = start(workload.once, place, job, fail=f"{point}:kill")
    assert killed(process), f"{job} never reached {point} (exit code {process.exitcode})"
    verify(place)
    again = start(workload.once, place, job)
    again.join()
    assert again.exitcode == 0, f"{job} does not work after a kill at {point}"
