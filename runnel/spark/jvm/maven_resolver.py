"""Fetch jars with the Maven resolver inside Spark, in a JVM of its own that ends afterwards.

It is Spark's `--packages`: mirrors and other settings (`spark.jars.ivySettings`, `spark.jars.repositories` in
spark-defaults.conf, `DEFAULT_ARTIFACT_REPOSITORY`, a local Maven cache) count as they do for any Spark program, and no
repository is named here. What it fetched is not checked here.
"""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runnel.errors import RunnelError
from runnel.spark.jvm import cache_dir, child_process, network_options
from runnel.spark.jvm.command_line import spark_home
from runnel.spark.jvm.java_home import Java

_UNUSED = "org.checkerframework:checker-qual"  # annotations that the PostgreSQL driver was compiled with
_STALLED_SECONDS = 90
_TELLING = re.compile(r"Host .* not found|PKIX|refused|timed? ?out|Server access|unreachable|proxy|UnknownHost")


@dataclass(frozen=True)
class Outcome:
    """The folder with whatever was fetched, named `group_name-version.jar`, and why the rest was not."""

    folder: Path
    log: Path
    reason: str


def resolve(java: Java, coordinates: Sequence[str], staging: Path, unused: Sequence[str] = ()) -> Outcome:
    """Fetch the jars into a folder below `staging`; some or all may be absent from it afterwards.

    What they depend on comes too, but for what is `unused`, each `group:name`.
    """
    log = cache_dir.folder("logs") / "jars.log"
    log.unlink(missing_ok=True)
    running = child_process.spawn(
        _command(java, coordinates, staging, (_UNUSED, *unused)), log=log, env=_environment(staging)
    )
    reason = ""
    try:
        # The program that `--packages` feeds is the Python gateway, which ends at once: its input is closed already.
        if running.stdin:
            running.stdin.close()
        if not _wait(running, staging):
            reason = f"nothing arrived for {_STALLED_SECONDS} seconds"
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    text = log.read_text(errors="replace")
    if "No space left on device" in text:
        raise RunnelError("SPARK_DISK", f"no space left on the disk of {staging.parent}", fix="free some space")
    return Outcome(staging / "ivy" / "jars", log, reason or _reason(text))


def _command(java: Java, coordinates: Sequence[str], staging: Path, unused: Sequence[str]) -> list[str]:
    return [
        str(java.executable),
        *network_options.java_options(staging),
        f"-Djava.io.tmpdir={staging}",
        *("-cp", str(spark_home() / "jars" / "*"), "org.apache.spark.deploy.SparkSubmit"),
        *("--conf", f"spark.jars.ivy={staging / 'ivy'}"),
        *("--packages", ",".join(coordinates)),
        *("--exclude-packages", ",".join(unused)),
        "pyspark-shell",
    ]


def _environment(staging: Path) -> dict[str, str]:
    added = {"SPARK_HOME": str(spark_home()), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(staging / "gateway")}
    return {**os.environ, **added, "SPARK_LOCAL_IP": "127.0.0.1"}


def _wait(running: child_process.Process, staging: Path) -> bool:
    """Wait for the end, and tell whether it came by itself; give up when no byte arrives any more."""
    size, moved_at = -1, time.monotonic()
    while running.poll() is None:
        now = _size(staging)
        if now != size:
            size, moved_at = now, time.monotonic()
        elif time.monotonic() - moved_at > _STALLED_SECONDS:
            return False
        time.sleep(0.1)
    return True


def _size(folder: Path) -> int:
    size = 0
    for place, _, files in os.walk(folder):  # which passes over a folder that has just gone; pathlib's does not
        for name in files:
            with suppress(FileNotFoundError):  # the resolver renames what it has finished
                size += (Path(place) / name).lstat().st_size
    return size


def _reason(text: str) -> str:
    """Return the line of the resolver's output that tells most, without its advice about addresses."""
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if _TELLING.search(line) and not line.startswith("You probably"):
            return line.partition(" url=")[0][:200]
    problems = [line for line in lines if "not found" in line or "xception" in line]
    return problems[0][:200] if problems else "the resolver gave no reason"
