"""One driver of a project: run it, compact its tables, erase a person. It can be killed at any moment and repeated.

python -m tests.cluster.driver ROOT run compact erase:7
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import runnel as rn
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.names import TableName
from runnel.project.work_places import create_work_context

if TYPE_CHECKING:
    from runnel.client.lake import Lake


def do_steps(root: Path, steps: list[str]) -> None:
    """Do the steps one after the other, with one Spark session."""
    with rn.open(str(root)) as lake:
        for step in steps:
            _do_step(lake, step)


def _do_step(lake: "Lake", step: str) -> None:
    if step == "run":
        ran = lake.run()
        problems = [sink for sink in ran.sinks if sink.error is not None]
        if ran.state not in ("succeeded", "nothing") or problems:
            raise SystemExit(f"the run has {ran.state}: {ran} {problems}")
        return
    work = create_work_context(lake.settings, lake.spark_provider.get, step)
    if step == "compact":
        compact(lake.store, work=work)
    else:
        person = step.removeprefix("erase:")
        erase(lake.store, TableName.parse("ods.people"), f"id = {person}", work=work)


if __name__ == "__main__":
    do_steps(Path(sys.argv[1]), sys.argv[2:])
