"""A table of PostgreSQL into the lake: Runnel against a hand-written Spark job, and against reading only what is new.

Both run as commands, from an empty lake to a committed Iceberg table. The Spark job is what its documentation shows:
`spark.read.jdbc` in as many partitions as there are cores, by ranges of the key, written with `writeTo`. Making the
table, and the server's start, are not timed.
"""

import os
import sys
import tempfile
from pathlib import Path

import psycopg

from bench.figure import Figure
from bench.peers import CATALOG, Stock, runnel
from tests.postgres import Server

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
UPDATE orders SET amount = amount + 1, updated_at = updated_at + interval '10 years' WHERE id % {new} = 0
"""
SOURCE = """import runnel as rn

rn.source("ods.orders", rn.jdbc("{url}", table="orders"{options}))
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


def run(rows: int = ROWS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with Server() as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(TABLE.format(rows=rows))
        folder = Path(name)
        cores = os.cpu_count() or 1
        spark = _spark(folder / "spark", server.port, rows, cores)
        whole = _project(folder / "whole", server.url, f", partitions={cores}")
        first = runnel(whole, "run").seconds
        nothing = runnel(whole, "run").seconds
        marked = _project(folder / "marked", server.url, ', watermark="updated_at", key="id"')
        runnel(marked, "run")
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(CHANGE.format(new=NEW))
        some = runnel(marked, "run").seconds
        for project in (whole, marked):
            _check(project, rows)
    details: dict[str, object] = {"runnel_seconds": round(first, 2), "spark_seconds": round(spark, 2), "rows": rows}
    return [
        Figure(f"jdbc: {rows:,} rows of PostgreSQL: Spark JDBC / runnel run", spark / first, "", ">= 0.9", details),
        Figure(f"jdbc: {rows:,} rows: runnel run", first, "s"),
        Figure("jdbc: whole table, nothing changed: runnel run", nothing, "s"),
        Figure(f"jdbc: 1 of {NEW:,} rows changed, by watermark and key: runnel run", some, "s"),
        Figure("jdbc: all rows / the changed ones", first / some),
    ]


def _project(folder: Path, url: str, options: str) -> Path:
    (folder / "flows").mkdir(parents=True)
    (folder / "runnel.toml").write_text('[project]\nname = "jdbc"\n')
    (folder / "flows" / "flow.py").write_text(SOURCE.format(url=url, options=options))
    return folder


def _spark(folder: Path, port: int, rows: int, cores: int) -> float:
    """Return how long the Spark job takes, after seeing that it brought all rows."""
    folder.mkdir()
    stock = Stock(folder)
    text = SCRIPT.format(session=stock.session(), catalog=CATALOG, port=port, rows=rows, cores=cores)
    (folder / "script.py").write_text(text)
    took = stock.script()
    if took.output.split()[-1] != str(rows):
        raise RuntimeError(f"the Spark job made {took.output.split()[-1]} rows of {rows}")
    return took.seconds


def _check(project: Path, rows: int) -> None:
    found = runnel(project, "query", "select count(*) as n, count(distinct id) as m from ods.orders", "--format", "csv")
    if found.output.split()[-1] != f"{rows},{rows}":
        raise RuntimeError(f"{project.name} has {found.output.split()[-1]} rows of {rows}")


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS):
        print(figure.line())
