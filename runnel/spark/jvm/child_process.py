"""Start a process that cannot outlive this one.

Three safeguards: the child's standard input is a pipe that breaks when this process dies; on Linux the kernel kills the
child with its parent; and `end` closes the pipe, waits and kills. The child runs in its own session, so that Ctrl-C in
the terminal reaches only Python.
"""

import ctypes
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

Process = subprocess.Popen[bytes]
_PR_SET_PDEATHSIG = 1


def spawn(command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start `command` with a pipe as its input and its output appended to `log`."""
    started: Future[subprocess.Popen[bytes]] = Future()

    def start_and_wait() -> None:
        try:
            with log.open("ab") as out:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else dict(env),
                    start_new_session=True,
                    preexec_fn=_build_parent_death_hook(),
                )
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    # The kernel's parent-death signal is bound to the thread that started the child. So a thread that lives as long as
    # the child starts it: the end of a short-lived caller thread must not kill the child.
    threading.Thread(target=start_and_wait, name="runnel-keeper", daemon=True).start()
    return started.result()


def _build_parent_death_hook() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: afterwards only async-safe work is allowed

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return die_with_parent


def end(process: Process, timeout_seconds: float = 10) -> None:
    """End the process: close its input, wait, and kill it if it does not exit."""
    if process.stdin and not process.stdin.closed:
        with suppress(OSError):  # it has already ended
            process.stdin.close()
    try:
        process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
