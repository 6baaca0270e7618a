"""The class-data-sharing archive: Spark's classes, parsed beforehand, mapped into memory at start.

This module finds the archive that fits a command and has a missing one made by a process of its own. An archive is
named after the Java and the jars it was made from, so that a change of either asks for a new one. Without an archive
everything works, only slower: nothing here ever fails a start.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runnel.errors import RunnelError
from runnel.spark.jvm import cache_dir
from runnel.spark.jvm.command_line import Command
from runnel.spark.jvm.java_home import Java

SIZE_BYTES = 250_000_000
_RETRY_SECONDS = 24 * 3600
_KEPT = 2


def is_wanted() -> bool:
    """Tell whether archives are in use: `RUNNEL_CDS=off` turns them off."""
    return os.environ.get("RUNNEL_CDS", "on").lower() != "off"


def archive_path(java: Java, class_path: Sequence[Path]) -> Path:
    """Return where the archive for this Java and these jars is, or would be."""
    key = hashlib.sha256(f"{java.executable}\n{java.version}\n".encode())
    for jar in class_path:
        known = jar.stat()
        key.update(f"{jar}\n{known.st_size}\n{known.st_mtime_ns}\n".encode())
    return cache_dir.folder("archives") / f"{key.hexdigest()[:20]}.jsa"


def fitting(command: Command) -> Path | None:
    """Return the archive that fits the command, if there is one."""
    if not _can_have(command):
        return None
    with suppress(OSError, RunnelError):
        path = archive_path(command.java, command.class_path)
        if path.is_file():
            os.utime(path)  # the least recently used ones are removed
            return path
    return None


def discard(path: Path) -> None:
    """Remove an archive with which Java did not start."""
    path.unlink(missing_ok=True)


def build_in_background(command: Command) -> None:
    """Have a missing archive made by a detached process of low priority, which outlives this one."""
    with suppress(OSError, RunnelError):
        if os.environ.get("RUNNEL_CDS", "on").lower() == "ready":
            return  # use one that is there, make none: for tests, which leave no process behind
        if not _can_have(command) or is_building() or _failed_lately(command):
            return
        if archive_path(command.java, command.class_path).exists():
            return
        with (cache_dir.folder("logs") / "archive.log").open("wb") as log:
            builder = subprocess.Popen(
                [sys.executable, "-m", "runnel.spark.cds_archive_builder", "--background"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        if builder.stdin:
            builder.stdin.write(json.dumps([str(jar) for jar in command.class_path]).encode())
            builder.stdin.close()
        builder.returncode = 0  # nobody waits for it; without this Python warns when it forgets the process


def is_building() -> bool:
    """Tell whether some process is making an archive now."""
    with cache_dir.locked(cache_dir.folder("archives") / ".lock", wait=False) as free:
        return not free


def failure(path: Path) -> str | None:
    """Return why the archive could not be made, if that was tried and failed."""
    try:
        return path.with_suffix(".failed").read_text()
    except FileNotFoundError:
        return None


def prune(latest: Path) -> None:
    """Remove archives that were not used for longest, and the notes of failures that no longer matter."""
    others = sorted(
        (path for path in latest.parent.glob("*.jsa") if path != latest), key=lambda path: -path.stat().st_mtime
    )
    for old in [*others[_KEPT - 1 :], latest.with_suffix(".failed")]:
        old.unlink(missing_ok=True)


def _can_have(command: Command) -> bool:
    # Java makes archives of jars only, not of folders with classes.
    return is_wanted() and all(entry.suffix == ".jar" and entry.is_file() for entry in command.class_path)


def _failed_lately(command: Command) -> bool:
    note = archive_path(command.java, command.class_path).with_suffix(".failed")
    return note.exists() and time.time() - note.stat().st_mtime < _RETRY_SECONDS
