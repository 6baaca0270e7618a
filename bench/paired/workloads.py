"""What is timed in pairs. Each workload prepares a folder for one checkout and then gives one time for each call.

Only what users can type is used, so that the same workload fits checkouts whose modules have other names.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.graph import shop, wide, write_data, write_project
from bench.paired.work_tree import WorkTree
from bench.parts.service_run import Shop
from bench.served import Service, served

Sample = Callable[[], float]
"""Do the work once and return its seconds."""

_SETTLE = "import sys, pathlib; from bench.parts.large_graph import settle; settle(pathlib.Path(sys.argv[1]))"
_PORTS = {"base": 8491, "current": 8492}
_WARM_UP_RUNS = 40  # Java compiles most of what a small run needs within these


@contextmanager
def cold_start(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time a query that Spark answers, from the command to its end, with the class-data archive in place."""
    project = _wide_project(folder, tasks=5)
    tree.runnel(project, "run")
    words = ("query", "--engine", "spark", "select status, count(*) from ods.orders group by 1 order by 1")
    expected = tree.runnel(project, *words).output

    def sample() -> float:
        took = tree.runnel(project, *words)
        _require(took.output == expected, "the answers of Spark differ")
        return took.seconds

    yield {"query on Spark, cold": sample}


@contextmanager
def nothing(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time `runnel run` on 200 tasks if nothing changed."""
    project = _wide_project(folder, tasks=200)
    tree.runnel(project, "run")
    state = json.loads(tree.runnel(project, "run", "--json").output)["state"]
    _require(state == "nothing", f"a run without changes must end with `nothing`, not `{state}`")
    yield {"nothing changed, 200 tasks": lambda: tree.runnel(project, "run").seconds}


@contextmanager
def overhead(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time `runnel run` of 20 tasks on small data from nothing: a new project each time."""
    count = 0

    def sample() -> float:
        nonlocal count
        count += 1
        root, graph = folder / str(count), shop()
        root.mkdir()
        write_data(root / "data", graph, orders=5000, users=500)
        write_project(root / "project", graph, root / "data")
        return tree.runnel(root / "project", "run").seconds

    yield {"20 tasks on small data, from nothing": sample}


@contextmanager
def large_graph(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time `validate` and `plan` on 2,000 tasks, before anything is computed and when everything is."""
    empty, computed = _wide_project(folder / "empty", 2000), _wide_project(folder / "computed", 2000)
    tree.runnel(empty, "tables")
    tree.script(_SETTLE, computed)
    for project, action in ((empty, "full"), (computed, "skip")):
        steps = json.loads(tree.runnel(project, "plan", "--json").output)["steps"]
        count = sum(step["action"] == action for step in steps)
        _require(count >= 2000, f"a plan of 2,000 tasks must `{action}` all of them, not {count}")
    yield {
        "validate, 2,000 tasks": lambda: tree.runnel(empty, "validate").seconds,
        "plan, 2,000 tasks, nothing computed": lambda: tree.runnel(empty, "plan").seconds,
        "plan, 2,000 tasks, all computed": lambda: tree.runnel(computed, "plan").seconds,
    }


@contextmanager
def service_run(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time a small run in a warm service: by the command, and asked for over REST until its commit is visible."""
    project = Shop(folder)
    project.come()

    def over_rest() -> float:
        return service.timed_run(project.come)

    def by_command() -> float:
        project.come()
        return tree.runnel(project.root, "run").seconds

    with ExitStack() as stack:
        service: Service = stack.enter_context(served(folder, _PORTS[tree.name], tree.command(folder, "up"), tree.env))
        for _ in range(_WARM_UP_RUNS):
            over_rest()
        yield {"small run in a warm service: command": by_command, "small run in a warm service: REST": over_rest}
        project.require(service)


WORKLOADS = {
    "cold_start": cold_start,
    "nothing": nothing,
    "overhead": overhead,
    "large_graph": large_graph,
    "service_run": service_run,
}


def _wide_project(folder: Path, tasks: int) -> Path:
    graph = wide(tasks)
    write_data(folder / "data", graph, orders=1000, users=200)
    write_project(folder / "project", graph, folder / "data")
    return folder / "project"


def _require(is_met: bool, message: str) -> None:
    if not is_met:
        raise RuntimeError(message)
