"""Keep `runnel up` going as systemd does: whenever it ends, it is started again."""

import os
import signal
import threading
import uuid
from contextlib import suppress
from pathlib import Path

from tests.service.running_service import Up, below, until

_AGAIN_SECONDS = 0.5
_MARK = "RUNNEL_TRIAL"  # what the environment of all that is started here has


class System:
    """What keeps one project up. `fail` arms failpoints in the next start only."""

    def __init__(self, root: Path, log: Path, port: int, *words: str) -> None:
        self.root, self.log = root, log
        self.fail: str | None = None
        self._port, self._words = port, words
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._mark = uuid.uuid4().hex
        self._up = self._started()
        self._thread = threading.Thread(target=self._tend, name="system", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Return the process of the supervisor."""
        return self._up.process.pid

    def child(self, kind: str) -> int | None:
        """Return the process of a kind: service, worker or java; None where there is none now.

        It is the oldest of its name: what a process has just forked has its name until it is something else.
        """
        with self._guard:
            found = [(int(began), pid) for pid, began in below(self.pid) if kind in words(pid)]
        return min(found)[1] if found else None

    def signal(self, kind: str, number: int = signal.SIGKILL) -> int | None:
        """Send a signal to the supervisor, or a process of a kind below it; return which got it."""
        pid = self.pid if kind == "supervisor" else self.child(kind)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def kill_all(self) -> None:
        """Kill everything at once, as a power cut does, and see that nothing stays behind."""
        with self._guard:
            self._up.kill()

    def end(self) -> int:
        """Press Ctrl-C, see that nothing stays behind, and return the exit code."""
        self._stop.set()
        self._thread.join()
        return self._up.stop()

    def close(self) -> None:
        """Kill whatever is left."""
        self._stop.set()
        self._thread.join()
        for pid in self._marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._up.process.wait(20)
        until(lambda: not self._marked(), 20, lambda: f"processes stay behind: {self._marked()}")

    def _marked(self) -> list[int]:
        """Return all processes that were ever started here and live: a number alone may be somebody else's by now."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{_MARK}={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def _started(self) -> Up:
        marked = {_MARK: self._mark}
        up = Up(self.root, self.log, self.fail, *self._words, port=self._port, marks=marked)
        self.fail = None
        return up

    def _tend(self) -> None:
        while not self._stop.wait(_AGAIN_SECONDS):
            with self._guard:
                if not self._up.is_alive:
                    self._up = self._started()


def words(pid: int) -> str:
    """Return the command of a process, with what it is called; nothing where it has ended."""
    try:
        found = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "java" if "java" in found.partition(" ")[0] else found
