"""Projects on a standalone Spark cluster on this machine, and Spark jobs written by hand on the same cluster.

The cluster has two workers of one core each. Start-up is not measured: both sides have their executors and have warmed
them up before the clock starts.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.cluster_driver import WARM_UPS
from bench.figure import Figure
from bench.machine_scaling import measure_machine
from bench.order_files import ANSWER, SCHEMA, link_files, write_files
from bench.peers import CATALOG, Stock, timed
from bench.peers import runnel as command
from tests.servers.spark_cluster import Cluster

EXECUTORS = 2
TIMES = 3
_SECRET = "BENCH_CLUSTER_SECRET"
_EXECUTOR_MEMORY = "1g"
_SETTINGS = """[project]
name = "bench"
[spark]
master = "{master}"
run_on = "executors"
shared = ["/"]
[spark.conf]
spark.authenticate.secret = {{ env = "{secret}" }}
spark.driver.memory = "1g"
spark.executor.memory = "{memory}"
spark.executor.cores = 1
spark.executor.instances = {executors}
spark.cores.max = {executors}
"""
_FILES = 8
_WARM_FILES = 8
_WARM_SOURCES = "".join(f'rn.source("{name}", rn.files("warm/*.csv", schema="id long"))\n' for name in WARM_UPS)
_WARM_JOB = f"""
import time
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1 < {EXECUTORS}:
    time.sleep(0.1)
for _ in range({len(WARM_UPS)}):
    spark.range(100000).repartition(8).write.format("noop").mode("overwrite").save()
