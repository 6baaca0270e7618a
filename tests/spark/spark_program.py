"""A program that starts Spark, for tests that kill it. Prints lines that the test waits for."""

import sys
import threading
import time

from runnel.errors import RunnelError
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import find_java
from runnel.spark.session import SparkSettings, start_spark, stop_spark


def say(*words):
    print(*words, flush=True)  # noqa: T201


def session(folder, **conf):
    master = conf.pop("master", "local[1]")
    catalog = CatalogSettings("main", f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    return start_spark(SparkSettings(master, {"spark.driver.memory": "1g", **conf}, (catalog,)))


def jvm_of(spark):
    return spark._jvm.java.lang.ProcessHandle.current().pid()


def wait(folder):
    spark = session(folder)
    say("jvm", jvm_of(spark))
    time.sleep(600)


def tell_when_busy(spark):
    """Say that the JVM is there once it works on a job."""
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.05)
    say("jvm", jvm_of(spark))


def interrupted(folder):
    spark = session(folder)
    threading.Thread(target=tell_when_busy, args=(spark,), daemon=True).start()
    try:
        spark.range(1, 10**15).selectExpr("sum(id)").collect()
    except KeyboardInterrupt:
        say("rows", spark.range(3).count())
        sys.exit(130)


def count(folder):
    spark = session(folder)
    say("rows", spark.range(7).count())
    stop_spark()
    stop_spark()


def again(folder):
    """A refused start, then a good one, in one process."""
    try:
        session(folder, **{"spark.task.cpus": "two"})
    except RunnelError as error:
        say(error.exit_code, error.code)
    say("rows", session(folder).range(4).count())


def jars(folder):
    say(*(path.name for path in ensure_jars(find_java())))


def memory(folder):
    session(folder, **{"spark.driver.memory": "99999999g"})


def master(folder):
    session(folder, master="nonsense")


if __name__ == "__main__":
    modes = (wait, interrupted, count, again, jars, memory, master)
    try:
        {mode.__name__: mode for mode in modes}[sys.argv[1]](sys.argv[2])
    except RunnelError as error:
        say(error)
        sys.exit(error.exit_code)
