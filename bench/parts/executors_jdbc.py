"""A table of PostgreSQL read on the executors of a cluster: one executor and two, against a Spark job."""

import sys
import tempfile
from pathlib import Path

import psycopg

from bench.clustered import Comparison, start_cluster
from bench.figure import Figure
from bench.parts.jdbc import TABLE
from bench.peers import CATALOG
from tests.servers.postgres import Server

ROWS = 5_000_000
PARTITIONS = 4
SOURCE = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", partitions={partitions}))'
JOB = """
rows = spark.read.jdbc(
    "jdbc:postgresql://127.0.0.1:{port}/postgres?user=runnel", "orders", column="id", lowerBound=1, upperBound={rows},
    numPartitions={partitions}, properties={{"driver": "org.postgresql.Driver", "fetchsize": "10000"}},
)
rows.writeTo("{catalog}.ods.orders").createOrReplace()
"""
ANSWER = (
    "select count(*) as n, sum(id) as ids, sum(amount) as amount, max(length(name)) as longest "
    "from {catalog}.ods.orders"
)


def run(rows: int = ROWS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with start_cluster() as cluster, Server() as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(TABLE.format(rows=rows))
        words = {"url": server.url, "port": server.port, "rows": rows, "partitions": PARTITIONS, "catalog": CATALOG}
        label = f"executors: PostgreSQL, {rows:,} rows"
        comparison = Comparison(label, cluster, Path(name), SOURCE.format(**words), JOB.format(**words), ANSWER)
        return comparison.measure(has_targets=False)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
