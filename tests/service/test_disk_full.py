"""A full disk: who meets it says so and goes on once there is room; the trials of tests/faults fill real ones."""

import errno
import logging
import threading
from pathlib import Path

import pytest

from runnel.errors import NoRoom, RunnelError, find_disk_full
from runnel.run.run_log import RunLog
from runnel.service.api.problem_json import choose_status
from runnel.service.log_files import LogFileHandler
from runnel.service.worker.loops.loop import Loop

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

    def __init__(self, told: list[str]) -> None:
        super().__init__("ods.orders", threading.Event(), told.append)
        self.looks = 0

    def go(self) -> None:
        self.looks += 1
        if self.looks == 1:
            raise FULL
        self.mark_healthy()
        self.stop.set()

    def troubled(self, state: str, problem: str | None) -> None:
        if self.looks == 1:
            assert state == "waiting"
            raise NoRoom("DISK_FULL", "no space left for the catalog database")


def test_what_goes_on_by_itself_goes_on_when_there_is_room() -> None:
    told: list[str] = []
    part = Full(told)
    part.start()
    assert part.join(30) and part.looks == 2
    assert [one.partition(":")[0] for one in told] == ["ods.orders waits", "ods.orders goes on"]


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
