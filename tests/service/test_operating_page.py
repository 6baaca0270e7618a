"""docs/operating.md is right: a night with a real service and worker, from each alert to its repair, word for word.

The time of a schedule does not have to come: the test sets back what a schedule has queued, so that it is due.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

import runnel as rn
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.control import run_queue, schedules
from runnel.lake.control.queue_entry import OPEN_STATES
from runnel.project.inspection.schedule_times import list_due_times
from tests.service.running_service import Up, below, tail, until

PAGE = (Path(__file__).parents[2] / "docs/operating.md").read_text()
LONG_AGO = "2026-01-01T00:00:00.000000Z"
ENTRY_POINTS = ("status", "alarms", "runs", "schedules")  # where to look without having been told
SECONDS = 120.0
RUN_ID = r"\d{8}t\d{6}-[0-9a-f]{8}"
VARYING = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?", "TIME"),
    (r"due by (\d{4}-\d\d-\d\d )?06:00", "due by 06:00"),
    (RUN_ID, "RUN"),
    (r"commit [0-9a-f]{8,}", "commit COMMIT"),
    (r" s +[0-9a-f]{8} ", " s COMMIT "),
    (r"\d+\.\d s", "0.0 s"),
    (r"worker \S+-worker-\d-\w+", "worker WORKER"),
    (r"log \S+/\.runnel", "log .runnel"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"[ ]+", " "),
    (r" \n", "\n"),
)


def steady(text: str) -> str:
    """Return a text without what differs each time: times, ids, the width of columns."""
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return text.strip()


class Incident:
    """A section of the page: its files, its alerts, and its commands with what they print."""

    def __init__(self, title: str) -> None:
        assert f"\n## {title}\n" in PAGE
        self.text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        self.file = next((text for language, text in blocks if language == "csv"), "")
        self.alerts = [text for language, text in blocks if language == "text"]
        sessions = "".join(text for language, text in blocks if not language).split("$ ")[1:]
        self.commands = [(command, output) for command, _, output in (text.partition("\n") for text in sessions)]
        assert 0 < len(self.commands) <= 4, "from the alert to the repair in at most four commands"


class Night:
    """The project of the page, its service, and what the operator has read so far."""

    def __init__(self, root: Path) -> None:
        self.root, self.log, self.heard, self.run = root, root / "up.txt", "", ""
        self.type("runnel init . --name shop")
        flow, notify, *_ = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
        (root / "flows/reports.py").write_text(flow)
        (root / "notify.py").write_text(notify)
        os.mkfifo(root / "rates.json")  # who reads it waits
        self.db, self.up = (lake := rn.open(root)).store.db, Up(root, self.log)
        self.close_lake = lake.close
        self.wait(lambda: len(self.db.read(schedules.list_schedules)) == 4, "a worker declares the schedules")
        self.type("runnel schedules pause report")
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        self.set_cursors(["nightly", "rates", "report", "freshness"], tomorrow)

    def close(self) -> None:
        self.up.__exit__()
        self.close_lake()

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        until(is_so, SECONDS, lambda: f"not so: {what}\n{self.heard[-3000:]}\n{tail(self.log)}", 0.1)

    def type(self, command: str) -> str:
        """Run a line of a shell in the project, and return what it prints; progress is left out."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": "220", "PYTHONPATH": ":".join(sys.path)}
        environment |= {"RUNNEL__SERVICE__PORT": str(self.up.port)} if hasattr(self, "up") else {}
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.root, capture_output=True, text=True, check=False, env=environment
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout if " retry " in command else done.stdout + done.stderr

    def set_cursors(self, names: list[str], queued_until: datetime) -> None:
        """Let schedules have queued what was due up to a time."""
        cursor = json.dumps({"slot": format_time(queued_until)})
        self.write(schema.schedules.update().where(schema.schedules.c.name.in_(names)).values(cursor=cursor))

    def make_due(self, name: str) -> None:
        """Let a schedule be due for its last time, even if it ran for that time before."""
        now, schedule = datetime.now(UTC), self.db.read(lambda connection: schedules.find(connection, name))
        last_at = list_due_times(schedule.declared["cron"], "UTC", None, now - timedelta(days=1), now, limit=2)[-1]
        self.write(schema.queue.update().values(slot=None))
        self.set_cursors([name], last_at - timedelta(minutes=1))

    def write(self, statement: sa.Update) -> None:
        self.db.write(lambda connection: connection.execute(statement))

    def count_ended(self, name: str) -> int:
        entries = self.db.read(lambda connection: run_queue.list_entries(connection, cause=f"schedule/{name}"))
        return len([entry for entry in entries if entry.state not in OPEN_STATES])

    def run_schedule(self, name: str) -> None:
        count = self.count_ended(name)
        self.make_due(name)
        self.wait(lambda: self.count_ended(name) == count + 1, f"the run of {name} has ended")

    def read_alert(self, text: str) -> None:
        """Wait until the newest message is that of the page."""
        path = self.root / "night.log"

        def read_newest() -> str:
            return path.read_text().split("\n\n")[-2] if path.exists() and path.read_text().endswith("\n\n") else ""

        until(
            lambda: steady(read_newest()) == steady(text),
            SECONDS,
            lambda: f"the newest message is\n{steady(read_newest())}\nnot\n{steady(text)}\n{tail(self.log)}",
        )
        self.hear(read_newest())

    def play(self, command: str, output: str) -> None:
        """Type a command of the page, for the run that was named before, and compare what it prints."""
        if command.startswith("runnel") and command.split()[1:2][0] not in ENTRY_POINTS:
            assert f"`{steady(command)}`" in steady(self.heard), f"nothing has named {command}"
        command = re.sub(RUN_ID, self.run, command)
        printed = self.type(command) if command != "runnel up" else self.start_again()
        self.compare(command, printed, output)
        self.hear(printed)

    def hear(self, text: str) -> None:
        self.heard += text
        self.run = next(iter(re.findall(RUN_ID, text)), self.run)

    def start_again(self) -> str:
        self.up = Up(self.root, self.log)
        self.wait(lambda: "is up at" in self.up.said() and "stops it" in self.up.said(), "the service is up")
        return self.up.said()

    @staticmethod
    def compare(command: str, printed: str, expected: str) -> None:
        """Compare what was printed with the page, in which `...` stands for any lines."""
        parts = re.split(r"(?m)^\.\.\.\n?", steady(expected) + "\n")
        pattern = "(?:.*\n)*?".join(re.escape(part) for part in parts)
        assert re.fullmatch(pattern, steady(printed) + "\n"), f"$ {command}\n{steady(printed)}\nexpected\n{expected}"

    def find_worker(self) -> int:
        for pid, _ in below(self.up.process.pid):
            with suppress(OSError):
                if b"\0worker\0--watched" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        raise AssertionError("no worker is running")

    def open_rates(self) -> int:
        """Return the rates, open for writing, as soon as a run reads them."""
        opened = list[int]()

        def can_open() -> bool:
            with suppress(OSError):  # nobody reads
                opened.append(os.open(self.root / "rates.json", os.O_WRONLY | os.O_NONBLOCK))
            return bool(opened)

        self.wait(can_open, "a run reads the rates")
        return opened[0]


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    night = Night(tmp_path)
    yield night
    night.close()


