"""A project that `runnel up` keeps going while events come at a steady pace and things break, and what must be so then.

An event is known by its number, so that how many were sent says what all tables must have in the end.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import runnel as rn
from runnel.lake.upkeep.fsck.fsck import fsck
from tests.run.project import HEAD
from tests.servers.kafka import Server, _free_ports

if TYPE_CHECKING:
    from runnel.client.lake import Lake

RATE = 1000  # events in a second
PARTITIONS, KEYS = 2, 97
SOURCE = """
import runnel as rn

rn.source("ods.events", rn.kafka("{topic}", servers="{servers}", schema="id long, key string, amount long"),
          poll="continuous")
"""
TASKS = (
    HEAD
    + """
@rn.task("dwd.kept", stream="events")
def kept(events):
    return events.selectExpr("id", "key", "amount", "2 * amount AS twice")

@rn.task("dws.counted", stream="events", output="update", key="key")
def counted(events):
    return events.groupBy("key").agg(F.count("id").alias("n"), F.sum("amount").alias("total"))

@rn.task("ads.totals")
def totals(kept):
    return kept.groupBy("key").agg(F.count("id").alias("n"), F.sum("amount").alias("total"))

rn.schedule("totals", on_change="dwd.kept", at_most_every="4 seconds", select="ads.totals")
"""
)
SUMMED = "select count(*), count(distinct id), sum(amount), max(id) from {table}"
COUNTED = "select key, n, total from {table} order by key"
OF_SOURCE = {"ods.events": SUMMED}
OF_ALL = {"ods.events": SUMMED, "dwd.kept": SUMMED, "dws.counted": COUNTED, "ads.totals": COUNTED}
Rows = list[tuple[Any, ...]]


class Shop:
    """A project over a topic of its own. `questions` are what is asked of which table."""

    def __init__(self, root: Path, server: Server, settings: str = "") -> None:
        self.root = root
        self.server = server
        self.topic = server.topic(f"crash-{uuid.uuid4().hex[:8]}", PARTITIONS)
        self.questions = OF_SOURCE
        (root / "flows").mkdir(parents=True, exist_ok=True)
        (root / "runnel.toml").write_text(f'[project]\nname = "shop"\n\n[spark]\nmaster = "local[2]"\n{settings}')
        (root / "flows/source.py").write_text(SOURCE.format(topic=self.topic, servers=server.servers))

    def add_tasks(self) -> None:
        """Let there be streams, and a batch task that follows one."""
        (self.root / "flows/tasks.py").write_text(TASKS)
        self.questions = OF_ALL

    @cached_property
    def lake(self) -> "Lake":
        """Return the lake, as somebody who looks on holds it."""
        return rn.open(self.root)

    def close(self) -> None:
        """Close the lake."""
        self.lake.close()

    def found(self) -> dict[str, Rows]:
        """Return what tables answer; those that are not there answer nothing."""
        there = self.lake.tables()
        asked = {table: text.format(table=table) for table, text in self.questions.items() if table in there}
        return {table: self.lake.query(text, engine="duckdb").rows() for table, text in asked.items()}

    def wanted(self, sent: int) -> dict[str, Rows]:
        """Return what they answer when they have the first events, each once."""
        counts, totals = dict.fromkeys(range(KEYS), 0), dict.fromkeys(range(KEYS), 0)
        for number in range(sent):
            counts[number % KEYS] += 1
            totals[number % KEYS] += amount(number)
        summed: Rows = [(sent, sent, sum(totals.values()), sent - 1)]
        counted: Rows = sorted((key(number), counts[number], totals[number]) for number in counts if counts[number])
        return {table: summed if text == SUMMED else counted for table, text in self.questions.items()}

    def settle(self, sent: int, log: Path, seconds: float = 180) -> None:
        """Wait until all tables have what was sent, each event once, and check the lake."""
        wanted, found = self.wanted(sent), dict[str, Rows]()

        def is_there() -> bool:
            nonlocal found
            found = self.found()
            for table in [table for table, text in self.questions.items() if text == SUMMED and table in found]:
                assert found[table][0][0] <= sent, f"{table} has more than what was sent: {found[table]}"
            return found == wanted

        try:
            until(is_there, seconds, lambda: "what was sent is not what is there")
        except AssertionError as error:
            told = [f"{table}: {found.get(table, [])[:3]} and not {wanted[table][:3]}" for table in wanted]
            raise AssertionError("\n".join([f"{error}; {sent} were sent", *told, tail(log)])) from None
        self.check()

    def check(self) -> None:
        """See that the lake is sound."""
        errors = [finding for finding in fsck(self.lake.store).findings if finding.severity == "error"]
        assert not errors, errors

    def rows(self, table: str) -> int:
        """Return how many rows a table has, 0 where it is not there."""
        if table not in self.lake.tables():
            return 0
        return int(self.lake.query(f"select count(*) from {table}", engine="duckdb").rows()[0][0])

    def advance(self, table: str, when: str, seconds: float = 120) -> None:
        """Wait until rows come to a table."""
        before = self.rows(table)
        until(lambda: self.rows(table) > before, seconds, lambda: f"no rows come to {table} {when}")


class Sender:
    """Sends events at a steady pace until told to stop. Its producer never writes one twice, nor drops one."""

    def __init__(self, shop: Shop, rate: int = RATE) -> None:
        from confluent_kafka import Producer

        self.sent = 0
        self._topic, self._rate = shop.topic, rate
        self._failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": shop.server.servers,
                "log_level": 0,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, name="sender", daemon=True)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def end(self) -> int:
        """Stop, wait until Kafka has everything, and return how many events it has."""
        self.__exit__()
        left = self._producer.flush(120)
        assert not left and not self._failed, f"Kafka lacks {left} events: {self._failed[:1]}"
        return self.sent

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.02):
            due = int((time.monotonic() - began) * self._rate)
            for number in range(self.sent, due):
                self._producer.produce(
                    self._topic, event(number), partition=number % PARTITIONS, on_delivery=self._note
                )
            self.sent = max(due, self.sent)
            self._producer.poll(0)

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))


def event(number: int) -> str:
    return f'{{"id": {number}, "key": "{key(number)}", "amount": {amount(number)}}}'


def key(number: int) -> str:
    return f"k{number % KEYS:02d}"


def amount(number: int) -> int:
    return number * 7919 % 1009


class Up:
    """`runnel up`, or another command that goes on, in a process of its own; `fail` arms failpoints in it."""

    def __init__(
        self,
        root: Path,
        log: Path,
        fail: str | None = None,
        *words: str,
        command: str = "up",
        port: int | None = None,
        marks: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.said_before = log.stat().st_size if log.exists() else 0
        environment = {name: value for name, value in os.environ.items() if name != "RUNNEL_FAIL"}
        environment |= {"RUNNEL_FAIL": fail} if fail else {}
        environment |= marks or {}
        self.port = port or _free_ports(1)[0]
        environment["RUNNEL__SERVICE__PORT"] = str(self.port)
        started = [sys.executable, "-c", "from runnel.cli.main import main; main()", "-C", str(root), command, *words]
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                started, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )

    def __enter__(self) -> "Up":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        """Return what this one said so far."""
        return self.log.read_bytes()[self.said_before :].decode()

    def kill(self) -> None:
        """Kill it and its group, and see that nothing that it started stays behind: its Java goes with it."""
        started = below(self.process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        gone(started)

    def kill_spark(self) -> None:
        """Kill only Spark's process, as a system does that has no memory left."""
        for pid, _ in below(self.process.pid):
            with suppress(ProcessLookupError, FileNotFoundError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                    os.kill(pid, signal.SIGKILL)

    def spark_is_hindered(self) -> bool:
        """Kill Spark's process if it is there, and tell whether it was said that it could not start."""
        self.kill_spark()
        return "Spark did not start; the worker tries again" in self.said()

    def died(self, seconds: float) -> None:
        """Wait until it has killed itself, at a failpoint, and see that nothing stays behind."""
        started, deadline = below(self.process.pid), time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it was not killed:\n{tail(self.log)}"
            time.sleep(0.1)
            started = below(self.process.pid) or started
        assert self.process.returncode == -signal.SIGKILL, f"{self.process.returncode}:\n{tail(self.log)}"
        gone(started)

    def stop(self, seconds: float = 90) -> int:
        """Press Ctrl-C, and return the exit code."""
        started = below(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(seconds)
        gone(started)
        return code


def keep(root: str) -> None:
    """Do what `runnel up` does for a project without streams, with more upkeep than usual, until killed."""
    from runnel.project.planning.plan_project import load_project_flow
    from runnel.service.worker.loops import compaction_loop
    from runnel.service.worker.loops.loop_supervisor import LoopSupervisor

    compaction_loop.PAUSE_SECONDS, compaction_loop.MOST_FILES = 0.3, 5
    with rn.open(root) as lake:
        LoopSupervisor(lake, load_project_flow(lake), "main", lambda _: None).run()


def until(is_so: Callable[[], bool], seconds: float, what: Callable[[], str], pause: float = 0.2) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what()}, after {seconds:.0f} s"
        time.sleep(pause)


def tail(log: Path, most: int = 3000) -> str:
    return log.read_text(errors="replace")[-most:] if log.exists() else ""


def below(pid: int) -> list[tuple[int, str]]:
    """Return the processes that one has started, and those that they have, each with when it was started."""
    found, left = list[tuple[int, str]](), [pid]
    parents = _parents()
    while left:
        parent = left.pop()
        more = [(child, began) for child, (above, began) in parents.items() if above == parent]
        found += more
        left += [child for child, _ in more]
    return found


def gone(started: Sequence[tuple[int, str]], seconds: float = 20) -> None:
    """Wait until processes have ended."""

    def left() -> list[int]:
        there = _parents()
        return [pid for pid, began in started if there.get(pid, (0, ""))[1] == began]

    until(lambda: not left(), seconds, lambda: f"processes stay behind: {left()}", 0.05)


def _parents() -> dict[int, tuple[int, str]]:
    """Return the parent of each process that has not ended, and when it was started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
            if state not in "ZX":
                found[int(folder.name)] = (int(parent), rest[17])
    return found
