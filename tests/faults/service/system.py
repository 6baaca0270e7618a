"""Keep `runnel up` going as systemd does: whenever it ends, it is started again."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from tests.stream.crash import Up, below, gone

_AGAIN_SECONDS = 0.5


class System:
    """What keeps one project up. `fail` arms failpoints in the next start only."""

    def __init__(self, root: Path, log: Path, port: int, *words: str) -> None:
        self.root, self.log = root, log
        self.fail: str | None = None
        self._port, self._words = port, words
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._groups: list[int] = []
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
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._up.process.wait(20)
        gone([one for group in self._groups for one in below(group)])

    def _started(self) -> Up:
        up = Up(self.root, self.log, self.fail, *self._words, port=self._port)
        self.fail = None
        self._groups.append(up.process.pid)
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