@pytest.mark.timeout(900)  # three Spark drivers start one after the other, perhaps on a busy machine
def test_the_page_is_right(night: Night) -> None:
    """All incidents on one service, as the page tells them: each begins where the one before ended."""
    night.run_schedule("nightly")
    live_through_bad_rows(night, Incident("A file has rows that can't be read"))
    live_through_a_failed_check(night, Incident("A check fails"))
    live_through_a_killed_worker(night, Incident("A worker is killed"))
    live_through_a_stop(night, Incident("The service was down"))
    live_through_a_late_table(night, Incident("A table is late"))
    live_through_a_late_source(night, Incident("A source is late"))


def live_through_bad_rows(night: Night, incident: Incident) -> None:
    (night.root / "data/orders/2026-01-04.csv").write_text(incident.file)
    night.run_schedule("nightly")
    night.read_alert(incident.alerts[0])
    for command, output in incident.commands:
        night.play(command, output)
    night.read_alert(incident.alerts[1])


def live_through_a_failed_check(night: Night, incident: Incident) -> None:
    (night.root / "data/orders/2026-01-05.csv").write_text(incident.file)
    night.run_schedule("nightly")
    night.read_alert(incident.alerts[0])
    for command, output in incident.commands:
        night.play(command, output)


def live_through_a_killed_worker(night: Night, incident: Incident) -> None:
    night.make_due("rates")
    rates = night.open_rates()
    (night.root / "rates.new").write_text(json.dumps([{"currency": "EUR", "rate": 0.92}]))
    (night.root / "rates.new").rename(night.root / "rates.json")  # for the next attempt
    pid = night.find_worker()
    os.kill(pid, signal.SIGKILL)
    night.wait(lambda: pid not in [child for child, _ in below(night.up.process.pid)], "the worker has ended")
    os.close(rates)
    night.wait(lambda: night.count_ended("rates") == 1, "the second attempt has ended")
    assert "the worker has ended (killed by SIGKILL)" in (night.root / ".runnel/logs/up.log").read_text()
    for command, output in incident.commands:
        night.play(command, output)


def live_through_a_stop(night: Night, incident: Incident) -> None:
    night.type("runnel down")
    assert night.up.process.wait(SECONDS) == 0
    night.type("cp data/later/2026-01-03.csv data/orders/")
    night.make_due("nightly")
    count = night.count_ended("nightly")
    *before, (command, output) = incident.commands
    for text, printed in before:
        night.play(text, printed)
    night.wait(lambda: night.count_ended("nightly") == count + 1, "the missed run has ended")
    night.play(command, output)


def live_through_a_late_table(night: Night, incident: Incident) -> None:
    night.write(schema.declared.update().values(since=LONG_AGO))
    night.read_alert(incident.alerts[0])
    night.make_due("report")
    resume, look = incident.commands
    night.play(*resume)
    night.wait(lambda: night.count_ended("report") == 1, "the missed run has ended")
    night.wait(lambda: not night.db.read(read_open_alarms), "the alarm is over")
    night.play(*look)


def live_through_a_late_source(night: Night, incident: Incident) -> None:
    night.run_schedule("freshness")
    night.read_alert(incident.alerts[0])
    (night.root / "outbox").mkdir()
    (night.root / "outbox/2026-01-08.csv").write_text(incident.file.replace("2026-01-08", f"{datetime.now(UTC):%F}"))
    *before, look = incident.commands
    for command, output in before:
        night.play(command, output)
    night.wait(lambda: not night.db.read(read_open_alarms), "the alarm is over")
    night.play(*look)


def read_open_alarms(connection: sa.Connection) -> list[str]:
    return list(connection.execute(sa.select(schema.alarms.c.key).where(schema.alarms.c.over_at.is_(None))).scalars())
