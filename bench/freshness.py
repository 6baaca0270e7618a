"""How long it takes until an event is seen: something is asked on and on for the newest event of each partition.

An event is seen at the end of the first answer that has it or a later one of its partition: they come in order.
"""

import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Look = Callable[[], Sequence[int | None] | None]
"""Returns the highest number that is there in each partition; None where nothing is."""

_PAUSE_SECONDS = 0.02


class Watcher:
    """Looks on and on in a thread of its own, and remembers when each partition had come how far."""

    def __init__(self, look: Look, partitions: int) -> None:
        self.asked: list[float] = []  # how long each answer took
        self._look = look
        self._moments: list[list[float]] = [[] for _ in range(partitions)]
        self._highest: list[list[int]] = [[] for _ in range(partitions)]
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, event: int, seconds: float) -> None:
        """Wait until an event is seen, and all of its number before it in other partitions."""
        until = time.monotonic() + seconds
        count = len(self._highest)
        wanted = [event - (event - partition) % count for partition in range(count)]
        while not all(found and found[-1] >= one for found, one in zip(self._highest, wanted, strict=True)):
            if self._error is not None:
                raise self._error
            if time.monotonic() > until:
                raise RuntimeError(f"event {event} was not seen in {seconds:.0f} seconds: {self._newest()}")
            time.sleep(0.05)

    def ages(self, sent: Iterable[tuple[int, float]]) -> list[float]:
        """Return how long it took until each of these events was seen, shortest first."""
        found, count = [], len(self._highest)
        for event, at in sent:
            moments, highest = self._moments[event % count], self._highest[event % count]
            found.append(moments[bisect_left(highest, event)] - at)
        return sorted(found)

    def _newest(self) -> list[int | None]:
        return [found[-1] if found else None for found in self._highest]

    def _watch(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_SECONDS):
                started = time.time()
                seen, now = self._look(), time.time()
                self.asked.append(now - started)
                for partition, event in enumerate(seen or ()):
                    highest = self._highest[partition]
                    if event is not None and (not highest or event > highest[-1]):
                        highest.append(event)
                        self._moments[partition].append(now)
        except BaseException as error:
            self._error = error


def part(ages: Sequence[float], share: float) -> float:
    """Return the age that this share of them does not exceed.

    >>> part([1.0, 2.0, 3.0, 4.0], 0.5), part([1.0, 2.0], 0.99)
    (2.0, 2.0)
    """
    return ages[min(max(-int(-share * len(ages) // 1) - 1, 0), len(ages) - 1)]


@contextmanager
def up(project: Path) -> Iterator[None]:
    """Keep a project going by `runnel up`, a process of its own."""
    log = project / "up.log"
    with log.open("wb") as told:
        command = [str(Path(sys.executable).parent / "runnel"), "-C", str(project), "up"]
        process = subprocess.Popen(command, stdout=told, stderr=told)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
    if code:
        raise RuntimeError(f"`runnel up` ended with {code}:\n{log.read_text()[-3000:]}")