"""


@dataclass(frozen=True)
class Measurement:
    """The seconds of an operation, and the peak memory of its driver: Python and Java together, in MiB."""

    seconds: float
    peak_mib: int
    java_mib: int


@contextmanager
def start_cluster() -> Iterator[Cluster]:
    """Yield a cluster whose secret the environment has."""
    with Cluster(EXECUTORS, memory="2g") as cluster:
        os.environ[_SECRET] = cluster.secret
        yield cluster


def write_settings(folder: Path, cluster: Cluster, executors: int = EXECUTORS) -> None:
    """Write the settings of a project whose work is done on a cluster."""
    words = {"master": cluster.url, "secret": _SECRET, "memory": _EXECUTOR_MEMORY, "executors": executors}
    (folder / "runnel.toml").write_text(_SETTINGS.format(**words))


@dataclass(frozen=True)
class ClusterProject:
    """A project of Runnel on a cluster; `flow` declares its source."""

    folder: Path
    cluster: Cluster
    flow: str

    def create(self, executors: int = EXECUTORS) -> "ClusterProject":
        """Write the project."""
        (self.folder / "flows").mkdir(parents=True)
        (self.folder / "flows" / "flow.py").write_text(f"import runnel as rn\n\n{_WARM_SOURCES}{self.flow}\n")
        write_settings(self.folder, self.cluster, executors)
        (self.folder / "warm").mkdir()
        for number in range(_WARM_FILES):
            (self.folder / "warm" / f"{number}.csv").write_text(f"id\n{number}\n")
        return self

    def measure(self, operation: str, table: str, executors: int = EXECUTORS) -> Measurement:
        """Run or compact a table in a new driver."""
        words = [self.folder, operation, table, str(executors)]
        took = timed([sys.executable, "-m", "bench.cluster_driver", *words], cwd=Path(__file__).parents[1])
        answer = json.loads(took.output.splitlines()[-1])
        peaks = answer["peak_mib"]
        return Measurement(answer["seconds"], peaks["python"] + peaks["java"], peaks["java"])

    def query(self, sql: str) -> str:
        """Return the last line of an answer as CSV."""
        return command(self.folder, "query", sql, "--format", "csv").output.split()[-1]


@dataclass(frozen=True)
class ClusterJob(Stock):
    """A Spark job that is written by hand, on a cluster."""

    cluster: Cluster
    jars: tuple[Path, ...] = ()

    def conf(self) -> dict[str, str]:
        """Return the settings of the job: the same executors as ours."""
        settings = super().conf()
        return {
            **settings,
            "spark.jars": ",".join([settings["spark.jars"], *map(str, self.jars)]),
            **self.cluster.conf,
            "spark.io.encryption.enabled": "true",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": _EXECUTOR_MEMORY,
            "spark.executor.cores": "1",
            "spark.executor.instances": str(EXECUTORS),
            "spark.cores.max": str(EXECUTORS),
        }

    def session(self) -> str:
        """Return the text of Python that starts Spark on the cluster and warms up its executors."""
        return super().session().replace("local[*]", self.cluster.url) + _WARM_JOB

    def measure(self, text: str, answer: str) -> tuple[float, str]:
        """Run a job; return its seconds, and the answer to a query over what it made.

        If something must be made before the clock starts, the text sets `started` afterwards.
        """
        self.folder.mkdir(exist_ok=True)
        lines = [
            self.session(),
            f'spark.sql("CREATE NAMESPACE IF NOT EXISTS {CATALOG}.ods")',
            "started = time.perf_counter()",
            text,
            "seconds = time.perf_counter() - started",
            f"print(seconds, ','.join(map(str, spark.sql({answer!r}).first())))",
            "spark.stop()",
        ]
        (self.folder / "script.py").write_text("\n".join(lines))
        seconds, found = self.script().output.split()[-2:]
        return float(seconds), found


@dataclass(frozen=True)
class Comparison:
    """One kind of work on executors: ours with two executors and with one, and a Spark job with two.

    `flow` declares the source `ods.orders`, `job` is the text of the job, `answer` a query over the table that both
    must answer alike.
    """

    name: str
    cluster: Cluster
    folder: Path
    flow: str
    job: str
    answer: str
    operation: str = "run"
    table: str = "ods.orders"
    prepare: str = ""  # a command of Runnel before the operation
    jars: tuple[Path, ...] = ()  # of the job, besides Iceberg's

    def measure(self, *, has_targets: bool) -> list[Figure]:
        """Return the ratios; they have targets if both sides read the same columnar or text files."""
        seconds: dict[int, list[float]] = {EXECUTORS: [], 1: []}
        for number in range(TIMES):
            for executors, measured in seconds.items():
                measured.append(self._measure_ours(f"{executors}-{number}", executors).seconds)
        ours, ours_alone = median(seconds[EXECUTORS]), median(seconds[1])
        spark = median(self._measure_spark(number) for number in range(TIMES))
        details: dict[str, object] = {
            "runnel_seconds": round(ours, 2),
            "one_executor_seconds": round(ours_alone, 2),
            "spark_seconds": round(spark, 2),
        }
        scaling, against_spark = (">= 1.7", ">= 1.0") if has_targets else (None, None)
        return [
            Figure(f"{self.name}: two executors / one, throughput", ours_alone / ours, "", scaling, details),
            Figure(f"{self.name}: hand-written Spark / runnel", spark / ours, "", against_spark, details),
        ]

    def measure_memory(self, larger: "Comparison", times: int) -> Figure:
        """Return how much more memory the driver needs for so many times the data."""
        small, large = self._measure_ours("memory"), larger._measure_ours("memory")
        details: dict[str, object] = {
            "small_mib": small.peak_mib,
            "large_mib": large.peak_mib,
            "small_java_mib": small.java_mib,
            "large_java_mib": large.java_mib,
            "large_seconds": round(large.seconds, 1),
        }
        name = f"{self.name}: peak memory of the driver, {times} times the data / once"
        return Figure(name, large.peak_mib / small.peak_mib, "", "<= 1.2", details)

    def _measure_ours(self, label: str, executors: int = EXECUTORS) -> Measurement:
        project = ClusterProject(self.folder / f"ours-{label}", self.cluster, self.flow).create(executors)
        if self.prepare:
            command(project.folder, *self.prepare.split())
        measurement = project.measure(self.operation, self.table, executors)
        self._compare(project.query(self.answer.format(catalog="").replace(" .", " ")))
        return measurement

    def _measure_spark(self, number: int) -> float:
        job = ClusterJob(self.folder / f"spark-{number}", self.cluster, self.jars)
        seconds, answer = job.measure(self.job, self.answer.format(catalog=CATALOG))
        self._compare(answer)
        return seconds

    def _compare(self, answer: str) -> None:
        """Raise if an answer differs from the first one."""
        file = self.folder / "answer.txt"
        if not file.exists():
            file.write_text(answer)
        if file.read_text() != answer:
            raise RuntimeError(f"{self.name}: the answers differ: {file.read_text()} and {answer}")


def compare_files(ending: str, size: int, source: str, job: str, *, times_larger: int = 0) -> list[Figure]:
    """Compare the ingest of files of twice `size` bytes; also the memory for `size` and for so many times as much."""
    with start_cluster() as cluster, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        folder = Path(name)
        data, doubled, more = folder / "data", folder / "doubled", folder / "more"
        write_files(data, ending, size, _FILES)
        os.sync()  # the first measurement is not slowed down by files that are still being written
        files = sorted(data.iterdir())
        bytes_written = sum(file.stat().st_size for file in files)
        label = f"executors: {ending} of {2 * bytes_written / 1e6:,.0f} MB"
        figures = [measure_machine(label, files)]
        link_files(doubled, data, 2)
        comparison = Comparison(
            label,
            cluster,
            folder,
            source.format(data=doubled, schema=SCHEMA),
            job.format(data=str(doubled), schema=SCHEMA, catalog=CATALOG),
            ANSWER,
        )
        figures = [*comparison.measure(has_targets=True), *figures]
        if times_larger:
            link_files(more, data, times_larger)
            small, large = (
                replace(
                    comparison,
                    name=f"executors: {ending} of {bytes_written / 1e6:,.0f} MB",
                    folder=folder / folder_name,
                    flow=source.format(data=files_folder, schema=SCHEMA),
                )
                for folder_name, files_folder in (("smaller", data), ("larger", more))
            )
            small.folder.mkdir()
            large.folder.mkdir()
            figures.append(small.measure_memory(large, times_larger))
        return figures
