"""What is timed in pairs. Each workload prepares a folder for one checkout and then gives one time for each call.

Only what users can type is used, so that the same workload fits checkouts whose modules have other names.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from bench.clicks import SCHEMA as CLICKS
from bench.clicks import fill
from bench.graph import shop, wide, write_data, write_project
from bench.order_files import SCHEMA, write_files
from bench.paired.work_tree import WorkTree
from bench.parts.jdbc import TABLE
from bench.parts.service_run import Shop
from bench.served import Service, served
from tests.servers.kafka import Server as Kafka
from tests.servers.postgres import Server as Postgres

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


@contextmanager
def ingest(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time `runnel run` over 200 MB of CSV from nothing, and over one more small file among 1,000."""
    write_files(folder / "data", "csv", 200_000_000, 2)
    from_nothing = _SourceProjects(tree, folder / "large", f'rn.files("{folder / "data"}/*.csv", schema="{SCHEMA}")')
    small = folder / "small"
    write_files(small, "csv", 1_000_000, 1000)
    one_more = _SourceProjects(tree, folder / "more", f'rn.files("{small}/*.csv", schema="{SCHEMA}")')
    one_more.run_new()

    def add_file() -> float:
        text = (small / "0000.csv").read_text()
        (small / f"more-{len(list(small.iterdir()))}.csv").write_text(text)
        return one_more.run_last()

    yield {"200 MB of CSV, from nothing": from_nothing.run_new, "one more file of 1,000": add_file}


@contextmanager
def jdbc(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time `runnel run` over a table of PostgreSQL, from nothing."""
    with Postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(TABLE.format(rows=1_000_000))
        projects = _SourceProjects(tree, folder, f'rn.jdbc("{server.url}", table="orders", partitions=2)')
        yield {"1,000,000 rows of PostgreSQL, from nothing": projects.run_new}


@contextmanager
def stream_throughput(tree: WorkTree, folder: Path) -> Iterator[dict[str, Sample]]:
    """Time `runnel run` over a full topic of Kafka, from nothing."""
    with Kafka() as server:
        server.topic("clicks", 4)
        fill(server.servers, "clicks", 4, 500_000)
        source = f'rn.kafka("clicks", servers="{server.servers}", schema="{CLICKS}")'
        yield {"500,000 messages of Kafka, from nothing": _SourceProjects(tree, folder, source).run_new}


class _SourceProjects:
    """Projects with one source, run by a checkout; each has a new lake."""

    def __init__(self, tree: WorkTree, folder: Path, source: str) -> None:
        self._tree, self._folder, self._source = tree, folder, source
        self._count = 0

    def run_new(self) -> float:
        """Time the first run of a new project."""
        self._count += 1
        flows = self._folder / str(self._count) / "flows"
        flows.mkdir(parents=True)
        (flows.parent / "runnel.toml").write_text('[project]\nname = "paired"\n')
        (flows / "flow.py").write_text(f'import runnel as rn\n\nrn.source("ods.orders", {self._source})\n')
        return self.run_last()

    def run_last(self) -> float:
        """Time a run of the last project, which must have rows to read."""
        took = self._tree.runnel(self._folder / str(self._count), "run", "--json")
        _require(json.loads(took.output)["state"] == "succeeded", "there was nothing to read")
        return took.seconds


WORKLOADS = {
    "cold_start": cold_start,
    "nothing": nothing,
    "overhead": overhead,
    "large_graph": large_graph,
    "service_run": service_run,
    "ingest": ingest,
    "jdbc": jdbc,
    "stream_throughput": stream_throughput,
}


def _wide_project(folder: Path, tasks: int) -> Path:
    graph = wide(tasks)
    write_data(folder / "data", graph, orders=1000, users=200)
    write_project(folder / "project", graph, folder / "data")
    return folder / "project"


def _require(is_met: bool, message: str) -> None:
    if not is_met:
        raise RuntimeError(message)
