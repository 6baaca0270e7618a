"""Start Spark's JVM and connect Python to it.

Everything that the JVM prints goes to a log file. It ends with this process, however that ends.
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
from runnel.spark.jvm.command_line import Command, is_local, spark_home
from runnel.temp_dirs import Owned

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_PATIENCE_SECONDS = 120
_LOGGING = """\
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


class Stillborn(Exception):
    """The JVM ended before it could be talked to; `line` is what it said last."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


@dataclass(frozen=True)
class Jvm:
    """A running JVM, the connection to it, and the folder and log that are its own."""

    process: Process
    gateway: "JavaGateway"
    scratch: Owned
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there."""
        return self.process.poll() is None

    def end(self, *, at_once: bool = False) -> None:
        """End the JVM, by itself or at once, and remove its folder."""
        child_process.end(self.process, *([0] if at_once else []))
        self.scratch.remove()


def launch(
    command: Command,
    options: Sequence[str],
    scratch: Owned,
    master: str,
    log: Path,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Jvm:
    """Start the JVM, with options about sharing classes, and return it once it answers.

    Raises `Stillborn` if it ends before.
    """
    # Log lines of this start are told from older ones in the same file by where the file ends now.
    start = log.stat().st_size if log.exists() else 0
    (scratch.path / "log4j2.properties").write_text(_LOGGING)
    contact = scratch.path / "gateway"
    contact.unlink(missing_ok=True)
    running = child_process.spawn(command.line(*options), log=log, env=_environment(contact, master))
    try:
        from pyspark import java_gateway, sql  # noqa: F401  imported while the JVM starts: both take their time

        _wait(running, contact, patience_seconds, log, start)
        gateway = _connect(contact)
    except BaseException:
        child_process.end(running, patience_seconds=0)
        raise
    return Jvm(running, gateway, scratch, log)


def _environment(contact: Path, master: str) -> dict[str, str]:
    environment = {**os.environ, "SPARK_HOME": str(spark_home()), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(contact)}
    environment["SPARK_CONNECT_MODE"] = "0"
    if is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def _wait(running: Process, contact: Path, patience_seconds: float, log: Path, start: int) -> None:
    deadline = time.monotonic() + patience_seconds
    while not contact.exists():
        if running.poll() is not None:
            raise Stillborn(last_words(log, start))
        if time.monotonic() > deadline:
            what = f"Spark's Java process did not answer within {patience_seconds:.0f} seconds"
            raise Unreachable("SPARK_START", what, at=str(log), fix="try again when the machine is less busy")
        time.sleep(0.01)


def _connect(contact: Path) -> "JavaGateway":
    from pyspark import java_gateway

    said = contact.read_bytes()
    port, length = struct.unpack(">ii", said[:8])
    known = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": said[8 : 8 + length].decode()}
    contact.unlink()
    # PySpark connects to a running JVM when the environment names one. Both are taken back at once, or child
    # processes would connect to it as well.
    os.environ.update(known)
    try:
        return java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in known:
            os.environ.pop(name, None)


def last_words(log: Path, start: int = 0) -> str:
    """Return the line of the log, from byte `start` on, that best says why the JVM ended."""
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "    at "))]
    telling = [line for line in lines if any(word in line for word in ("rror", "xception", "ould not", "nvalid"))]
    # "Error: Could not create the Java Virtual Machine." and its like close every such report and say nothing.
    telling = [line for line in telling if not line.startswith(("Error: Could not create", "Error: A fatal", "#"))]
    chosen = (telling or lines or ["it said nothing"])[-1]
    return chosen.removeprefix("Error: ").removeprefix('Exception in thread "main" ')[:300]
