"""Change logs that executors apply: the rows are those of one process."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runnel.model.work_place import WorkPlace
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOW = """
rn.source("ods.customers", rn.changes(
    rn.files("cdc/*.jsonl", schema="id long, region string, ts long, op string, amount decimal(12,2)"),
    key=["region", "id"], sequence_by="ts", delete_when="op = 'D'", scd=2), on_bad="drop")
"""


def write_log(project: Project, name: str, seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        {
            "id": chance.randrange(40),
            "region": chance.choice(["eu", "us", None]),
            "ts": chance.randrange(20),
            "op": chance.choice("IUUD"),
            "amount": chance.randrange(1000) / 100,
        }
        for _ in range(200)
    ]
    project.write(f"cdc/{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def test_executors_apply_a_log_as_one_process(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {}
    for place in ("process", "executors"):
        (tmp_path / place).mkdir()
        project = Project(tmp_path / place, spark)
        project.flow(FLOW, orders=None)
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        facts[place] = []
        for number in range(3):  # the first run applies the whole log, the others what changed in it
            write_log(project, str(number), number)
            if number == 2:
                (project.root / "cdc" / "0.jsonl").unlink()
            ran = project.run()
            assert ran.state == "succeeded", ran
            steps = {str(step.table): step for step in ran.steps}
            applied = steps["ods.customers"]
            assert applied.place == WorkPlace(place, f'spark.run_on is "{place}"')
            facts[place].append((applied.rows, applied.warnings, project.rows("ods.customers")))
    assert facts["executors"] == facts["process"]
