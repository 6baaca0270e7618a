"""Start and stop the Spark session of this process, and create sessions for slots.

There is at most one, because Spark allows one context per JVM and PySpark one JVM per process.
"""

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake, RunnelError, Unreachable
from runnel.names import quote_value
from runnel.private_files import create_private_file
from runnel.spark import interrupt
from runnel.spark.catalog_conf import CatalogSettings, build_catalog_conf
from runnel.spark.jvm import cache_dir, cds_archive
from runnel.spark.jvm.command_line import (
    SHIPPED_SETTINGS,
    DriverSettings,
    JvmCommand,
    build_class_path,
    build_spark_command,
    is_known_master,
    is_local,
)
from runnel.spark.jvm.jars import LAKE_JARS, Jar, ReportLine, ensure_jars
from runnel.spark.jvm.java_home import find_java
from runnel.spark.jvm.launch import Jvm, JvmStartError, launch_jvm
from runnel.spark.jvm.scratch_dir import create_scratch_dir
from runnel.temp_dirs import OwnedDir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_LOGS = 20


@dataclass(frozen=True)
class SparkSettings:
    """How to start Spark. `conf` overrides Runnel's own settings; `log_file` defaults to a new file in the cache.

    `is_short_lived` is for a process that computes little and then ends: Java then skips its optimising compiler.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    catalogs: tuple[CatalogSettings, ...] = ()
    jars: tuple[Jar, ...] = LAKE_JARS
    log_file: Path | None = field(default=None, compare=False)  # a session can't change its log
    ui: bool = False
    is_short_lived: bool = field(default=False, compare=False)  # affects only the start


@dataclass(frozen=True)
class _RunningSession:
    settings: SparkSettings
    jvm: Jvm
    spark: "SparkSession"
    owner: int
    users: "weakref.WeakSet[object]" = field(default_factory=weakref.WeakSet)
    has_unknown_users: bool = False


_running: _RunningSession | None = None
_guard = threading.RLock()


def start_spark(
    settings: SparkSettings, report: ReportLine | None = None, user: object | None = None
) -> "SparkSession":
    """Start Spark and return its session, or return the running session if it has the same settings.

    A running session with other settings is stopped if all its users have left or are gone, and refused otherwise.
    `report` is called with a line for the user before a slow operation, such as the first download.
    """
    global _running
    with _guard:
        if _running and _running.jvm.is_alive and _running.owner == os.getpid():
            if _running.settings == settings:
                _add_user(user)
                return _running.spark
            if _running.users or _running.has_unknown_users:
                raise _other_settings_error(_running.settings, settings)
        stop_spark()
        jvm = _launch_from_settings(settings, report)
        try:
            spark = connect_session(settings, jvm)
        except BaseException:
            _reset_pyspark()
            jvm.end()
            raise
        _running = _RunningSession(settings, jvm, spark, os.getpid())
        _add_user(user)
        atexit.register(stop_spark)
        return spark


def leave_spark(user: object) -> None:
    """Record that a user needs the running session no more; it goes on until it is stopped or others need another."""
    with _guard:
        if _running is not None:
            _running.users.discard(user)


def _add_user(user: object | None) -> None:
    global _running
    assert _running is not None
    if user is None:
        _running = replace(_running, has_unknown_users=True)
    else:
        _running.users.add(user)


def _other_settings_error(running: SparkSettings, requested: SparkSettings) -> Mistake:
    names = {key for key, _ in set(running.conf.items()) ^ set(requested.conf.items())}
    names |= {"spark.master"} if running.master != requested.master else set()
    differing = f" ({', '.join(sorted(names))})" if names else ""
    what = f"Spark already runs in this process for another lake, with other settings{differing}"
    fix = "close that lake first with lake.close(), use the same [spark] settings in both, or use another process"
    return Mistake("SPARK_RUNNING", what, fix=fix)


def running_session() -> "SparkSession | None":
    """Return the session of this process, or None if Spark does not run in it."""
    with _guard:
        is_alive = _running is not None and _running.jvm.is_alive and _running.owner == os.getpid()
        return _running.spark if _running is not None and is_alive else None


def stop_spark() -> None:
    """Stop Spark and end its JVM; does nothing if there is none."""
    global _running
    with _guard:
        ended_session, _running = _running, None
        if ended_session is None or ended_session.owner != os.getpid():
            return  # a forked child must not end its parent's JVM
        atexit.unregister(stop_spark)
        needs_clean_stop = _needs_clean_stop(ended_session.settings)
        if ended_session.jvm.is_alive and needs_clean_stop:
            with suppress(Exception):  # even if the session is broken, its JVM ends below
                ended_session.spark.stop()
        _silence_accumulators(ended_session.spark)
        # The JVM ends first: py4j waits forever to close a connection that a thread, such as a stream's, still reads.
        ended_session.jvm.end(immediately=not needs_clean_stop)
        with suppress(Exception):
            ended_session.jvm.gateway.shutdown()
        _reset_pyspark()


def _needs_clean_stop(settings: SparkSettings) -> bool:
    """Return whether Spark must be stopped orderly, which takes a second: on a cluster, or with an event log."""
    return not is_local(settings.master) or settings.conf.get("spark.eventLog.enabled", "").lower() == "true"


def create_slot_session(spark: "SparkSession", catalog: CatalogSettings) -> "SparkSession":
    """Return a new session whose default catalog is the slot's.

    The settings must precede the first use, because Spark never reads those of a loaded catalog again.
    """
    session = spark.newSession()
    for key, value in build_catalog_conf(catalog.name, catalog.database_url, catalog.warehouse).items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.defaultCatalog", catalog.name)
    return session


def build_session_conf(settings: SparkSettings, scratch: Path) -> dict[str, str]:
    """Return all settings of the session; the user's override Runnel's."""
    conf = {
        "spark.master": settings.master,
        "spark.app.name": "runnel",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",  # otherwise `${env:NAME}` in a query reads the environment
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        # Spark starts a thread per stage and keeps it for a minute, up to 1024 per pool: small runs would pile up.
        "spark.sql.shuffleExchange.maxThreadThreshold": "32",
        "spark.sql.resultQueryStage.maxThreadThreshold": "32",
    }
    if not settings.ui:  # without the UI old executions are not needed; metrics are read when a step ends
        conf |= {"spark.sql.ui.retainedExecutions": "50", "spark.ui.retainedTasks": "20000"}
        conf |= {"spark.ui.retainedJobs": "500", "spark.ui.retainedStages": "500"}
    if is_local(settings.master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Otherwise every user of the machine could stop the driver or send it objects. Without a secret in its settings
        # Spark makes a random one on a local master, which stays in its memory: no setting, page or log contains it.
        conf["spark.authenticate"] = "true"
    else:
        from runnel.spark.executors.cluster_conf import build_cluster_conf

        conf |= build_cluster_conf(settings.master, settings.conf)
    for catalog in settings.catalogs:
        conf |= build_catalog_conf(catalog.name, catalog.database_url, catalog.warehouse)
    # SparkSubmit already got the shipped files together with our own jars; setting them again would replace those.
    return conf | {name: value for name, value in settings.conf.items() if name not in SHIPPED_SETTINGS}


def _launch_from_settings(settings: SparkSettings, report: ReportLine | None) -> Jvm:
    if not is_known_master(settings.master):
        what = f"{quote_value(settings.master)} is not a Spark master"
        raise Mistake("SPARK_MASTER", what, fix="use local[*], spark://HOST:PORT, k8s://HOST:PORT or yarn")
    if not is_local(settings.master):
        from runnel.spark.executors.cluster_master import check_master

        check_master(settings.master)
    java = find_java()
    jars = ensure_jars(java, settings.jars, report)
    log = settings.log_file or _create_log_path()
    scratch = create_scratch_dir()
    try:
        class_path_entries = build_class_path(jars, settings.conf)
        driver = DriverSettings(settings.master, settings.conf, settings.is_short_lived)
        command = build_spark_command(java, class_path_entries, driver, scratch.path, jars=jars)
        return _launch_with_archive(command, scratch, log)
    except BaseException as error:
        scratch.remove()
        if isinstance(error, OSError):
            raise cache_dir.disk_error(error, log) from error
        raise


def _launch_with_archive(command: JvmCommand, scratch: OwnedDir, log: Path) -> Jvm:
    """Start the JVM with a class-data-sharing archive if there is one; if that fails, start it without."""
    archive_file = cds_archive.find_archive(command)
    try:
        if archive_file:
            with suppress(JvmStartError):
                options = (f"-XX:SharedArchiveFile={archive_file}", "-Xshare:auto")
                return launch_jvm(command, options, scratch, log)
        jvm = launch_jvm(command, ("-Xshare:auto",), scratch, log)
    except JvmStartError as start_error:
        fix = "read the log; spark.driver.memory sets the memory and JAVA_HOME the Java; `runnel doctor` shows both"
        what = f"Spark's Java process ended while it was starting: {start_error.line}"
        raise Unreachable("SPARK_START", what, at=str(log), fix=fix) from None
    if archive_file:
        cds_archive.discard(archive_file)
    cds_archive.build_in_background(command)
    return jvm


def connect_session(settings: SparkSettings, jvm: Jvm) -> "SparkSession":
    """Create Spark's context in a JVM that was just started, and return its session."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # This logger would write every query error with its trace to standard error; the caller reports errors better.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    if not any(
        name in settings.conf for name in ("spark.pyspark.python", "spark.archives", "spark.yarn.dist.archives")
    ):
        # Python workers must run this interpreter, not the first one on PATH; on a cluster, at the same path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    previous_handler = interrupt.current_handler()
    conf = SparkConf(_jvm=jvm.gateway.jvm)
    for key, value in build_session_conf(settings, jvm.scratch.path).items():
        conf.set(key, value)
    try:
        context = SparkContext(conf=conf, gateway=jvm.gateway)
        interrupt.shield_calls(context)
        interrupt.install_handler(context, previous_handler)
        if not is_local(settings.master):
            from runnel.spark.executors.shipped_code import ship_runnel

            ship_runnel(context, jvm.scratch.path)
        return SparkSession(context)
    except Py4JJavaError as error:
        message = str(error.java_exception.getMessage())
        if not is_local(settings.master):
            from runnel.spark.executors.cluster_master import describe_refusal

            raise describe_refusal(settings.master, message, jvm.log) from None
        raise _refusal_error(message, jvm.log) from None
    except Py4JError as error:
        raise Unreachable(
            "SPARK_START",
            "Spark's Java process ended while it was starting",
            at=str(jvm.log),
            fix="read the log, then try again",
        ) from error


def _refusal_error(message: str, log: Path) -> RunnelError:
    line = message.splitlines()[0][:300]
    return Mistake("SPARK_START", f"Spark refused to start: {line}", at=str(log), fix="check [spark] in runnel.toml")


def _silence_accumulators(spark: "SparkSession") -> None:
    """Let PySpark's server of accumulators ignore that its JVM ends; it would print a trace for each connection."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _reset_pyspark() -> None:
    """Make PySpark forget the JVM, so that the next start gets one of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    interrupt.restore_handler()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _create_log_path() -> Path:
    log_folder = cache_dir.ensure_folder("logs")
    old_logs = sorted(log_folder.glob("spark-*.log"))
    for path in old_logs[: max(0, len(old_logs) - _MAX_LOGS + 1)]:
        path.unlink(missing_ok=True)
    path = log_folder / f"spark-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    create_private_file(path)
    return path
