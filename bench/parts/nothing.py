"""Nothing changed, 200 tasks: the whole `runnel run` command against importing what every flow file imports.

Beside it the same graph as a peer refreshes it, on Iceberg tables too: by `spark-pipelines run`, which computes every
materialized view again, and by a PySpark script that writes the tables one by one.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench.figure import Figure
from bench.graph import Graph, wide, write_data, write_pipeline, write_project, write_script
from bench.peers import CATALOG, Stock, Took, require_equal, rows, runnel, timed

REPEATS = 11
IMPORT = "import pyspark.sql.functions"
# Whatever would start a process ends the command with this code; a JVM is a process.
SPAWNED = 97
ALONE = f"""
import os, sys
starts = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system")
sys.addaudithook(lambda event, _: os._exit({SPAWNED}) if event in starts else None)
sys.argv[0] = "runnel"
from runnel.cli.main import main
main()
"""


def run(tasks: int = 200) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder, graph = Path(name), wide(tasks)
        data, project = folder / "data", folder / "project"
        write_data(data, graph, orders=1000, users=200)
        write_project(project, graph, data)
        first = runnel(project, "run")
        ours, imported = _quick(project)
        again = _peers(folder, graph, data, project)
    shown = f"nothing changed, {tasks} tasks"
    mine, base = (statistics.median(took.seconds for took in times) for times in (ours, imported))
    details: dict[str, object] = {
        "runnel_seconds": round(mine, 3),
        "import_seconds": round(base, 3),
        "runnel_all": [round(took.seconds, 3) for took in ours],
        "import_all": [round(took.seconds, 3) for took in imported],
        "runnel_cpu_seconds": round(statistics.median(took.cpu_seconds for took in ours), 3),
        "import_cpu_seconds": round(statistics.median(took.cpu_seconds for took in imported), 3),
        "runnel_first_run_seconds": round(first.seconds, 1),
        "processes_started": 0,
        "equal": True,
    }
    beside: dict[str, object] = {"tables": "Iceberg, all of them written again"}
    return [
        Figure(f"{shown}: runnel run / python -c '{IMPORT}'", mine / base, "", "<= 2", details),
        Figure(f"{shown}: runnel run", mine, "s"),
        *(Figure(f"{shown}: {who}", took.seconds, "s", None, beside) for who, took in again.items()),
        *(Figure(f"{shown}: {who} / runnel run", took.seconds / mine) for who, took in again.items()),
    ]


def _quick(project: Path) -> tuple[list[Took], list[Took]]:
    """Time the run and the import in turns, after seeing that the run does nothing and starts no process."""
    plan = json.loads(runnel(project, "plan", "--json").output)
    if plan["jvm"] or any(step["action"] != "skip" for step in plan["steps"]):
        raise RuntimeError("a plan where nothing changed must skip everything, without Spark")
    state = json.loads(timed([sys.executable, "-c", ALONE, "-C", project, "run", "--json"]).output)["state"]
    if state != "nothing":
        raise RuntimeError(f"a run where nothing changed must end with `nothing`, not `{state}`")
    ours, imported = [], []
    timed([sys.executable, "-c", IMPORT])
    for _ in range(REPEATS):
        imported.append(timed([sys.executable, "-c", IMPORT]))
        ours.append(runnel(project, "run"))
    return ours, imported


def _peers(folder: Path, graph: Graph, data: Path, project: Path) -> dict[str, Took]:
    """Let each peer make the tables, compare them with ours, and time how long it takes to make them again."""
    expected = rows(project / ".runnel" / "catalog.db", "main", graph.tables)
    again = {}
    pipeline, plain = Stock(folder / "pipelines"), Stock(folder / "plain")
    write_pipeline(pipeline.folder, graph, data, CATALOG)
    pipeline.pipelines(graph.layers)
    again["spark-pipelines run"] = pipeline.pipelines(graph.layers)
    require_equal(expected, rows(pipeline.database, CATALOG, graph.tables), "spark-pipelines")
    plain.folder.mkdir()
    write_script(plain.folder / "script.py", graph, data, plain.session())
    plain.script()
    again["plain PySpark writes"] = plain.script()
    require_equal(expected, rows(plain.database, CATALOG, graph.tables), "plain PySpark")
    return again
