"""Write the command line of Spark's JVM.

Spark's own launcher starts a JVM to work this out; doing it here saves that, and lets a class-data-sharing archive
and a Java without `jdk.incubator.vector` be used. Starts nothing and writes nothing.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from runnel.errors import Mistake
from runnel.spark.jvm.java_home import Java

# What Spark 4.1's JavaModuleOptions asks for, without the module that only MLlib's linear algebra would like to have.
_OPENED = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
    *(f"java.base/java.util.concurrent{name}" for name in ("", ".atomic")),
    *(f"java.base/{name}" for name in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action")),
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_MODULES = (
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
    "--enable-native-access=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)
# Started no slower than the serial collector and faster than G1 on two cores (docs/adr/0002-spark-start.md).
_COLLECTOR = "-XX:+UseParallelGC"
_BRIEF = "-XX:TieredStopAtLevel=1"  # the optimising compiler costs a short run more than it gives
_SUBMITTED = re.compile(
    r"spark\.(jars|files|archives|submit|yarn|kubernetes|driver|executor|deploy|kerberos|hadoop\.yarn)\b"
)
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")
SHIPPED = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles", "spark.jars.packages")


@dataclass(frozen=True)
class Command:
    """A JVM to start: its options, its class path and what to run in it."""

    java: Java
    options: tuple[str, ...]
    class_path: tuple[Path, ...]
    main: tuple[str, ...]

    def line(self, *more: str) -> list[str]:
        """Return the arguments, with more options in front of ours."""
        path = os.pathsep.join(map(str, self.class_path))
        return [str(self.java.executable), *more, *self.options, "-cp", path, *self.main]


def spark_home() -> Path:
    """Return the folder of the installed pyspark without importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise Mistake("SPARK_MISSING", "the package pyspark is not installed", fix="install Runnel again")
    return Path(spec.submodule_search_locations[0])


def class_path(jars: tuple[Path, ...], conf: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the class path in one fixed order: an archive fits only the order that it was made with."""
    extra = [Path(entry) for entry in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if entry]
    clusters = [Path(os.environ[name]) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    return (*extra, *clusters, *sorted((spark_home() / "jars").glob("*.jar")), *jars)


def spark_command(
    java: Java,
    jars: tuple[Path, ...],
    entries: tuple[Path, ...],
    master: str,
    conf: Mapping[str, str],
    scratch: Path,
    brief: bool = False,
) -> Command:
    """Return the command that starts the gateway through which Python drives Spark.

    `entries` is the whole class path; `jars` are those of it that a cluster's machines lack.
    """
    options = (
        *_MODULES,
        _COLLECTOR,
        *((_BRIEF,) if brief and is_local(master) else ()),
        f"-Xmx{conf.get('spark.driver.memory') or f'{default_heap_bytes() >> 20}m'}",
        "-XX:-UsePerfData",  # no statistics file in the system's temporary folder
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
    )
    return Command(java, options, entries, _main(jars, master, conf))


def is_local(master: str) -> bool:
    """Tell whether everything runs in this one JVM.

    >>> [is_local(master) for master in ("local", "local[*]", "local[2,3]", "local-cluster[1,1,1]", "yarn")]
    [True, True, True, False, False]
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def is_known(master: str) -> bool:
    """Tell whether Spark can make sense of the master's name."""
    return is_local(master) or master == "yarn" or master.startswith(("spark://", "k8s://", "local-cluster["))


def _main(jars: tuple[Path, ...], master: str, conf: Mapping[str, str]) -> tuple[str, ...]:
    # SparkSubmit is one more step of start-up, needed only for what it alone does: clusters and files to ship.
    if is_local(master) and not any(conf.get(name) for name in SHIPPED):
        return ("org.apache.spark.api.python.PythonGatewayServer",)
    shipped = ",".join(filter(None, [*map(str, jars), conf.get("spark.jars", "")]))
    # Other settings follow through the gateway: a command line can be read by everybody on the machine.
    given = {name: value for name, value in conf.items() if _SUBMITTED.match(name) and not _SECRET.search(name)}
    settings = {**given, "spark.jars": shipped}
    flags = [part for name, value in sorted(settings.items()) for part in ("--conf", f"{name}={value}")]
    return ("org.apache.spark.deploy.SparkSubmit", "--master", master, *flags, "pyspark-shell")


def default_heap_bytes() -> int:
    """Return half of the machine's memory, or of the container's, but at most 8 GiB and at least 1 GiB."""
    return max(1 << 30, min(8 << 30, memory_bytes() // 2))


def memory_bytes() -> int:
    """Return the memory of the machine, or of the container if that has less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
