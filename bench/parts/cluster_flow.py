"""The flow of 20 tasks on small data, from nothing: on a cluster on this machine against local mode, as commands."""

import tempfile
from pathlib import Path
from statistics import median

from bench.clustered import start_cluster, write_settings
from bench.figure import Figure
from bench.graph import shop, write_data, write_project
from bench.parts.overhead import ORDERS, USERS, ready
from bench.peers import runnel

REPEATS = 3
PLACES = ("cluster", "local")
ANSWER = "select count(*) as n, sum(amount) as amount, max(city) as last from dws.city_day"


def run(repeats: int = REPEATS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    seconds: dict[str, list[float]] = {place: [] for place in PLACES}
    answers: set[str] = set()
    ready()
    with start_cluster() as cluster:
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
                folder, graph = Path(name), shop()
                write_data(folder / "data", graph, orders=ORDERS, users=USERS)
                for place, measured in seconds.items():
                    project = folder / place
                    write_project(project, graph, folder / "data")
                    if place == "cluster":
                        write_settings(project, cluster)
                    measured.append(runnel(project, "run").seconds)
                    answers.add(runnel(project, "query", ANSWER, "--format", "csv").output)
    if len(answers) != 1:
        raise RuntimeError(f"the answers differ: {answers}")
    on_cluster, local = (median(seconds[place]) for place in PLACES)
    details: dict[str, object] = {"cluster_seconds": round(on_cluster, 2), "local_seconds": round(local, 2)}
    return [Figure("executors: 20 tasks on small data: on a cluster / local", on_cluster / local, details=details)]


if __name__ == "__main__":
    for figure in run():
        print(figure.line(), figure.details)
