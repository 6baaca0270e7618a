"""Run the tests that are marked `cluster` on a standalone Spark cluster, then kill parts of it at random moments.

`ONLY=word` picks tests whose names have the word, or `kills`; `SEED=n` repeats the kills of an earlier run.
"""

import os
import random
import subprocess
import sys
import time

from tests.cluster.session import describe_cluster
from tests.servers.spark_cluster import Cluster, find_whole_jdk

_ROUNDS = "12"
_JDK_MISSING = "executors need a whole JDK 17 or 21, such as Debian's openjdk-17-jre-headless"


def run_tests(cluster: Cluster, only: str) -> int:
    """Run the tests in one process: they share one session, whose executors have all cores of the cluster."""
    words = ["-q", "-n0", "-m", "cluster", "--durations=15", *(["-k", only] if only else []), "tests"]
    command = [sys.executable, "-m", "tests.tmpfs_runner", sys.executable, "-m", "pytest", *words]
    return subprocess.run(command, env={**os.environ, **describe_cluster(cluster)}, check=False).returncode


def run_kills(seed: int) -> int:
    """Kill parts of another cluster."""
    command = [sys.executable, "-m", "tests.tmpfs_runner", sys.executable, "-m", "tests.cluster.kills", _ROUNDS]
    return subprocess.run([*command, str(seed)], check=False).returncode


def main() -> int:
    """Return 0 if all tests have passed, and nothing was lost or there twice after the kills."""
    if find_whole_jdk() is None:
        sys.stderr.write(f"{_JDK_MISSING}\n")
        return 1
    only, started = os.environ.get("ONLY", ""), time.monotonic()
    codes = []
    if only != "kills":
        with Cluster() as cluster:
            codes.append(run_tests(cluster, only))
    if only in ("", "kills"):
        codes.append(run_kills(int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))))
    sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
