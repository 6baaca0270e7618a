"""Start a process that cannot outlive this one.

Three lines of defence: the child's standard input is a pipe of ours, which breaks when we die; on Linux the kernel
kills the child with us; and `end` closes, waits and kills. The child leads a session of its own, so that Ctrl-C in the
terminal reaches Python alone and Python decides.
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

    def keep() -> None:
        try:
            with log.open("ab") as out:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else dict(env),
                    start_new_session=True,
                    preexec_fn=_tie(),
                )
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    # The kernel's "die with your parent" means the parent's thread. A thread that lives as long as the child keeps a
    # caller's short-lived thread from taking the child with it.
    threading.Thread(target=keep, name="runnel-keeper", daemon=True).start()
    return started.result()


def _tie() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: afterwards only async-safe work is allowed

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return tie


def end(process: Process, patience_seconds: float = 10) -> None:
    """End the process: break its input, wait, and kill it if it does not go by itself."""
    if process.stdin and not process.stdin.closed:
        with suppress(OSError):  # it is gone already, which is what was wanted
            process.stdin.close()
    try:
        process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
