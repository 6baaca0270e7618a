"""The Spark session of this process: start it, make sessions for slots, stop it.

There is at most one, because Spark allows one context per JVM and PySpark one JVM per process.
"""

import atexit
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake, RunnelError, Unreachable
from runnel.names import shown
from runnel.spark import interrupt
from runnel.spark.catalog_conf import CatalogSettings, catalog_conf
from runnel.spark.jvm import cache_dir, cds_archive
from runnel.spark.jvm.command_line import SHIPPED, Command, class_path, is_known, is_local, spark_command
from runnel.spark.jvm.jars import LAKE, Jar, Tell, ensure_jars
from runnel.spark.jvm.java_home import find_java
from runnel.spark.jvm.launch import Jvm, Stillborn, launch
from runnel.spark.jvm.scratch_dir import new_scratch
from runnel.temp_dirs import Owned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT_LOGS = 20


@dataclass(frozen=True)
class SparkSettings:
    """How to start Spark. `conf` wins over Runnel's own choices; `log_file` is by default one in the cache.

    `brief` is for a process that computes little and then ends: Java compiles fast instead of well.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    catalogs: tuple[CatalogSettings, ...] = ()
    jars: tuple[Jar, ...] = LAKE
    log_file: Path | None = None
    ui: bool = False
    brief: bool = field(default=False, compare=False)  # only how it starts: a session that runs already serves both


@dataclass(frozen=True)
class _Running:
    settings: SparkSettings
    jvm: Jvm
    spark: "SparkSession"
    owner: int


_running: _Running | None = None
_guard = threading.RLock()


def start(settings: SparkSettings, tell: Tell | None = None) -> "SparkSession":
    """Start Spark and return its session, or return the one that runs with these settings already.

    `tell` is called with a line for people before something that takes long, such as the first download.
    """
    global _running
    with _guard:
        if _running and _running.jvm.is_alive and _running.owner == os.getpid():
            if _running.settings != settings:
                what = "Spark already runs in this process with other settings"
                raise Mistake("SPARK_RUNNING", what, fix="stop it first, or use a process of its own")
            return _running.spark
        stop()
        jvm = _launch(settings, tell)
        try:
            spark = connect(settings, jvm)
        except BaseException:
            _forget()
            jvm.end()
            raise
        _running = _Running(settings, jvm, spark, os.getpid())
        atexit.register(stop)
        return spark


def running() -> "SparkSession | None":
    """Return the session of this process, if Spark runs in it."""
    with _guard:
        alive = _running is not None and _running.jvm.is_alive and _running.owner == os.getpid()
        return _running.spark if _running is not None and alive else None


def stop() -> None:
    """Stop Spark and end its JVM; does nothing if there is none."""
    global _running
    with _guard:
        running, _running = _running, None
        if running is None or running.owner != os.getpid():
            return  # a forked child must not end its parent's JVM
        atexit.unregister(stop)
        farewell = _has_to_say_farewell(running.settings)
        if running.jvm.is_alive and farewell:
            with suppress(Exception):  # whatever is wrong with the session, its JVM ends below
                running.spark.stop()
        # The JVM goes first: py4j waits for ever to close a connection on which a thread, of a stream say, still reads.
        running.jvm.end(at_once=not farewell)
        with suppress(Exception):
            running.jvm.gateway.shutdown()
        _forget()


def _has_to_say_farewell(settings: SparkSettings) -> bool:
    """Tell whether anything outside of the JVM and its folder waits for it to end in order: stopping takes a second."""
    return not is_local(settings.master) or settings.conf.get("spark.eventLog.enabled", "").lower() == "true"


def slot_session(spark: "SparkSession", catalog: CatalogSettings) -> "SparkSession":
    """Return a new session whose default catalog is the slot's.

    Settings come before first use, because Spark never reads those of a loaded catalog again.
    """
    session = spark.newSession()
    for key, value in catalog_conf(catalog.name, catalog.database_url, catalog.warehouse).items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.defaultCatalog", catalog.name)
    return session


def session_conf(settings: SparkSettings, scratch: Path) -> dict[str, str]:
    """Return every setting of the session, the user's own ones last."""
    conf = {
        "spark.master": settings.master,
        "spark.app.name": "runnel",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",  # else `${env:NAME}` in a query would read the environment
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        # Each stage gets a new thread, kept for a minute, up to 1024 of each kind: small runs would hold thousands.
        "spark.sql.shuffleExchange.maxThreadThreshold": "32",
        "spark.sql.resultQueryStage.maxThreadThreshold": "32",
    }
    if not settings.ui:  # nobody looks at what has ended long ago; the figures of a step are taken when it ends
        conf |= {"spark.sql.ui.retainedExecutions": "50", "spark.ui.retainedTasks": "20000"}
        conf |= {"spark.ui.retainedJobs": "500", "spark.ui.retainedStages": "500"}
    if is_local(settings.master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for catalog in settings.catalogs:
        conf |= catalog_conf(catalog.name, catalog.database_url, catalog.warehouse)
    # What is shipped was told to SparkSubmit, together with our own jars; said again it would replace them.
    return conf | {name: value for name, value in settings.conf.items() if name not in SHIPPED}


def _launch(settings: SparkSettings, tell: Tell | None) -> Jvm:
    if not is_known(settings.master):
        what = f"{shown(settings.master)} is not a Spark master"
        raise Mistake("SPARK_MASTER", what, fix="use local[*], spark://HOST:PORT, k8s://HOST:PORT or yarn")
    java = find_java()
    jars = ensure_jars(java, settings.jars, tell)
    log = settings.log_file or _new_log()
    scratch = new_scratch()
    try:
        entries = class_path(jars, settings.conf)
        command = spark_command(java, jars, entries, settings.master, settings.conf, scratch.path, settings.brief)
        return _first_breath(command, scratch, settings.master, log)
    except BaseException as error:
        scratch.remove()
        if isinstance(error, OSError):
            raise cache_dir.disk_error(error, log) from error
        raise


def _first_breath(command: Command, scratch: Owned, master: str, log: Path) -> Jvm:
    """Start the JVM, sharing classes from an archive if there is one; a broken archive costs a second try."""
    shared = cds_archive.fitting(command)
    try:
        if shared:
            with suppress(Stillborn):
                return launch(command, (f"-XX:SharedArchiveFile={shared}", "-Xshare:auto"), scratch, master, log)
        jvm = launch(command, ("-Xshare:auto",), scratch, master, log)
    except Stillborn as death:
        fix = "read the log; spark.driver.memory sets the memory and JAVA_HOME the Java; `runnel doctor` shows both"
        what = f"Spark's Java process ended while it was starting: {death.line}"
        raise Unreachable("SPARK_START", what, at=str(log), fix=fix) from None
    if shared:
        cds_archive.discard(shared)
    cds_archive.build_in_background(command)
    return jvm


def connect(settings: SparkSettings, jvm: Jvm) -> "SparkSession":
    """Create Spark's context in a JVM that was just started, and return its session."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # It would write every error of a query, with its trace, to standard error; whoever asked tells it better.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    if is_local(settings.master):
        # Python workers must be this Python, not whichever the search path holds first.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = interrupt.current()
    conf = SparkConf(_jvm=jvm.gateway.jvm)
    for key, value in session_conf(settings, jvm.scratch.path).items():
        conf.set(key, value)
    try:
        context = SparkContext(conf=conf, gateway=jvm.gateway)
        interrupt.shield_calls(context)
        interrupt.take_over(context, before)
        return SparkSession(context)
    except Py4JJavaError as error:
        raise _refusal(str(error.java_exception.getMessage()), jvm.log) from None
    except Py4JError as error:
        raise Unreachable(
            "SPARK_START",
            "Spark's Java process went away while it was starting",
            at=str(jvm.log),
            fix="read the log, then try again",
        ) from error


def _refusal(message: str, log: Path) -> RunnelError:
    line = message.splitlines()[0][:300]
    return Mistake("SPARK_START", f"Spark refused to start: {line}", at=str(log), fix="check [spark] in runnel.toml")


def _forget() -> None:
    """Make PySpark forget the JVM, so that the next start gets one of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    interrupt.give_back()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _new_log() -> Path:
    logs = cache_dir.folder("logs")
    old = sorted(logs.glob("spark-*.log"))
    for path in old[: max(0, len(old) - _KEPT_LOGS + 1)]:
        path.unlink(missing_ok=True)
    return logs / f"spark-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
