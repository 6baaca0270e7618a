"""A graph of 20 tasks on small data, from nothing: the whole `runnel run` against a PySpark script as a person writes
it, and against `spark-pipelines run`. All write Iceberg tables from the same files with the same expressions.

They take turns. A second run after one more file is timed for information: the peers write everything again.
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from bench.figure import Figure
from bench.graph import Graph, add_orders, shop, write_data, write_pipeline, write_project, write_script
from bench.peers import CATALOG, Stock, Took, require_equal, rows, runnel

REPEATS = 3
ORDERS, USERS = 5000, 500
OURS, SCRIPT, PIPELINES = "runnel run", "hand-written PySpark", "spark-pipelines run"


def run(repeats: int = REPEATS) -> list[Figure]:
    first: dict[str, list[Took]] = {OURS: [], SCRIPT: [], PIPELINES: []}
    second: dict[str, list[Took]] = {OURS: [], SCRIPT: [], PIPELINES: []}
    ready()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            _round(Path(name), shop(), first, second)
    return _figures(first, second)


def ready() -> None:
    """Have what all three need in place, as it is from a user's second command on."""
    from bench.peers import pipelines_packages
    from runnel.spark import cds_archive_builder
    from runnel.spark.jvm.command_line import build_class_path
    from runnel.spark.jvm.jars import ensure_jars
    from runnel.spark.jvm.java_home import find_java

    java = find_java()
    cds_archive_builder.build(java, build_class_path(ensure_jars(java), {}))
    pipelines_packages()


def _round(folder: Path, graph: Graph, first: dict[str, list[Took]], second: dict[str, list[Took]]) -> None:
    data, project = folder / "data", folder / "project"
    script, pipelines = Stock(folder / "script"), Stock(folder / "pipelines")
    write_data(data, graph, orders=ORDERS, users=USERS)
    write_project(project, graph, data)
    script.folder.mkdir()
    write_script(script.folder / "script.py", graph, data, script.session())
    write_pipeline(pipelines.folder, graph, data, CATALOG)
    for times in (first, second):
        times[SCRIPT].append(script.script())
        times[OURS].append(runnel(project, "run"))
        times[PIPELINES].append(pipelines.pipelines(graph.layers))
        made = rows(project / ".runnel" / "catalog.db", "main", graph.tables)
        require_equal(made, rows(script.database, CATALOG, graph.tables), SCRIPT)
        require_equal(made, rows(pipelines.database, CATALOG, graph.tables), PIPELINES)
        add_orders(data, ORDERS, 100, USERS)
    shutil.rmtree(folder / "project")


def _figures(first: dict[str, list[Took]], second: dict[str, list[Took]]) -> list[Figure]:
    def seconds(times: dict[str, list[Took]], who: str) -> float:
        return statistics.median(took.seconds for took in times[who])

    details: dict[str, object] = {
        **{who: [round(took.seconds, 2) for took in times] for who, times in first.items()},
        **{f"{who}, one more file": [round(took.seconds, 2) for took in times] for who, times in second.items()},
        "equal": True,
    }
    shown = "20 tasks on small data"
    ours, again = seconds(first, OURS), seconds(second, OURS)
    return [
        Figure(f"{shown}: runnel run / {SCRIPT}", ours / seconds(first, SCRIPT), "", "<= 1.1", details),
        Figure(f"{shown}: {PIPELINES} / runnel run", seconds(first, PIPELINES) / ours, "", ">= 2"),
        Figure(f"{shown}: runnel run", ours, "s"),
        Figure(f"{shown}, one more file: runnel run / {SCRIPT}", again / seconds(second, SCRIPT)),
        Figure(f"{shown}, one more file: {PIPELINES} / runnel run", seconds(second, PIPELINES) / again),
    ]
