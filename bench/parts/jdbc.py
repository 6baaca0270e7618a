"""A table of PostgreSQL into the lake and out of it: Runnel against a hand-written Spark job, and against what is new.

In and out, both run as commands: from an empty lake to a committed Iceberg table, and from such a table to a filled
table of PostgreSQL. The Spark jobs are what its documentation shows: `spark.read.jdbc` in as many partitions as there
are cores, by ranges of the key, written with `writeTo`; and `write.jdbc` with batches that the driver may put
together. What is new is picked up by a process that runs already, as a worker does, and so is the whole that it is
compared with: once seeing also which rows vanished, for which PostgreSQL counts all rows, and once not. Making the
table, and the server's start, are not timed.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psycopg

import runnel as rn
from bench.figure import Figure
from bench.peers import CATALOG, Stock, runnel
from tests.servers.postgres import Server

ROWS = 10_000_000
NEW = 1_000  # one row in so many is changed
TABLE = """
CREATE TABLE orders AS
SELECT id, (id % 1000)::int AS seller_id, date '2026-01-01' + (id % 365)::int AS day,
    (id % 1000000 / 100.0)::numeric(12,2) AS amount, 'customer ' || id % 5000 AS name,
    timestamptz '2026-01-01' + id * interval '1 second' AS updated_at
FROM generate_series(1, {rows}::bigint) AS id;
ALTER TABLE orders ADD PRIMARY KEY (id);
CREATE INDEX ON orders (updated_at);
ANALYZE orders;
"""
CHANGE = """
UPDATE orders SET amount = amount + 1, updated_at = updated_at + interval '{years} years' WHERE id % {new} = {number}
"""
TIMES = 5
SOURCE = """import runnel as rn

rn.source("ods.orders", rn.jdbc("{url}", table="orders"{options}))
"""
SINK = """
rn.sink("ods.orders", rn.jdbc("{url}", table="orders_out", mode="append"))
"""
SCRIPT = """{session}
spark.sql("CREATE NAMESPACE IF NOT EXISTS {catalog}.ods")
rows = spark.read.jdbc(
    "jdbc:postgresql://127.0.0.1:{port}/postgres?user=runnel", "orders", column="id", lowerBound=1, upperBound={rows},
    numPartitions={cores}, properties={{"driver": "org.postgresql.Driver", "fetchsize": "10000"}},
)
rows.writeTo("{catalog}.ods.orders").createOrReplace()
print(spark.table("{catalog}.ods.orders").count())
"""
SCRIPT_OUT = """{session}
spark.table("{catalog}.ods.orders").write.jdbc(
    "jdbc:postgresql://127.0.0.1:{port}/postgres?user=runnel&reWriteBatchedInserts=true", "orders_spark",
    mode="append", properties={{"driver": "org.postgresql.Driver", "batchsize": "10000"}},
)
print({rows})
"""


def run(rows: int = ROWS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with Server() as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(TABLE.format(rows=rows))
        folder = Path(name)
        return [*_in_and_out(folder, server, rows), *_new(folder, server, rows)]


def _in_and_out(folder: Path, server: Server, rows: int) -> list[Figure]:
    cores = os.cpu_count() or 1
    values = {"catalog": CATALOG, "port": server.port, "rows": rows, "cores": cores}
    spark = _spark(folder / "spark", SCRIPT, values)
    whole = _project(folder / "whole", server.url, f", partitions={cores}")
    first = runnel(whole, "run").seconds
    nothing = runnel(whole, "run").seconds
    _check(whole, rows)
    flow = whole / "flows" / "flow.py"
    flow.write_text(flow.read_text() + SINK.format(url=server.url))
    out = runnel(whole, "run").seconds
    spark_out = _spark(folder / "spark", SCRIPT_OUT, values)
    _check_out(server, rows)
    comes: dict[str, object] = {"runnel_seconds": round(first, 2), "spark_seconds": round(spark, 2), "rows": rows}
    goes: dict[str, object] = {"runnel_seconds": round(out, 2), "spark_seconds": round(spark_out, 2), "rows": rows}
    return [
        Figure(f"jdbc: {rows:,} rows of PostgreSQL in: Spark / runnel", spark / first, "", ">= 0.9", comes),
        Figure(f"jdbc: {rows:,} rows out to PostgreSQL: Spark / runnel", spark_out / out, "", ">= 0.9", goes),
        Figure(f"jdbc: {rows:,} rows in: runnel run", first, "s"),
        Figure(f"jdbc: {rows:,} rows out: runnel run", out, "s"),
        Figure("jdbc: whole table, nothing changed: runnel run", nothing, "s"),
    ]


def _new(folder: Path, server: Server, rows: int) -> list[Figure]:
    cores = os.cpu_count() or 1
    found = []
    for place, (removed, told) in enumerate((("keep", ""), ("delete", ", others counted"))):
        options = f', watermark="updated_at", key="id", removed="{removed}", partitions={cores}'
        project = _project(folder / removed, server.url, options)
        whole = _picked_up(project)
        taken = []
        for number in range(place * TIMES, (place + 1) * TIMES):
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(CHANGE.format(new=NEW, number=number, years=10 * (number + 1)))
            taken.append(_picked_up(project))
        some = median(taken)
        _check(project, rows)
        details: dict[str, object] = {"whole_seconds": round(whole, 2), "seconds": [round(one, 2) for one in taken]}
        figure = f"jdbc: whole / 1 of {NEW:,} rows changed{told}"
        found += [Figure(figure, whole / some, "", ">= 20" if removed == "keep" else None, details)]
    return found


def _picked_up(project: Path) -> float:
    with rn.open(project) as lake:
        started = time.perf_counter()
        lake.run()
        return time.perf_counter() - started


def _project(folder: Path, url: str, options: str) -> Path:
    (folder / "flows").mkdir(parents=True)
    (folder / "runnel.toml").write_text('[project]\nname = "jdbc"\n')
    (folder / "flows" / "flow.py").write_text(SOURCE.format(url=url, options=options))
    return folder


def _spark(folder: Path, script: str, values: dict[str, object]) -> float:
    """Return how long a Spark job takes, after seeing that it moved all rows."""
    folder.mkdir(exist_ok=True)
    stock = Stock(folder)
    (folder / "script.py").write_text(script.format(session=stock.session(), **values))
    took = stock.script()
    if took.output.split()[-1] != str(values["rows"]):
        raise RuntimeError(f"the Spark job moved {took.output.split()[-1]} rows of {values['rows']}")
    return took.seconds


def _check(project: Path, rows: int) -> None:
    found = runnel(project, "query", "select count(*) as n, count(distinct id) as m from ods.orders", "--format", "csv")
    if found.output.split()[-1] != f"{rows},{rows}":
        raise RuntimeError(f"{project.name} has {found.output.split()[-1]} rows of {rows}")


def _check_out(server: Server, rows: int) -> None:
    """See that both brought the same rows."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        sums = "count(*), count(distinct id), sum(amount), sum(extract(epoch from updated_at)), count(distinct name)"
        ours, theirs = (
            connection.execute(f"SELECT {sums} FROM {table}").fetchone() for table in ("orders_out", "orders_spark")
        )
        connection.execute("DROP TABLE orders_out, orders_spark, runnel_deliveries")
    if ours != theirs or ours is None or ours[:2] != (rows, rows):
        raise RuntimeError(f"{ours} came out of the lake, {theirs} out of Spark")


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS):
        print(figure.line())
