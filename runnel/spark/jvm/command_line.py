"""Build the command line of Spark's JVM.

Spark's own launcher starts a JVM to compute it; doing it here saves that start, and permits a class-data-sharing
archive and a Java without `jdk.incubator.vector`. Starts nothing and writes nothing.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from runnel.errors import Mistake
from runnel.spark.jvm.java_home import Java

# The options of Spark 4.1's JavaModuleOptions, without the module that only MLlib's linear algebra uses.
_OPENED_PACKAGES = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
    *(f"java.base/java.util.concurrent{name}" for name in ("", ".atomic")),
    *(f"java.base/{name}" for name in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action")),
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_MODULE_OPTIONS = (
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED_PACKAGES),
    "--enable-native-access=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)
# Starts no slower than the serial collector and faster than G1 on two cores (docs/adr/0002-spark-start.md).
_COLLECTOR_OPTION = "-XX:+UseParallelGC"
_FAST_COMPILE_OPTION = "-XX:TieredStopAtLevel=1"  # the optimising compiler costs a short run more than it saves
_SUBMIT_SETTING = re.compile(
    r"spark\.(jars|files|archives|submit|yarn|kubernetes|driver|executor|deploy|kerberos|hadoop\.yarn)\b"
)
_SECRET_SETTING = re.compile(r"(?i)secret|password|token|access[.]?key|credential")
SHIPPED_SETTINGS = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles", "spark.jars.packages")


@dataclass(frozen=True)
class DriverSettings:
    """What the command line of Spark's driver depends on; `is_short_lived` skips the optimising compiler."""

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    is_short_lived: bool = False


@dataclass(frozen=True)
class JvmCommand:
    """A JVM to start: its options, its class path, its main class with arguments, and the Spark master it is for."""

    java: Java
    options: tuple[str, ...]
    class_path: tuple[Path, ...]
    main_arguments: tuple[str, ...]
    master: str

    def build_arguments(self, *extra_options: str) -> list[str]:
        """Return the full argument list, with extra options before the others."""
        path = os.pathsep.join(map(str, self.class_path))
        return [str(self.java.executable), *extra_options, *self.options, "-cp", path, *self.main_arguments]


def find_spark_home() -> Path:
    """Return the folder of the installed pyspark without importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise Mistake("SPARK_MISSING", "the package pyspark is not installed", fix="install Runnel again")
    return Path(spec.submodule_search_locations[0])


def build_class_path(jars: tuple[Path, ...], conf: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the class path in a fixed order: an archive fits only the order that it was built with."""
    extra = [Path(entry) for entry in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if entry]
    clusters = [Path(os.environ[name]) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    return (*extra, *clusters, *sorted((find_spark_home() / "jars").glob("*.jar")), *jars)


def build_spark_command(
    java: Java,
    class_path_entries: tuple[Path, ...],
    settings: DriverSettings,
    scratch: Path,
    *,
    jars: tuple[Path, ...] = (),
) -> JvmCommand:
    """Return the command that starts the gateway through which Python drives Spark.

    `class_path_entries` is the whole class path; `jars` are the part of it that a cluster's machines lack.
    """
    master, conf = settings.master, settings.conf
    options = (
        *_MODULE_OPTIONS,
        _COLLECTOR_OPTION,
        *((_FAST_COMPILE_OPTION,) if settings.is_short_lived and is_local(master) else ()),
        f"-Xmx{conf.get('spark.driver.memory') or f'{default_heap_bytes() >> 20}m'}",
        "-XX:-UsePerfData",  # no statistics file in the system's temporary folder
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
    )
    return JvmCommand(java, options, class_path_entries, _build_main_arguments(jars, master, conf), master)


def is_local(master: str) -> bool:
    """Return whether driver and executors run in one local JVM.

    >>> [is_local(master) for master in ("local", "local[*]", "local[2,3]", "local-cluster[1,1,1]", "yarn")]
    [True, True, True, False, False]
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def is_known_master(master: str) -> bool:
    """Return whether Spark supports this form of master URL."""
    return is_local(master) or master == "yarn" or master.startswith(("spark://", "k8s://", "local-cluster["))


def _build_main_arguments(jars: tuple[Path, ...], master: str, conf: Mapping[str, str]) -> tuple[str, ...]:
    # SparkSubmit makes the start slower; it is needed only for clusters and for files to ship.
    if is_local(master) and not any(conf.get(name) for name in SHIPPED_SETTINGS):
        return ("org.apache.spark.api.python.PythonGatewayServer",)
    shipped_jars = ",".join(filter(None, [*map(str, jars), conf.get("spark.jars", "")]))
    # Other settings are passed through the gateway: every user of the machine can read a command line.
    submit_settings = {
        name: value for name, value in conf.items() if _SUBMIT_SETTING.match(name) and not _SECRET_SETTING.search(name)
    }
    settings = {**submit_settings, "spark.jars": shipped_jars}
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
