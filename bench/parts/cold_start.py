"""Command to first row, cold: a stock PySpark program against the same one through Runnel.

Both are a new `python` process that reads the same small Iceberg table through the same catalog, jars and Java. Time
runs from the start of the process to its first line of output. They take turns, so that a busy machine slows both.
Runnel's archive is in place, as it is from a user's second command on.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from bench.peers import stock_java

REPEATS = 5
SQL = "select id % 3 as k, count(*) as n, sum(v) as v from main.ods.t where id < 500 group by 1 order by 1"

STOCK = """
import sys
from pyspark.sql import SparkSession
catalog, warehouse, jars, sql = sys.argv[1:]
name = "spark.sql.catalog.main"
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", jars)
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.ui.enabled", "false")
    .config(name, "org.apache.iceberg.spark.SparkCatalog")
    .config(f"{name}.catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
    .config(f"{name}.uri", f"jdbc:sqlite:{catalog}")
    .config(f"{name}.warehouse", warehouse)
    .config(f"{name}.jdbc.schema-version", "V1")
    .config(f"{name}.cache-enabled", "false")
    .getOrCreate()
)
print([tuple(row) for row in spark.sql(sql).collect()], flush=True)
spark.stop()
"""
RUNNEL = """
import sys
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import SparkSettings, start_spark, stop_spark
catalog, warehouse, jars, sql = sys.argv[1:]
spark = start_spark(SparkSettings(catalogs=(CatalogSettings("main", f"sqlite:///{catalog}", warehouse),)))
print([tuple(row) for row in spark.sql(sql).collect()], flush=True)
stop_spark()
"""
FILL = RUNNEL.replace(
    "print(",
    "spark.sql('create namespace main.ods')\n"
    "spark.sql('create table main.ods.t as select id, id * 2 as v from range(1000)')\n"
    "print(",
)


def run() -> list[Figure]:
    """Measure, and return the ratio; both medians and all times are in its details."""
    from runnel.spark import cds_archive_builder
    from runnel.spark.jvm.command_line import build_class_path
    from runnel.spark.jvm.jars import ensure_jars
    from runnel.spark.jvm.java_home import find_java

    java = find_java()
    jars = ensure_jars(java)
    cds_archive_builder.build(java, build_class_path(jars, {}))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [str(folder / "catalog.db"), str(folder / "warehouse"), ",".join(map(str, jars)), SQL]
        peer_env = {**os.environ, "JAVA_HOME": str(stock_java(java.home, folder))}
        expected, _ = timed(FILL, words, dict(os.environ))
        rows, peer, ours = {expected}, [], []
        for _ in range(REPEATS):
            for script, env, times in ((STOCK, peer_env, peer), (RUNNEL, dict(os.environ), ours)):
                line, seconds = timed(script, words, env)
                rows.add(line)
                times.append(seconds)
    if len(rows) != 1:
        raise RuntimeError(f"the answers differ: {sorted(rows)}")
    details: dict[str, object] = {
        "runnel_seconds": round(statistics.median(ours), 2),
        "peer_seconds": round(statistics.median(peer), 2),
        "runnel_all": [round(seconds, 2) for seconds in ours],
        "peer_all": [round(seconds, 2) for seconds in peer],
        "load": [round(load, 1) for load in os.getloadavg()],
        "equal": True,
    }
    ratio = statistics.median(peer) / statistics.median(ours)
    return [Figure("command to first row, cold: stock PySpark / Runnel", ratio, "", ">= 1.6", details)]


def timed(script: str, words: list[str], env: dict[str, str]) -> tuple[str, float]:
    """Return the first line that the script prints, and after how many seconds."""
    started_at = time.monotonic()
    program = subprocess.Popen(
        [sys.executable, "-c", script, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    line = program.stdout.readline()
    seconds = time.monotonic() - started_at
    if program.wait() or not line:
        raise RuntimeError("a program of the benchmark failed")
    return line, seconds
