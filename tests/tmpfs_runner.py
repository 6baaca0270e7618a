"""Run a command with a folder for temporary files in memory, where the system has room for them; then remove it.

    python -m tests.tmpfs_runner python -m pytest tests

Tests make thousands of lakes, whose small files are all synced. What was left by a run that was killed goes with the
next one.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
LEAST_BYTES = 10 << 30
_PREFIX = "runnel-tests-"


def main(words: list[str]) -> int:
    """Return the exit code of the command."""
    parent = chosen()
    if parent is None:
        return subprocess.call(words)
    sweep(parent)
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)
    Path(folder).chmod(0o755)  # a database server of another user goes through it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return subprocess.call(words, env={**os.environ, "TMPDIR": folder})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chosen() -> Path | None:
    """Return where there is room in memory, or None: then the system's own folder is taken."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return MEMORY if min(memory, shutil.disk_usage(MEMORY).free) >= LEAST_BYTES else None


def sweep(parent: Path) -> None:
    """Remove what runs left that are no more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        number = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{number}").exists():
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
