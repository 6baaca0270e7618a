"""A full topic of Kafka into an Iceberg table: what `runnel up` does, against a hand-written Structured Streaming job.

Both read the same JSON events, a million at a time, in a process that has started and has taken in a few events of
another topic before; timed is from the start of reading until all rows are committed. The Spark job is what its
documentation shows: the Kafka source, `from_json`, `toTable` into Iceberg, until all that is there is taken.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from pyiceberg.table import StaticTable

import runnel as rn
from bench.clicks import SCHEMA, fill
from bench.connector import Streaming
from bench.figure import Figure
from bench.peers import CATALOG
from runnel.client.lake import Lake
from runnel.names import TableName
from runnel.project.inspection.stream_health import read_measures
from runnel.project.planning.plan_project import load_project_flow
from runnel.service.worker.loops.loop_supervisor import LoopSupervisor
from tests.servers.kafka import Server

EVENTS = 5_000_000
WARM = 1_000
PARTITIONS = 4
MOST = 1_000_000
TABLE = TableName.parse("ods.clicks")
SOURCE = """import runnel as rn

rn.source("ods.clicks", rn.kafka("{topic}", servers="{servers}", schema="{schema}"), poll="continuous")
"""
SCRIPT = """
spark.sql("CREATE NAMESPACE IF NOT EXISTS {catalog}.ods")
stream("warm", "{catalog}.ods.warm", {schema!r}, availableNow=True).awaitTermination()
started = time.perf_counter()
query = stream("clicks", "{catalog}.ods.clicks", {schema!r}, availableNow=True)
query.awaitTermination()
print(time.perf_counter() - started)
"""
SUMS = """
SELECT count(*), count(DISTINCT id), sum("user"), sum(round(amount * 100)::hugeint), sum(length(page)),
    sum(epoch_ms(ts)::hugeint)
FROM found
"""


def run(events: int = EVENTS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with Server() as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        folder = Path(name)
        for topic, count in (("warm", WARM), ("clicks", events)):
            server.topic(topic, PARTITIONS)
            fill(server.servers, topic, PARTITIONS, count)
        _runnel(folder / "warm", server.servers, "warm", WARM)
        ours, found = _runnel(folder / "runnel", server.servers, "clicks", events)
        spark, made = _spark(folder / "spark", server.servers)
        if found != made or found[:2] != (events, events):
            raise RuntimeError(f"Runnel took in {found}, Spark {made}, of {events} events")
    details: dict[str, object] = {"runnel_seconds": round(ours, 2), "spark_seconds": round(spark, 2), "events": events}
    named = f"stream: {events:,} events of Kafka into Iceberg"
    return [
        Figure(f"{named}: Spark / runnel", spark / ours, "", ">= 0.95", details),
        Figure(f"{named}: runnel", events / ours, "events/s"),
        Figure(f"{named}: Spark", events / spark, "events/s"),
    ]


def _runnel(folder: Path, servers: str, topic: str, events: int) -> tuple[float, tuple[object, ...]]:
    """Return how long the intake takes, and sums over what it brought."""
    (folder / "flows").mkdir(parents=True)
    (folder / "runnel.toml").write_text('[project]\nname = "throughput"\n')
    (folder / "flows" / "flow.py").write_text(SOURCE.format(topic=topic, servers=servers, schema=SCHEMA))
    with rn.open(folder) as lake:
        with _kept(lake) as (started, told):
            _await(lake, events, started, told)
            seconds = time.perf_counter() - started
        return seconds, _sums(lake.store.state("main")[TABLE].location)


@contextmanager
def _kept(lake: Lake) -> Iterator[tuple[float, list[str]]]:
    """Keep a project going as `runnel up` does, in a thread; return when it started and what it tells."""
    told: list[str] = []
    keeper = LoopSupervisor(lake, load_project_flow(lake), "main", told.append)
    thread = threading.Thread(target=keeper.run)
    started = time.perf_counter()
    thread.start()
    try:
        yield started, told
    finally:
        keeper.stop.set()
        thread.join()
        keeper.shut_down()


def _await(lake: Lake, events: int, started: float, told: list[str]) -> None:
    """Wait until so many rows are committed; something that is told means that it does not go well."""
    while (count := sum(one.detail["rows"] for one in read_measures(lake, TABLE))) < events:
        if told or time.perf_counter() - started > 300:
            raise RuntimeError(f"only {count} of {events} events were taken in: {told}")
        time.sleep(0.05)


def _spark(folder: Path, servers: str) -> tuple[float, tuple[object, ...]]:
    stock = Streaming(folder)
    stock.write(servers, MOST, SCRIPT.format(catalog=CATALOG, schema=SCHEMA))
    seconds = float(stock.script().output.split()[-1])
    return seconds, _sums(stock.location("ods.clicks") or "")


def _sums(location: str) -> tuple[object, ...]:
    found = StaticTable.from_metadata(location).scan().to_arrow()
    with duckdb.connect() as connection:
        connection.register("found", found)
        row = connection.execute(SUMS).fetchone()
    assert row is not None
    return row


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
