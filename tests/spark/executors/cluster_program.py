"""A program that uses a project on a cluster: run, change code, run again, compact. Prints what came out as JSON."""

import json
import sys
from pathlib import Path

import runnel as rn
from runnel.lake.upkeep.compact.compact import compact
from runnel.names import TableName
from runnel.project.work_places import create_work_context


def use_project(root: Path) -> dict[str, object]:
    facts: dict[str, object] = {}
    with rn.open(str(root)) as lake:
        facts["first"] = [lake.run().state, _read(lake)]
        shared = root / "flows" / "shared.py"
        shared.write_text(shared.read_text().replace("FACTOR = 2", "FACTOR = 3"))
        facts["second"] = [lake.run().state, _read(lake)]
        shared.write_text(shared.read_text().replace("FACTOR = 3", "FACTOR = 2"))
        (root / "numbers" / "a.csv").write_text("v\n5\n")
        facts["code of the first again"] = [lake.run().state, _read(lake)]
        for number in range(3):
            rows = root / f"more-{number}.csv"
            rows.write_text(f"id,v\n{number + 10},1\n")
            lake.load("ods.hand", str(rows))
        places = create_work_context(lake.settings, lake.spark_provider.get, "compact test")
        place = places.choose_runner(1).place
        [result] = compact(lake.store, TableName.parse("ods.hand"), work=places)
        facts["compact"] = [place.name, place.reason, result.files_before, result.files_after]
        facts["hand"] = lake.query("select id from ods.hand order by id").table().column("id").to_pylist()
    return facts


def _read(lake: "rn.Lake") -> list[int]:
    return list(lake.query("select v from dws.doubled order by v").table().column("v").to_pylist())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(use_project(Path(sys.argv[1]))))
