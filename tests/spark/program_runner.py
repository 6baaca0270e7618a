"""Run the program of `child.py` and wait for what it does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def interruptible(line, **options):
    """Start a program that Ctrl-C reaches, also where the tests run in the background and ignore it themselves."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        line, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **pipes, **options
    )


def child(mode, folder, **env):
    """Start the program; its output is for the caller to read."""
    line = [sys.executable, "-m", "tests.spark.spark_program", mode, str(folder)]
    return interruptible(line, env={**os.environ, **env})


def outcome(mode, folder, **env):
    """Run the program to its end and return its code, output and errors."""
    running = child(mode, folder, **env)
    out, err = running.communicate(timeout=120)
    return running.returncode, out.strip(), err


def line_from(child, word):
    """Return the rest of the next line that starts with `word`."""
    for line in child.stdout:
        if line.startswith(f"{word} "):
            return line.split(" ", 1)[1].strip()
    raise AssertionError(f"ended without saying {word}: {child.stderr.read() if child.stderr else ''}")


def gone(pid, within_seconds=30):
    """Wait until the process has ended, and tell whether it has; a dead one that nobody collected counts."""
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False
