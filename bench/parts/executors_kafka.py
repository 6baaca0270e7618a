"""Kafka read on the executors of a cluster: one executor and two, against a batch job of Spark's connector."""

import sys
import tempfile
from pathlib import Path

from bench.clicks import SCHEMA, fill
from bench.clustered import Comparison, start_cluster
from bench.connector import connector
from bench.figure import Figure
from bench.peers import CATALOG
from tests.servers.kafka import Server

EVENTS = 4_000_000
PARTITIONS = 4
SOURCE = 'rn.source("ods.orders", rn.kafka("clicks", servers="{servers}", schema="{schema}"))'
JOB = """
from pyspark.sql import functions as F
reader = spark.read.format("kafka").option("kafka.bootstrap.servers", {servers!r}).option("subscribe", "clicks")
rows = reader.load().select(F.from_json(F.col("value").cast("string"), {schema!r}).alias("row")).select("row.*")
rows.writeTo("{catalog}.ods.orders").createOrReplace()
"""
ANSWER = "select count(*) as n, sum(id) as ids, sum(user) as users, count(distinct page) as p from {catalog}.ods.orders"


def run(events: int = EVENTS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with start_cluster() as cluster, Server() as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        server.topic("clicks", PARTITIONS)
        fill(server.servers, "clicks", PARTITIONS, events)
        words = {"servers": server.servers, "schema": SCHEMA, "catalog": CATALOG}
        label = f"executors: Kafka, {events:,} messages"
        flow, job = SOURCE.format(**words), JOB.format(**words)
        comparison = Comparison(label, cluster, Path(name), flow, job, ANSWER, jars=tuple(connector()))
        return comparison.measure(has_targets=False)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
