"""A project on a standalone cluster: code and packages reach the executors, and what does not fit is refused."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.servers.spark_cluster import Cluster

FLOW = """
import runnel as rn
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

rn.source("ods.numbers", rn.files("numbers/*.csv", schema="v long"))
rn.source("ods.hand", rn.manual())


@rn.task("dws.doubled")
def doubled(numbers):
    from flows.shared import FACTOR  # so that changed code is computed again

    @F.udf(LongType())
    def double(value):
        from flows.shared import FACTOR

        return value * FACTOR

    assert FACTOR
    return numbers.select(double("v").alias("v"))
"""

WAITING_FLOW = """
import runnel as rn
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

rn.source("ods.numbers", rn.files("numbers/*.csv", schema="v long"))


@rn.task("dws.waiting")
def waiting(numbers):
    @F.udf(LongType())
    def wait(value):
        import pathlib, time

        pathlib.Path("{folder}", "started").touch()
        time.sleep(300)

    return numbers.select(wait("v").alias("v"))
"""


def make_project(root: Path, master: str, shared: str) -> Path:
    (root / "flows").mkdir(parents=True)
    (root / "numbers").mkdir()
    (root / "numbers" / "a.csv").write_text("v\n1\n2\n3\n")
    (root / "flows" / "shared.py").write_text("FACTOR = 2\n")
    (root / "flows" / "numbers.py").write_text(FLOW)
    (root / "runnel.toml").write_text(
        f'[project]\nname = "cluster"\n[spark]\nmaster = "{master}"\nrun_on = "executors"\nshared = [{shared}]\n'
        '[spark.conf]\n"spark.executor.memory" = "512m"\n"spark.driver.memory" = "1g"\n'
        '"spark.authenticate.secret" = { env = "CLUSTER_SECRET" }\n'
    )
    return root


def runnel(root: Path, *words: str, secret: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runnel", "-C", str(root), *words]
    environment = {**os.environ, "CLUSTER_SECRET": secret}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)


def test_a_project_runs_on_a_cluster(spark_cluster: "Cluster", tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", spark_cluster.url, f'"{tmp_path}"')
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.executors.cluster_program", str(root)],
        capture_output=True,
        text=True,
        env={**os.environ, "CLUSTER_SECRET": spark_cluster.secret},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "first": ["succeeded", [2, 4, 6]],
        "second": ["succeeded", [3, 6, 9]],
        "code of the first again": ["succeeded", [10]],
        "compact": ["executors", 'spark.run_on is "executors"', 3, 1],
        "hand": [10, 11, 12],
    }


def test_a_cluster_that_loses_its_workers_ends_the_run(spark_cluster: "Cluster", tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", spark_cluster.url, f'"{tmp_path}"')
    (root / "flows" / "numbers.py").write_text(WAITING_FLOW.format(folder=tmp_path))
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.executors.starved_program", str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CLUSTER_SECRET": spark_cluster.secret},
    )
    try:
        until = time.monotonic() + 200
        while not (tmp_path / "started").exists():
            assert program.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        for number in range(2):
            spark_cluster.kill_worker(number)
        message = program.communicate(timeout=100)[0]
    finally:
        program.kill()
        for number in range(2):
            spark_cluster.start_worker(number)
        spark_cluster.wait_for_workers(2)
    assert message.startswith(
        f"SPARK_NO_EXECUTOR: the master {spark_cluster.url} gave this application no executor for 3 seconds\n"
    )


def test_doctor_probes_the_cluster(spark_cluster: "Cluster", tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", spark_cluster.url, f'"{tmp_path}"')
    facts = json.loads(runnel(root, "doctor", "--json", secret=spark_cluster.secret).stdout)["facts"]
    [cluster] = [fact for fact in facts if fact["name"] == "cluster"]
    assert cluster["state"] == "ok", cluster
    probed = "an executor has the Python and the packages of this process, and sees the warehouse"
    assert cluster["what"] == f"{spark_cluster.url}: {probed}"


def test_a_warehouse_of_this_machine_is_refused(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", "spark://127.0.0.1:7077", "")
    refused = runnel(root, "run")
    assert refused.returncode == 2
    warehouse = root / ".runnel" / "warehouse"
    assert refused.stderr.endswith(
        f"SPARK_WAREHOUSE: the warehouse {warehouse} is a folder of this machine, and spark://127.0.0.1:7077 has "
        f"executors on others\n  at {root}/runnel.toml\n"
        f'  fix: list the folder if all machines see it, [spark] shared = ["{warehouse}"], or use warehouse = "s3://..."\n'
    )


def test_a_master_that_is_down_is_named(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", "spark://127.0.0.1:1", f'"{tmp_path}"')
    refused = runnel(root, "run")
    assert refused.returncode == 3
    assert "SPARK_MASTER_DOWN: no Spark master answers at 127.0.0.1:1: [Errno 111] Connection refused" in refused.stderr
    assert "Traceback" not in refused.stderr
