"""Fetch jars with the Maven resolver inside Spark, in a separate JVM that ends afterwards.

It uses Spark's `--packages`: mirrors and other settings (`spark.jars.ivySettings`, `spark.jars.repositories` in
spark-defaults.conf, `DEFAULT_ARTIFACT_REPOSITORY`, a local Maven cache) apply as for any Spark program, and no
repository is named here. The caller verifies the fetched files.
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
from runnel.spark.jvm.command_line import find_spark_home
from runnel.spark.jvm.java_home import Java

_UNUSED_PACKAGE = "org.checkerframework:checker-qual"  # annotations that the PostgreSQL driver was compiled with
_STALL_TIMEOUT_SECONDS = 90
_REASON_PATTERN = re.compile(r"Host .* not found|PKIX|refused|timed? ?out|Server access|unreachable|proxy|UnknownHost")


@dataclass(frozen=True)
class ResolverResult:
    """The folder with the fetched files, named `group_name-version.jar`, and why others could not be fetched."""

    folder: Path
    log: Path
    reason: str


def resolve_jars(java: Java, coordinates: Sequence[str], staging: Path, unused: Sequence[str] = ()) -> ResolverResult:
    """Fetch the jars into a folder below `staging`; some or all may be missing from it afterwards.

    Fetches their dependencies too, except those in `unused`, each `group:name`.
    """
    log = cache_dir.ensure_folder("logs") / "jars.log"
    log.unlink(missing_ok=True)
    resolver_process = child_process.spawn(
        _build_command(java, coordinates, staging, (_UNUSED_PACKAGE, *unused)), log=log, env=_build_environment(staging)
    )
    reason = ""
    try:
        # `--packages` then starts the Python gateway, which ends at once, because its input is closed.
        if resolver_process.stdin:
            resolver_process.stdin.close()
        if not _wait_for_end(resolver_process, staging):
            reason = f"nothing arrived for {_STALL_TIMEOUT_SECONDS} seconds"
    finally:
        if resolver_process.poll() is None:
            resolver_process.kill()
            resolver_process.wait()
    text = log.read_text(errors="replace")
    if "No space left on device" in text:
        raise RunnelError("SPARK_DISK", f"no space left on the disk of {staging.parent}", fix="free some space")
    return ResolverResult(staging / "ivy" / "jars", log, reason or _find_reason(text))


def _build_command(java: Java, coordinates: Sequence[str], staging: Path, unused: Sequence[str]) -> list[str]:
    return [
        str(java.executable),
        *network_options.build_java_options(staging),
        f"-Djava.io.tmpdir={staging}",
        *("-cp", str(find_spark_home() / "jars" / "*"), "org.apache.spark.deploy.SparkSubmit"),
        *("--conf", f"spark.jars.ivy={staging / 'ivy'}"),
        *("--packages", ",".join(coordinates)),
        *("--exclude-packages", ",".join(unused)),
        "pyspark-shell",
    ]


def _build_environment(staging: Path) -> dict[str, str]:
    variables = {"SPARK_HOME": str(find_spark_home()), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(staging / "gateway")}
    return {**os.environ, **variables, "SPARK_LOCAL_IP": "127.0.0.1"}


def _wait_for_end(resolver_process: child_process.Process, staging: Path) -> bool:
    """Wait for the process to end; return False if no more bytes arrive for a while."""
    last_size, grown_at = -1, time.monotonic()
    while resolver_process.poll() is None:
        current_size = _measure_folder(staging)
        if current_size != last_size:
            last_size, grown_at = current_size, time.monotonic()
        elif time.monotonic() - grown_at > _STALL_TIMEOUT_SECONDS:
            return False
        time.sleep(0.1)
    return True


def _measure_folder(folder: Path) -> int:
    size = 0
    for parent, _, files in os.walk(folder):  # ignores a folder removed meanwhile; pathlib's walk does not
        for name in files:
            with suppress(FileNotFoundError):  # the resolver renames finished downloads
                size += (Path(parent) / name).lstat().st_size
    return size


def _find_reason(text: str) -> str:
    """Return the line of the resolver's output that best explains the failure, without the URL."""
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if _REASON_PATTERN.search(line) and not line.startswith("You probably"):
            return line.partition(" url=")[0][:200]
    problems = [line for line in lines if "not found" in line or "xception" in line]
    return problems[0][:200] if problems else "the resolver gave no reason"
