"""Find the class-data-sharing (CDS) archive for a JVM: Spark's classes, parsed beforehand and mapped at start.

This module finds the archive that fits a command, and starts a separate process that builds a missing one. An archive's
name depends on the Java and the jars it was built from, so that a change of either leads to a new one. Without an
archive everything works, but starts more slowly: no failure here ever fails a start.
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
from runnel.spark.jvm.command_line import JvmCommand
from runnel.spark.jvm.java_home import Java

ARCHIVE_BYTES = 250_000_000
_RETRY_SECONDS = 24 * 3600
_MAX_ARCHIVES = 2


def is_enabled() -> bool:
    """Return whether archives are enabled: `RUNNEL_CDS=off` disables them."""
    return os.environ.get("RUNNEL_CDS", "on").lower() != "off"


def archive_path(java: Java, class_path: Sequence[Path]) -> Path:
    """Return where the archive for this Java and these jars is, or would be."""
    key = hashlib.sha256(f"{java.executable}\n{java.version}\n".encode())
    for jar in class_path:
        jar_stat = jar.stat()
        key.update(f"{jar}\n{jar_stat.st_size}\n{jar_stat.st_mtime_ns}\n".encode())
    return cache_dir.ensure_folder("archives") / f"{key.hexdigest()[:20]}.jsa"


def find_archive(command: JvmCommand) -> Path | None:
    """Return the archive that fits the command, if there is one."""
    if not _can_use_archive(command):
        return None
    with suppress(OSError, RunnelError):
        path = archive_path(command.java, command.class_path)
        if path.is_file():
            os.utime(path)  # `prune` removes the least recently used archives
            return path
    return None


def discard(path: Path) -> None:
    """Remove an archive with which Java did not start."""
    path.unlink(missing_ok=True)


def build_in_background(command: JvmCommand) -> None:
    """Start a detached low-priority process that builds a missing archive and outlives this process."""
    with suppress(OSError, RunnelError):
        if os.environ.get("RUNNEL_CDS", "on").lower() == "ready":
            return  # use an existing archive, but build none: tests must leave no process behind
        if not _can_use_archive(command) or is_building() or _has_failed_recently(command):
            return
        if archive_path(command.java, command.class_path).exists():
            return
        with (cache_dir.ensure_folder("logs") / "archive.log").open("wb") as log:
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
        builder.returncode = 0  # nobody waits for it; otherwise Python warns when the object is collected


def is_building() -> bool:
    """Return whether a process is building an archive now."""
    with cache_dir.lock_file(cache_dir.ensure_folder("archives") / ".lock", wait=False) as free:
        return not free


def read_failure(path: Path) -> str | None:
    """Return why building the archive failed, or None if it did not fail."""
    try:
        return path.with_suffix(".failed").read_text()
    except FileNotFoundError:
        return None


def prune(latest: Path) -> None:
    """Remove the least recently used archives, and the failure note of the latest one."""
    others = sorted(
        (path for path in latest.parent.glob("*.jsa") if path != latest), key=lambda path: -path.stat().st_mtime
    )
    for old in [*others[_MAX_ARCHIVES - 1 :], latest.with_suffix(".failed")]:
        old.unlink(missing_ok=True)


def _can_use_archive(command: JvmCommand) -> bool:
    # Java can archive classes from jars only, not from folders.
    return is_enabled() and all(entry.suffix == ".jar" and entry.is_file() for entry in command.class_path)


def _has_failed_recently(command: JvmCommand) -> bool:
    note = archive_path(command.java, command.class_path).with_suffix(".failed")
    return note.exists() and time.time() - note.stat().st_mtime < _RETRY_SECONDS
