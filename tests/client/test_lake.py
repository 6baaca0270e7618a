"""`rn.open`: the lake as notebooks and scripts hold it."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runnel as rn
from runnel.lake.store import Store
from runnel.names import TableName
from runnel.project.spark_session import FrameReader
from tests.lake.factories import add, create, rows, slots_in_use

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNEL = Path(sys.executable).parent / "runnel"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "orders.csv").write_text("id,day\n1,2026-01-01\n2,2026-01-02\n")
    return tmp_path


def test_a_script(shop: Path) -> None:
    with rn.open(shop) as lake:
        assert lake.tables() == []
        assert lake.load("ods.orders", shop / "orders.csv", key="id").rows == 2
        lake.branch("dev")
        lake.load("ods.orders", shop / "orders.csv", branch="dev")
        assert lake.diff("main", "dev").tables[0].rows_added == 2
        merged = lake.merge("dev").commit
        assert merged is not None and lake.log(limit=1)[0].id == merged.id
        assert lake.query("select count(*) as n from ods.orders").df()["n"].tolist() == [4]
        assert lake.query("select count(*) as n from ods.orders", at=lake.tag("v1", "main~1").commit).rows() == [(2,)]
        assert lake.revert("main").kind == "revert"
        assert (lake.put("raw.pages", shop / "orders.csv").added, [row.path for row in lake.ls("raw.pages")]) == (
            1,
            ["orders.csv"],
        )
        assert lake.get("raw.pages", shop / "out").written == 1
        assert lake.rm("raw.pages", "*.csv").paths == ("orders.csv",) and lake.ls("raw.pages") == []


def test_a_mistake_is_a_runnel_error(shop: Path) -> None:
    with rn.open(shop) as lake, pytest.raises(rn.RunnelError, match="there is no table"):
        lake.query("select * from ods.nothing")


def test_a_frame_stays_at_its_commit(both: Store, spark: "SparkSession") -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    frames = FrameReader(both, spark)
    frame = frames.read(TableName.parse("ods.orders"), "main")
    add(both, "ods.orders", rows((2, "d2", 7)))
    assert frame.count() == 1, "the branch moved on, the frame did not"
    assert frames.read(TableName.parse("ods.orders"), "main").count() == 2
    frames.close()
    assert slots_in_use(both) == []


def test_spark_starts_in_a_fresh_project(tmp_path: Path) -> None:
    """Nothing is prepared: the first question of a new project is one for Spark."""
    subprocess.run([RUNNEL, "init", "."], cwd=tmp_path, check=True, capture_output=True)
    words = [RUNNEL, "query", "select initcap('ab cd') as x", "--format", "csv"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "x\nAb Cd\n"), done.stderr
