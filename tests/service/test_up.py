"""`runnel up` with real processes: it answers at once, computes, survives what is killed, and stops in order."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.author import default_author
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.control import queue_entry, run_queue, schedules, workers
from runnel.model.run_request import RunRequest
from runnel.project import instance_file
from runnel.project.execution.local_handover import hand_over_run
from runnel.project.following.run_follower import RunFollower
from tests.cli import conftest as commands
from tests.servers.kafka import _free_ports
from tests.service.running_service import Up, below, tail, until

Cli = Callable[..., commands.Done]
cli = commands.cli
FLOW = """
import runnel as rn
import time
from pathlib import Path

rn.source("ods.orders", rn.files("data/*.csv", schema="id long, amount long"))

@rn.source("ods.slow", schema="id long")
def slow(state):
    while not (Path(__file__).parent.parent / "gate").exists():
        time.sleep(0.05)
    return [{"id": 1}], {"done": True}

rn.schedule("often", every="1 second", select="ods.orders")
rn.schedule("follow", on_change="ods.orders", select="ods.orders+")
"""


class Shop:
    """A project that is up, and its lake."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "up.txt"
        (root / "flows").mkdir()
        (root / "data").mkdir()
        (root / "runnel.toml").write_text('[project]\nname = "shop"\n')
        (root / "flows/flow.py").write_text(FLOW)
        self.put(1)
        self.lake: Lake = rn.open(root)
        self.remove_schedule()
        self.up = Up(root, self.log)

    def put(self, number: int) -> None:
        (self.root / f"data/{number}.csv").write_text(f"id,amount\n{number},1\n")

    def remove_schedule(self) -> None:
        """Let a schedule have been taken out of the flow files while nothing was up."""
        db, removed = self.lake.store.db, {"name": "removed", "every": "1 hour", "catch_up": "all"}
        schedules.declare(db, [removed])
        long_ago = format_time(datetime.now(UTC) - timedelta(hours=10))
        db.write(lambda connection: connection.execute(schema.schedules.update().values(seen_at=long_ago)))

    def causes(self) -> set[str]:
        return {one.cause for one in self.lake.store.db.read(lambda connection: run_queue.list_entries(connection))}

    def ids(self) -> list[int]:
        if "ods.orders" not in self.lake.tables():
            return []
        return sorted(row[0] for row in self.lake.query("select id from ods.orders", engine="duckdb").rows())

    def has(self, *ids: int) -> None:
        until(lambda: self.ids() == list(ids), 60, lambda: f"it has {self.ids()}\n{tail(self.log)}", 0.05)

    def ask(self, path: str) -> Any:
        found = instance_file.find_instance(self.root / ".runnel")
        assert found is not None
        token = instance_file.read_token(self.root / ".runnel")
        request = urllib.request.Request(f"{found.url}{path}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def child(self, kind: str) -> int:
        """Return the process of the worker or the service."""
        found = [pid for pid, _ in below(self.up.process.pid) if kind in _words(pid)]
        return found[0] if found else 0

    def there(self, kind: str = workers.WORKER) -> list[str]:
        return [one.id for one in self.lake.store.db.read(lambda connection: workers.list_alive(connection, kind))]

    def entry(self, name: str) -> queue_entry.QueueEntry:
        return self.lake.store.db.read(lambda connection: run_queue.find(connection, name))

    def begin(self, table: str, **options: Any) -> str:
        """Queue a run, and return its id when a worker is at it."""
        entry = queue_entry.QueueRequest(RunRequest((table,)), "ada", **options)
        run_queue.submit(self.lake.store.db, entry)
        until(lambda: self.entry(entry.id).state == "running", 60, lambda: f"nobody took it\n{tail(self.log)}")
        return entry.id

    def command(self, name: str, *words: str) -> "_Spoken":
        return _Spoken(self.root, self.root / name, words)

    def close(self) -> None:
        self.lake.close()
        self.up.__exit__()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


def test_it_answers_schedules_and_stops(shop: Shop, cli: Cli) -> None:
    shop.has(1)
    until(lambda: "is up at http" in shop.up.said(), 30, lambda: tail(shop.log))
    token = shop.root / ".runnel/token"
    assert str(token) in shop.up.said() and token.stat().st_mode & 0o777 == 0o600
    assert [one["table"] for one in shop.ask("/api/v1/tables")["items"]] == ["ods.orders"]
    shop.put(2)
    shop.has(1, 2)  # by the schedule, a second later
    until(
        lambda: any(one.detail.get("cause") == "schedule/follow" for one in shop.lake.runs()),
        30,
        lambda: "nobody followed",
    )
    assert shop.causes() == {"schedule/often", "schedule/follow"}, "one that was removed is not run"
    status = cli("status", "--json").json
    assert len(status["services"]) == len(status["workers"]) == 1
    assert cli("schedules", "pause", "often").code == 0
    until(
        lambda: not shop.lake.store.db.read(lambda c: run_queue.list_entries(c, states=queue_entry.OPEN_STATES)),
        30,
        lambda: "runs stay open",
    )
    shop.put(3)
    done = cli("run", "-s", "ods.orders", "--json").json
    assert (done["state"], shop.ids()) == ("succeeded", [1, 2, 3])
    ran = shop.lake.runs(done["run"])[0]
    assert (ran.detail["cause"], ran.author) == ("user", default_author())
    here = shop.lake.settings
    handed = hand_over_run(here, RunRequest(("ods.orders",)))
    assert handed is not None
    ended = RunFollower(handed, None, print).follow()
    assert ended.state == shop.lake.runs(handed.run)[0].state == "nothing"
    assert hand_over_run(replace(here, catalog="sqlite:///another.db"), RunRequest()) is None
    assert hand_over_run(here, RunRequest(branch="unknown")) is None  # who asks the catalog learns why
    found = instance_file.find_instance(shop.root / ".runnel")
    assert found is not None
    with rn.open(found.url, token=token.read_text().strip()) as afar:
        shop.put(4)
        assert (afar.run("ods.orders").state, shop.ids()) == ("succeeded", [1, 2, 3, 4])
        assert len(afar.status().presence.workers) == 1 and [one.is_paused for one in afar.schedules()] == [False, True]
    again = cli("up")
    assert (again.code, "UP_ALREADY" in again.err) == (1, True), again
    stopped = cli("down")
    assert (stopped.code, "the service has stopped" in stopped.out) == (0, True), stopped
    assert shop.up.process.wait(30) == 0
    assert hand_over_run(here, RunRequest()) is None
    assert shop.there() == [] and "no service of this project is running" in cli("down").out


def test_a_command_stops_its_run_by_ctrl_c_and_follows_it_when_the_service_is_gone(shop: Shop) -> None:
    shop.has(1)
    with _Command(shop, "first.txt") as first:
        first.process.send_signal(signal.SIGINT)
        until(lambda: "stopping the run" in first.said(), 30, first.said)
        assert first.entry().cancel_at is not None
        (shop.root / "gate").touch()
        code = first.process.wait(60)
    assert (code, first.entry().is_open) == (130 if first.entry().state == "cancelled" else 0, False), first.said()
    assert "sqlalchemy was imported" not in first.said()
    (shop.root / "gate").unlink()
    with _Command(shop, "second.txt") as second:
        os.kill(shop.child("service --watched"), signal.SIGKILL)
        (shop.root / "gate").touch()
        assert second.process.wait(60) == 0, second.said()
    assert second.entry().state in ("succeeded", "nothing")
    assert second.said().count("ods.slow: ingest") == 1, second.said()


def test_down_waits_for_what_is_under_way_or_interrupts_and_names_it(shop: Shop) -> None:
    shop.has(1)
    finished = shop.begin("ods.slow")
    with shop.command("down.txt", "down") as waiting:
        until(lambda: f"waiting for run {finished} (ods.slow), running since" in waiting.said(), 30, waiting.said)
        until(lambda: not shop.there(workers.SERVICE), 30, lambda: "the service goes on")
        assert shop.up.is_alive and waiting.process.poll() is None
        (shop.root / "gate").touch()
        assert waiting.process.wait(60) == 0, waiting.said()
    assert "the service has stopped" in waiting.said() and "interrupted" not in waiting.said()
    assert (shop.up.process.wait(30), shop.entry(finished).state) == (0, "succeeded")
    (shop.root / "gate").unlink()
    shop.up = Up(shop.root, shop.log)
    stopped = shop.begin("ods.slow", retries=0)
    with shop.command("now.txt", "down", "--now", "--json") as now:
        assert now.process.wait(60) == 0, now.said()
    told = json.loads(now.said().splitlines()[-1])
    assert [run["run"] for run in told["interrupted"] if run["cause"] == "user"] == [stopped], now.said()
    found = shop.entry(stopped)
    assert (found.state, "RUN_INTERRUPTED" in str(found.outcome)) == ("queued", True), "it does not count as an attempt"
    assert shop.up.process.wait(30) == 1


@pytest.mark.crash
def test_whoever_is_killed_comes_back_and_nothing_is_lost(shop: Shop) -> None:
    shop.has(1)
    for number, kind in enumerate(("worker --watched", "service --watched", "worker --watched"), 2):
        os.kill(shop.child(kind), signal.SIGKILL)
        shop.put(number)
        shop.has(*range(1, number + 1))
    assert shop.up.is_alive
    slots = [
        one.slot for one in shop.lake.store.db.read(lambda connection: run_queue.list_entries(connection)) if one.slot
    ]
    assert len(slots) == len(set(slots))
    until(lambda: not _lost(shop.lake), 60, lambda: f"runs stay open: {_lost(shop.lake)}")


@pytest.mark.crash
def test_a_killed_supervisor_takes_its_children_along(shop: Shop) -> None:
    shop.has(1)
    children = [shop.child("worker --watched"), shop.child("service --watched")]
    os.kill(shop.up.process.pid, signal.SIGKILL)
    shop.up.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 60, lambda: "they stay behind")
    shop.up = Up(shop.root, shop.log)
    shop.put(2)
    shop.has(1, 2)


