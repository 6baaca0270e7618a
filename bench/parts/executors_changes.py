"""A change log applied on the executors of a cluster: one executor and two, against a Spark job; memory."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import duckdb

from bench.clustered import Comparison, start_cluster
from bench.figure import Figure
from bench.peers import CATALOG

BYTES = 300_000_000
LARGER = 10
FILES = 8
ROW_BYTES = 89
SCHEMA = "id long, ts long, op string, name string"
SOURCE = """
rn.source("ods.orders", rn.changes(rn.files("{data}/*.jsonl", schema="{schema}"),
    key="id", sequence_by="ts", delete_when="op = 'D'"))
"""
JOB = """
from pyspark.sql import Window, functions as F
latest = Window.partitionBy("id").orderBy(F.desc("ts"))
log = spark.read.json({data!r}, schema={schema!r}).withColumn("rank", F.row_number().over(latest))
log.where("rank = 1 and op <> 'D'").drop("rank").writeTo("{catalog}.ods.orders").createOrReplace()
"""
ANSWER = "select count(*) as n, sum(id) as ids, sum(ts) as moments, max(name) as last from {catalog}.ods.orders"


def run(size: int = BYTES) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with start_cluster() as cluster, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        folder = Path(name)
        data, more = folder / "data", folder / "larger" / "data"
        write_log(data, size, FILES)
        write_log(more, size * LARGER, FILES * LARGER)
        words = {"schema": SCHEMA, "catalog": CATALOG}
        flow, job = SOURCE.format(data=data, **words), JOB.format(data=str(data), **words)
        comparison = Comparison(f"executors: change log of {size / 1e6:,.0f} MB", cluster, folder, flow, job, ANSWER)
        larger = replace(comparison, folder=folder / "larger", flow=SOURCE.format(data=more, **words))
        return [*comparison.measure(has_targets=False), comparison.measure_memory(larger, LARGER)]


def write_log(folder: Path, size: int, files: int) -> None:
    """Write a log in which each key has about four changes, and one key in ten is deleted at last."""
    folder.mkdir(parents=True)
    rows = size // files // ROW_BYTES
    keys = rows * files // 4
    with duckdb.connect() as connection:
        for number in range(files):
            select = (
                f"SELECT hash(i) % {keys} AS id, i AS ts, CASE WHEN hash(i, 1) % 10 = 0 THEN 'D' ELSE 'U' END AS op, "
                f"'n' || md5(i::VARCHAR) AS name FROM range({number * rows}, {(number + 1) * rows}) AS numbers(i)"
            )
            connection.execute(f"COPY ({select}) TO '{folder}/{number:04d}.jsonl' (FORMAT json)")


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
