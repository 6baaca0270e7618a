"""Kill executors, workers of the cluster and drivers at random moments; compare with a project in one process.

python -m tests.cluster.kills ROUNDS SEED

In each round the inputs of a shop change. A driver of the project on the cluster works on them while something is
killed; it is started again until it has ended well. Then rows, positions, bad rows and deliveries of both projects must
be equal: nothing is lost, and nothing is there twice.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.cluster.driver import do_steps
from tests.cluster.look import describe_project
from tests.cluster.shop import Shop
from tests.servers.kafka import Server as Kafka
from tests.servers.postgres import Server as Postgres
from tests.servers.spark_cluster import Cluster

KINDS = ("executor", "worker", "driver")
_FIRST_SECONDS = 25.0  # how long a driver takes, before the first one has ended
_MOST_KILLS = 3  # in a round; the driver after them may end


class Trial:
    """Two projects with the same inputs: one in this process, the other on a cluster whose parts are killed."""

    def __init__(self, folder: Path, cluster: Cluster, shop: Shop, chance: random.Random) -> None:
        self._cluster, self._shop, self._chance = cluster, shop, chance
        self._here, self._there = folder / "here", folder / "there"
        self._log = folder / "drivers.log"
        self._seconds = _FIRST_SECONDS
        self.kills: Counter[str] = Counter()
        shop.create_project(self._here, "local[2]", "process")
        shop.create_project(self._there, cluster.url, "executors")

    def play_round(self, number: int) -> None:
        """Let the inputs change, do the same in both projects, and compare them."""
        self._shop.change()
        steps = ["run", *(["compact"] if number % 3 == 2 else []), *([f"erase:{number}"] if number % 4 == 3 else [])]
        do_steps(self._here, steps)
        kind = KINDS[number % len(KINDS)]
        self._drive_until_done(steps, kind)
        expected, actual = (describe_project(root, self._shop) for root in (self._here, self._there))
        differing = [name for name in expected if expected[name] != actual.get(name)]
        for name in differing:
            sys.stderr.write(
                f"{name}\n  here:  {str(expected[name])[:2000]}\n  there: {str(actual.get(name))[:2000]}\n"
            )
        if differing or expected.keys() != actual.keys():
            raise SystemExit(f"round {number}, {kind} killed: {', '.join(differing)} differ; see {self._log}")

    def _drive_until_done(self, steps: list[str], kind: str) -> None:
        for attempt in range(_MOST_KILLS + 1):
            started = time.monotonic()
            driver = self._start_driver(steps)
            killer = threading.Timer(self._chance.uniform(0.1, 0.8) * self._seconds, self._kill, [kind, driver])
            if attempt < _MOST_KILLS:
                killer.start()
            code = driver.wait()
            if killer.is_alive():
                killer.cancel()
                killer.join()
            self._cluster.wait_for_workers(2)
            if code == 0:
                self._seconds = time.monotonic() - started
                return
            if code != -signal.SIGKILL:
                raise SystemExit(
                    f"a driver ended with {code} after {kind} was killed:\n{self._log.read_text()[-6000:]}"
                )
        raise SystemExit(f"a driver that was not killed ended by SIGKILL:\n{self._log.read_text()[-6000:]}")

    def _start_driver(self, steps: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.cluster.driver", str(self._there), *steps]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _kill(self, kind: str, driver: subprocess.Popen[bytes]) -> None:
        is_killed = True
        if kind == "executor":
            is_killed = self._cluster.kill_executor()
        elif kind == "worker":
            number = self._chance.randrange(2)
            self._cluster.kill_worker(number)
            self._cluster.start_worker(number)
        else:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
        self.kills[kind] += is_killed


def main(rounds: int, seed: int) -> None:
    """Play some rounds; the same seed has the same inputs and nearly the same moments."""
    chance = random.Random(seed)
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-kills-")))
        folder.chmod(0o755)
        cluster = stack.enter_context(Cluster())
        os.environ["CLUSTER_SECRET"] = cluster.secret
        database = stack.enter_context(Postgres())
        shop = Shop(folder, database.url, stack.enter_context(Kafka()), chance)
        trial = Trial(folder, cluster, shop, chance)
        for number in range(rounds):
            trial.play_round(number)
            sys.stdout.write(f"round {number + 1} of {rounds}: equal, {dict(trial.kills)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{rounds} rounds, seed {seed}, {time.monotonic() - started:.0f} s: {dict(trial.kills)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