@pytest.mark.crash
def test_a_worker_that_was_stopped_publishes_nothing_when_it_comes_back(shop: Shop) -> None:
    shop.has(1)
    worker = shop.child("worker --watched")
    entry = run_queue.submit(shop.lake.store.db, queue_entry.QueueRequest(RunRequest(("ods.slow",)), "ada"))
    assert entry is not None
    find = lambda: shop.lake.store.db.read(lambda connection: run_queue.find(connection, entry))  # noqa: E731
    until(lambda: find().state == "running", 30, lambda: "nobody took it")
    os.kill(worker, signal.SIGSTOP)
    (shop.root / "gate").touch()
    try:
        until(lambda: find().attempt > 1, 90, lambda: f"nobody else took it: {find()}\n{tail(shop.log)}")
    finally:
        _continue(worker)
    until(lambda: not find().is_open, 60, lambda: f"it stays open: {find()}")
    assert find().state == "succeeded"
    commits = [one for one in shop.lake.log() if one.run and one.run.startswith(entry)]
    assert [one.run for one in commits] == [find().run]


def test_up_at_a_port_writes_its_logs(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/flow.py").write_text('import runnel as rn\nrn.source("ods.orders", rn.manual())\n')
    other, port = _free_ports(2)
    with Up(tmp_path, tmp_path / "up.txt", None, "--port", str(port), port=other) as up:
        until(lambda: f"shop is up at http://127.0.0.1:{port}" in up.said(), 60, up.said)
        until(lambda: f"at http://127.0.0.1:{port}" in cli("status").out.splitlines()[0], 30, up.said)
        logs = [tmp_path / ".runnel/logs" / name for name in ("up.log", "service.log", "worker.log")]
        until(lambda: all(log.is_file() for log in logs), 60, up.said)
        starts = [json.loads(log.read_text().splitlines()[0])["what"] for log in logs]
        assert [start.split(": ")[1] for start in starts] == ["up", "service", "worker"]
        assert up.stop() == 0, up.said()
    assert cli("status").out.startswith("down since 2")


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("RUNNEL__SERVICE__PORT", str(taken.getsockname()[1]))
        (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
        done = cli("up")
    assert (done.code, "SERVICE_PORT" in done.err, "`runnel up --port 8471`" in done.err) == (2, True, True), done


class _Spoken:
    """A command in a process of its own, and what it says."""

    def __init__(self, root: Path, log: Path, words: tuple[str, ...]) -> None:
        self._log = log
        with log.open("w") as file:
            code = "from runnel.cli.main import main; main()"
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "-C", str(root), *words], stdout=file, stderr=file
            )

    def __enter__(self) -> "_Spoken":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()


