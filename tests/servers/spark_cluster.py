"""A real standalone Spark cluster for tests: a master and workers on loopback, from the jars of the PySpark package.

Executors need a whole JDK: Spark asks them for the module `jdk.incubator.vector`, which the Java that comes with Runnel
lacks (an executor hangs there).
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.request import ProxyHandler, build_opener

from runnel.spark.jvm.command_line import find_spark_home

_START_SECONDS = 60
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# Should the tests be killed, their end of the pipe closes, and the process group is killed too.
_WATCHED = 'exec 3<&0; (read -r word <&3; [ "$word" ] || kill -9 -$$) & exec "$@" 3<&- </dev/null'
_OPENER = build_opener(ProxyHandler({}))  # the master is on loopback, whatever proxy the environment names


def find_whole_jdk() -> Path | None:
    """Return a Java 17 or 21 that has all modules which executors need, or None."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    candidates += sorted(Path("/usr/lib/jvm").glob("*")) if Path("/usr/lib/jvm").is_dir() else []
    for home in candidates:
        java = home / "bin" / "java"
        if java.is_file() and _has_modules(java):
            return home
    return None


def _has_modules(java: Path) -> bool:
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    return "jdk.incubator.vector@" in listed and version is not None and version[1] in ("17", "21")


class Cluster:
    """A master and its workers, ended and removed at the end; each of them can be killed and started again.

    Everybody who connects must know the secret, and everything is encrypted.
    """

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        jdk = find_whole_jdk()
        if jdk is None:
            raise RuntimeError("no JDK 17 or 21 with the module jdk.incubator.vector; install openjdk-17-jre-headless")
        self._jdk = jdk
        self.secret = secrets.token_hex(16)
        self._home = Path(tempfile.mkdtemp(prefix="runnel-spark-"))
        self._cores, self._memory = cores, memory
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        self.url = self.ui = ""

    def __enter__(self) -> "Cluster":
        self.start_master()
        for number in range(self._count):
            self.start_worker(number)
        self.wait_for_workers(self._count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in range(self._count):
            self.kill_worker(number)
        self.kill_master()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def conf(self) -> dict[str, str]:
        """Return the settings that a driver needs to use this cluster."""
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self.secret,
            "spark.network.crypto.enabled": "true",
        }

    def start_master(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        words = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        log = self._home / "master.log"
        self._master = self._start(log, *words)
        self.url = self._read(log, r"Starting Spark master at (spark://\S+)")
        self.ui = self._read(log, r"Bound MasterWebUI to \S+, and started at (http://\S+)")

    def start_worker(self, number: int) -> None:
        words = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", str(self._cores), "--memory", self._memory)
        folder = self._home / f"worker-{number}"
        log = self._home / f"worker-{number}.log"
        self._workers[number] = self._start(
            log, "org.apache.spark.deploy.worker.Worker", *words, "--work-dir", str(folder), self.url
        )

    def kill_master(self) -> None:
        _kill(self._master)
        self._master = None

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, as the crash of a machine does."""
        _kill(self._workers[number])
        self._workers[number] = None

    def list_executors(self) -> list[int]:
        """Return the process ids of the executors."""
        found = subprocess.run(
            ["pgrep", "-f", f"CoarseGrainedExecutorBackend.*{self.url}|--worker-url .*"],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(pid) for pid in found.stdout.split() if self._belongs(int(pid))]

    def _belongs(self, pid: int) -> bool:
        with suppress(OSError):
            return str(self._home) in Path(f"/proc/{pid}/environ").read_text(errors="replace")
        return False

    def kill_executor(self) -> bool:
        """Kill one executor; return whether there was one."""
        for pid in self.list_executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master counts this many living workers."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            with suppress(OSError), _OPENER.open(f"{self.ui}/json/", timeout=5) as answer:
                if json.load(answer)["aliveworkers"] == count:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the cluster has not {count} workers:\n{(self._home / 'master.log').read_text()[-3000:]}")

    def _start(self, log: Path, *words: str) -> subprocess.Popen[bytes]:
        jars = find_spark_home() / "jars"
        options = ["-Dspark.master.rest.enabled=false", "-Dspark.worker.cleanup.enabled=true"]
        settings = self._home / "spark-defaults.conf"
        settings.write_text("".join(f"{name} {value}\n" for name, value in self.conf.items()))
        environment = {
            **os.environ,
            "JAVA_HOME": str(self._jdk),
            "SPARK_HOME": str(find_spark_home()),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_CONF_DIR": str(self._home),
            "SPARK_LOCAL_DIRS": str(self._home / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [str(self._jdk / "bin/java"), *_JVM, *options, "-cp", f"{self._home}:{jars}/*", *words]
        with log.open("ab") as out:
            return subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=self._home,
                env=environment,
                start_new_session=True,
            )

    def _read(self, log: Path, pattern: str) -> str:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            match = re.findall(pattern, log.read_text(errors="replace")) if log.exists() else []
            if match:
                return str(match[-1]).rstrip(".")
            time.sleep(0.02)
        raise RuntimeError(f"Spark's master did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
