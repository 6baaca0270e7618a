"""Files into the lake: many small ones and then one more, and one large one against a hand-written Spark job.

The small ones are taken in by a process that runs already, as a worker does; only what comes after the first file
counts, so nothing of its start. The large one is compared twice: as commands, from an empty lake to a committed table,
and without what starting takes, which for Spark is the time of the write alone.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import runnel as rn
from bench.figure import Figure
from bench.peers import CATALOG, Stock
from bench.peers import runnel as command

MANY, FEW = 1_000, 10
LARGE_BYTES = 1_000_000_000
TIMES = 5
SCHEMA = "id long, seller_id int, day date, amount decimal(12,2), name string, at timestamp"
SOURCE = """import runnel as rn

rn.source("ods.orders", rn.files("data/*.csv", schema="{schema}"))
"""
SCRIPT = """{session}
import time
spark.sql("CREATE NAMESPACE IF NOT EXISTS {catalog}.ods")
spark.range(1).write.format("noop").mode("overwrite").save()
started = time.perf_counter()
rows = spark.read.csv({data!r}, schema="{schema}", header=True, mode="FAILFAST")
rows.writeTo("{catalog}.ods.orders").createOrReplace()
print(time.perf_counter() - started, spark.table("{catalog}.ods.orders").count())
"""


def run(many: int = MANY, large: int = LARGE_BYTES) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        return [*_small(Path(folder), many), *_large(Path(folder), large)]


def _small(folder: Path, many: int) -> list[Figure]:
    full, nearly_empty = _project(folder / "many"), _project(folder / "few")
    _files(nearly_empty, 0, FEW)
    _ingest(nearly_empty)
    _files(full, 0, many)
    first = _ingest(full)
    more, less = _one_more(full, many), _one_more(nearly_empty, FEW)
    nothing = _ingest(full)
    return [
        Figure(f"ingest: {many:,} CSV files", first, "s"),
        Figure(f"ingest: one more file, {many:,} there", more, "s", "<= 3 s"),
        Figure(
            f"ingest: one more file, {many:,} there / {FEW} there",
            more / less,
            target="<= 1.5",
            details={"seconds": more, "seconds_with_few": less},
        ),
        Figure(f"ingest: nothing new, {many:,} there", nothing, "s"),
    ]


def _large(folder: Path, size: int) -> list[Figure]:
    project = _project(folder / "large")
    data = project / "data" / "orders.csv"
    rows = _csv(data, size)
    spark, spark_write = _spark(folder / "spark", data, rows)
    ours = command(project, "run").seconds
    _check(project, rows)
    warm = _project(folder / "warm")
    data.rename(warm / "data" / "orders.csv")
    ours_warm = _ingest(warm)
    details: dict[str, object] = {"runnel_seconds": round(ours, 2), "spark_seconds": round(spark, 2), "bytes": size}
    of_write: dict[str, object] = {"runnel_seconds": round(ours_warm, 2), "spark_seconds": round(spark_write, 2)}
    named = f"ingest: CSV of {size / 1e6:,.0f} MB into Iceberg: Spark / runnel"
    return [
        Figure(f"{named}, as commands", spark / ours, "", ">= 0.95", details),
        Figure(f"{named}, already started", spark_write / ours_warm, "", ">= 0.95", of_write),
    ]


def _project(folder: Path) -> Path:
    (folder / "flows").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "runnel.toml").write_text('[project]\nname = "ingest"\n')
    (folder / "flows" / "flow.py").write_text(SOURCE.format(schema=SCHEMA))
    return folder


def _files(project: Path, first: int, count: int) -> None:
    for number in range(first, first + count):
        rows = "".join(_row(number * 100 + row) for row in range(100))
        (project / "data" / f"{number:06d}.csv").write_text(_HEADER + rows)


_HEADER = "id,seller_id,day,amount,name,at\n"


def _row(number: int) -> str:
    day, second = number % 28 + 1, number % 60
    amount, name = number % 100_000 / 100, f'"customer, {number % 5_000}"'
    return f"{number},{number % 1000},2026-01-{day:02d},{amount:.2f},{name},2026-01-{day:02d}T10:00:{second:02d}Z\n"


def _csv(path: Path, size: int) -> int:
    """Write a file of about this size and return how many rows it has."""
    done = rows = 0
    with path.open("w") as out:
        done += out.write(_HEADER)
        while done < size:
            done += out.write("".join(_row(number) for number in range(rows, rows + 1000)))
            rows += 1000
    return rows


def _one_more(project: Path, there: int) -> float:
    """Return the median time of taking in one file among those that are there."""
    taken = []
    for number in range(TIMES):
        _files(project, there + number, 1)
        taken.append(_ingest(project))
    return median(taken)


def _ingest(project: Path) -> float:
    with rn.open(project) as lake:
        started = time.perf_counter()
        lake.run()
        return time.perf_counter() - started


def _spark(folder: Path, data: Path, rows: int) -> tuple[float, float]:
    """Return how long the Spark job takes, and its write alone, after seeing that it brought all rows."""
    folder.mkdir()
    stock = Stock(folder)
    text = SCRIPT.format(session=stock.session(), catalog=CATALOG, data=str(data), schema=SCHEMA)
    (folder / "script.py").write_text(text)
    took = stock.script()
    write, count = took.output.split()[-2:]
    if count != str(rows):
        raise RuntimeError(f"the Spark job made {count} rows of {rows}")
    return took.seconds, float(write)


def _check(project: Path, rows: int) -> None:
    found = command(
        project, "query", "select count(*) as n, count(distinct id) as m from ods.orders", "--format", "csv"
    )
    if found.output.split()[-1] != f"{rows},{rows}":
        raise RuntimeError(f"{project.name} has {found.output.split()[-1]} rows of {rows}")


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line())
