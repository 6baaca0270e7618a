"""Many small files of a source against a few large ones with the same rows.

Loads are commands, as people run them, and are also measured in a process that runs already, as a worker does; so are
the query and the task. Both projects are measured in turns.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import runnel as rn
from bench.figure import Figure
from bench.peers import runnel as command

MANY, FEW, ROWS = 10_000, 10, 1_000_000
TIMES = 5
FLOW = """import runnel as rn
from pyspark.sql import functions as F

rn.source("ods.orders", rn.files("data/*.csv", schema="{schema}"))


@rn.task("dws.sellers", volatile=True)
def sellers(orders):
    return orders.groupBy("seller_id").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
"""
SCHEMA = "id long, seller_id int, day date, amount decimal(12,2), name string, at timestamp"
HEADER = "id,seller_id,day,amount,name,at\n"
QUERY = "select seller_id, sum(amount) as revenue from ods.orders group by seller_id order by revenue desc limit 10"
SOURCE, TASK = "ods.orders", "dws.sellers"
Load = Callable[[Path, str], float]


def run(many: int = MANY, rows: int = ROWS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        small, large = _project(Path(folder) / "small", many, rows), _project(Path(folder) / "large", FEW, rows)
        label = f"small files: {many:,} files / {FEW} files"
        return [
            _alternate(f"{label}, first load, already started", small, large, _load_warm, target=None),
            _alternate(f"{label}, first load", small, large, _load_first, target="<= 3"),
            _alternate(f"{label}, query", small, large, lambda project, _: _query(project, "duckdb")),
            _alternate(f"{label}, query on Spark", small, large, lambda project, _: _query(project, "spark")),
            _alternate(f"{label}, task", small, large, lambda project, _: _run(project, TASK)),
            _alternate(f"{label}, one more file", small, large, partial(_add_file, load=_run_command)),
            _alternate(f"{label}, one changed file", small, large, partial(_change_file, load=_run_command)),
            _alternate(f"{label}, one more file, already started", small, large, _add_file, target=None),
            _alternate(f"{label}, one changed file, already started", small, large, _change_file, target=None),
            Figure(f"small files: data files of {many:,} files", _count_data_files(small)),
        ]


def _alternate(
    name: str, small: Path, large: Path, measure: Callable[[Path, int], float], target: str | None = "<= 1.5"
) -> Figure:
    """Measure both projects in turns, after a first time that does not count."""
    times: dict[Path, list[float]] = {small: [], large: []}
    for number in range(TIMES + 1):
        for project, taken in times.items():
            taken.append(measure(project, number))
    seconds, seconds_of_large_files = (median(taken[1:]) for taken in times.values())
    details: dict[str, object] = {"seconds": round(seconds, 3), "large_seconds": round(seconds_of_large_files, 3)}
    return Figure(name, seconds / seconds_of_large_files, target=target, details=details)


def _project(folder: Path, count: int, rows: int) -> Path:
    (folder / "flows").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "runnel.toml").write_text('[project]\nname = "small_files"\n')
    (folder / "flows" / "flow.py").write_text(FLOW.format(schema=SCHEMA))
    per_file = rows // count
    for number in range(count):
        text = "".join(_row(number * per_file + row) for row in range(per_file))
        (folder / "data" / f"{number:06d}.csv").write_text(HEADER + text)
    return folder


def _load_first(project: Path, number: int) -> float:
    """Load the files of a project into a new lake by a command; the last time into the project's own."""
    target = project if number == TIMES else _copy_project(project, f"cold-{number}")
    return _run_command(target, SOURCE)


def _load_warm(project: Path, number: int) -> float:
    """Load the files of a project into a new lake in this process."""
    return _run(_copy_project(project, f"warm-{number}"), SOURCE)


def _copy_project(project: Path, label: str) -> Path:
    """Return a project with the same files and without a lake."""
    other = project.with_name(f"{project.name}-{label}")
    (other / "flows").mkdir(parents=True)
    (other / "data").symlink_to(project / "data")
    for name in ("runnel.toml", "flows/flow.py"):
        (other / name).write_text((project / name).read_text())
    return other


def _row(number: int) -> str:
    day, second = number % 28 + 1, number % 60
    amount, name = number % 100_000 / 100, f'"customer, {number % 5_000}"'
    return f"{number},{number % 1000},2026-01-{day:02d},{amount:.2f},{name},2026-01-{day:02d}T10:00:{second:02d}Z\n"


def _run(project: Path, table: str) -> float:
    with rn.open(project) as lake:
        started = time.perf_counter()
        lake.run(table)
        return time.perf_counter() - started


def _query(project: Path, engine: str) -> float:
    with rn.open(project) as lake:
        started = time.perf_counter()
        lake.query(QUERY, engine=engine).rows()
        return time.perf_counter() - started


def _run_command(project: Path, table: str) -> float:
    return command(project, "run", "--select", table).seconds


def _add_file(project: Path, number: int, load: Load = _run) -> float:
    rows = "".join(_row(ROWS + 100 * number + row) for row in range(100))
    count = len(list((project / "data").glob("more-*.csv")))
    (project / "data" / f"more-{count}.csv").write_text(HEADER + rows)
    return load(project, SOURCE)


def _change_file(project: Path, number: int, load: Load = _run) -> float:
    file = project / "data" / f"{number:06d}.csv"
    file.write_text(file.read_text() + _row(2 * ROWS + number))
    return load(project, SOURCE)


def _count_data_files(project: Path) -> int:
    with rn.open(project) as lake:
        return lake.table(SOURCE).files or 0


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line())
