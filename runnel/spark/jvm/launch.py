"""Start Spark's JVM and connect Python to it.

The JVM's output goes to a log file. The JVM ends with this process, even if this process is killed.
"""

import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Unreachable
from runnel.spark.jvm import child_process
from runnel.spark.jvm.child_process import Process
from runnel.spark.jvm.command_line import JvmCommand, find_spark_home, is_local
from runnel.temp_dirs import OwnedDir

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_START_TIMEOUT_SECONDS = 120
_LOG4J_CONFIG = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class JvmStartError(Exception):
    """The JVM ended before Python could connect to it; `line` is the log line that best says why."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


@dataclass(frozen=True)
class Jvm:
    """A running JVM, the connection to it, its temporary folder and its log."""

    process: Process
    gateway: "JavaGateway"
    scratch: OwnedDir
    log: Path

    @property
    def is_alive(self) -> bool:
        """Return whether the process is still running."""
        return self.process.poll() is None

    def end(self, *, immediately: bool = False) -> None:
        """End the JVM, orderly or immediately, and remove its temporary folder."""
        child_process.end(self.process, *([0] if immediately else []))
        self.scratch.remove()


def launch_jvm(
    command: JvmCommand,
    options: Sequence[str],
    scratch: OwnedDir,
    log: Path,
    timeout_seconds: float = _START_TIMEOUT_SECONDS,
) -> Jvm:
    """Start the JVM, with options for class data sharing, and return it once it answers.

    Raises `JvmStartError` if it ends before.
    """
    # The current end of the log separates the lines of this start from older ones.
    log_start = log.stat().st_size if log.exists() else 0
    (scratch.path / "log4j2.properties").write_text(_LOG4J_CONFIG)
    gateway_file = scratch.path / "gateway"
    gateway_file.unlink(missing_ok=True)
    jvm_process = child_process.spawn(
        command.build_arguments(*options), log=log, env=_build_environment(gateway_file, command.master)
    )
    try:
        from pyspark import java_gateway, sql  # noqa: F401  imported while the JVM starts: both take their time

        _wait_for_gateway(jvm_process, gateway_file, timeout_seconds, log, log_start)
        gateway = _connect_gateway(gateway_file)
    except BaseException:
        child_process.end(jvm_process, timeout_seconds=0)
        raise
    return Jvm(jvm_process, gateway, scratch, log)


def _build_environment(gateway_file: Path, master: str) -> dict[str, str]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(find_spark_home()),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway_file),
    }
    environment["SPARK_CONNECT_MODE"] = "0"
    if is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def _wait_for_gateway(
    jvm_process: Process, gateway_file: Path, timeout_seconds: float, log: Path, log_start: int
) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not gateway_file.exists():
        if jvm_process.poll() is not None:
            raise JvmStartError(find_exit_reason(log, log_start))
        if time.monotonic() > deadline:
            what = f"Spark's Java process did not answer within {timeout_seconds:.0f} seconds"
            raise Unreachable("SPARK_START", what, at=str(log), fix="try again when the machine is less busy")
        time.sleep(0.01)


def _connect_gateway(gateway_file: Path) -> "JavaGateway":
    from pyspark import java_gateway

    contents = gateway_file.read_bytes()
    port, length = struct.unpack(">ii", contents[:8])
    gateway_variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": contents[8 : 8 + length].decode()}
    gateway_file.unlink()
    # PySpark connects to a running JVM if the environment names one. Both variables are removed at once, otherwise
    # child processes would connect to it as well.
    os.environ.update(gateway_variables)
    try:
        return java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in gateway_variables:
            os.environ.pop(name, None)


def find_exit_reason(log: Path, log_start: int = 0) -> str:
    """Return the line of the log, from byte `log_start` on, that best says why the JVM ended."""
    with log.open("rb") as file:
        file.seek(log_start)
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "    at "))]
    error_lines = [line for line in lines if any(word in line for word in ("rror", "xception", "ould not", "nvalid"))]
    # Lines like "Error: Could not create the Java Virtual Machine." end every such report and give no reason.
    error_lines = [
        line for line in error_lines if not line.startswith(("Error: Could not create", "Error: A fatal", "#"))
    ]
    exit_reason = (error_lines or lines or ["it printed nothing"])[-1]
    return exit_reason.removeprefix("Error: ").removeprefix('Exception in thread "main" ')[:300]