class _Command:
    """`runnel run` of what takes long, from when it says that it has begun."""

    def __init__(self, shop: Shop, name: str) -> None:
        self._shop, self._log = shop, shop.root / name
        before = [one.id for one in self._entries()]
        told = "'sqlalchemy was imported' if 'sqlalchemy' in sys.modules else ''"
        code = f"import atexit, signal, sys; atexit.register(lambda: print({told}))"
        code += (
            "; signal.signal(signal.SIGINT, signal.default_int_handler)"  # ignored where tests run in the background
        )
        code += "; from runnel.cli.main import main; main()"
        words = [sys.executable, "-c", code, "-C", str(shop.root), "run", "-s", "ods.slow"]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        until(lambda: "ods.slow: ingest" in self.said(), 30, self.said)
        self._entry = next(one.id for one in self._entries() if one.id not in before)

    def __enter__(self) -> "_Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()

    def entry(self) -> queue_entry.QueueEntry:
        return next(one for one in self._entries() if one.id == self._entry)

    def _entries(self) -> list[queue_entry.QueueEntry]:
        found = self._shop.lake.store.db.read(lambda connection: run_queue.list_entries(connection))
        return [one for one in found if one.cause == "user"]


def _lost(lake: Lake) -> list[str]:
    """Return runs that say that they are running, although no entry of the queue is."""
    open_ = {
        one.run
        for one in lake.store.db.read(
            lambda connection: run_queue.list_entries(connection, states=queue_entry.OPEN_STATES)
        )
    }
    return [one.id for one in lake.runs() if one.state == "running" and one.id not in open_]


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except FileNotFoundError:
        return ""


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
