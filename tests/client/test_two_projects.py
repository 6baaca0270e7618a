"""Several projects in one Python process share Spark, or take it over from one another."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
import runnel as rn

first, second, third = (rn.open(folder) for folder in sys.argv[1:])
QUERY = "select current_timezone() as zone"


def zone(lake):
    return lake.query(QUERY, engine="spark").rows()[0][0]


print("first", zone(first))
print("second shares it", zone(second), first.spark is second.spark)
try:
    zone(third)
except rn.RunnelError as error:
    print(error)
first.close()
second.close()
print("third takes it over", zone(third))
print("a run with a Python function", third.run().state)
third.close()
"""
TASK = """
import runnel as rn
from pyspark.sql import functions as F

rn.source("ods.orders", rn.files("data/*.csv", schema="id long"))


@rn.task("dws.t")
def t(orders):
    return orders.select(F.udf(lambda x: x + 1, "long")("id").alias("n"))
"""


def write_project(root: Path, conf: str = "") -> Path:
    root.mkdir()
    (root / "runnel.toml").write_text(f'[project]\nname = "{root.name}"\n[spark]\nmaster = "local[1]"\n{conf}')
    return root


def test_spark_is_shared_or_taken_over_and_ends_quietly(tmp_path: Path) -> None:
    """The last project runs a Python function, for which PySpark keeps connections to the JVM that ends."""
    zone = '[spark.conf]\nspark.sql.session.timeZone = "Asia/Shanghai"\n'
    folders = [write_project(tmp_path / "a"), write_project(tmp_path / "b"), write_project(tmp_path / "c", zone)]
    (folders[-1] / "flows").mkdir()
    (folders[-1] / "flows" / "flow.py").write_text(TASK)
    (folders[-1] / "data").mkdir()
    (folders[-1] / "data" / "a.csv").write_text("id\n1\n2\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines() == [
        "first UTC",
        "second shares it UTC True",
        "SPARK_RUNNING: Spark already runs in this process for another lake, with other settings "
        "(spark.sql.session.timeZone)",
        "  fix: close that lake first with lake.close(), use the same [spark] settings in both, or use another process",
        "third takes it over Asia/Shanghai",
        "a run with a Python function succeeded",
    ], done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr and "Error" not in done.stderr
