"""A full disk: who meets it says so and goes on once there is room; the trials of tests/faults fill real ones."""

import errno
import logging
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.errors import NoRoom, RunnelError, find_disk_full
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.run_log import RunLog
from runnel.service.api.problem_json import choose_status
from runnel.service.log_files import LogFileHandler
from runnel.service.worker.loops.loop import Loop
from runnel.service.worker.loops.loop_context import LoopContext

FULL = OSError(errno.ENOSPC, "No space left on device")


def caused(error: Exception) -> RunnelError:
    wrapped = RunnelError("RUN_FAILED", "it failed")
    wrapped.__cause__ = error
    return wrapped


MET = {
    "Python": FULL,
    "quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "Arrow, DuckDB and Java, by their words": ValueError("IO Error: write: No space left on device"),
    "what it brought about": caused(FULL),
}


@pytest.mark.parametrize("error", MET.values(), ids=MET)
def test_a_full_disk_is_known_whoever_met_it(error: Exception) -> None:
    found = find_disk_full(error)
    assert found is not None and (found.code, found.exit_code, choose_status(found)) == ("DISK_FULL", 1, 503)
    assert find_disk_full(OSError(errno.EIO, "Input/output error")) is None


class Full(Loop):
    """A part that finds no room, and can't even write down that it does, until there is some."""

    def __init__(self, lake: Lake, told: list[str]) -> None:
        super().__init__("ods.orders", LoopContext(lake, load_project_flow(lake), "main", "run", told.append))
        self.looks = 0

    def run_loop(self) -> None:
        self.looks += 1
        if self.looks == 1:
            raise FULL
        self.mark_healthy()
        self.stop.set()

    def record_state(self, state: str, problem: str | None) -> None:
        if self.looks == 1:
            assert state == "waiting"
            raise NoRoom("DISK_FULL", "no space left for the catalog database")


def test_what_goes_on_by_itself_goes_on_when_there_is_room(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "flows").mkdir()
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows/flow.py").write_text('import runnel as rn\n\nrn.source("ods.orders", rn.manual())\n')
    with rn.open(tmp_path) as lake:
        part = Full(lake, told)
    part.start()
    assert part.join(30) and part.looks == 2
    assert [one.partition(":")[0] for one in told] == ["ods.orders waits", "ods.orders continues"]


def test_no_run_fails_for_its_log(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs", "r1")
    log.path.symlink_to("/dev/full")
    log.write("a line that finds no room")


def test_nobody_is_shown_a_trace_for_a_line_that_finds_no_room(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFileHandler("/dev/full", delay=True)
    logger = logging.Logger("full")
    logger.addHandler(handler)
    logger.error("a line")
    assert capsys.readouterr().err == ""
