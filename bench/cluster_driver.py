"""The driver of a project on a cluster, in a process of its own: start Spark, warm up, then measure one operation.

    python -m bench.cluster_driver PROJECT run|compact TABLE EXECUTORS

Prints the seconds of the operation and the peak memory of this process and of its Java, as JSON.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import runnel as rn
from runnel.lake.upkeep.compact.compact import compact
from runnel.names import TableName
from runnel.project.work_places import create_work_context

if TYPE_CHECKING:
    from runnel.client.lake import Lake

WARM_UPS = ("ods.warm_up_1", "ods.warm_up_2", "ods.warm_up_3")  # sources of every project: small files, read first
_START_SECONDS = 120


def main(project: str, operation: str, table: str, executors: int) -> None:
    """Measure one operation on a table, with this number of executors."""
    with rn.open(project) as lake:
        _await_executors(lake, executors)
        for warm_up in WARM_UPS:
            _require_success(lake, warm_up)
        started = time.perf_counter()
        if operation == "compact":
            work = create_work_context(lake.settings, lake.spark_provider.get, "compact")
            results = compact(lake.store, TableName.parse(table), force=True, work=work)
            if [result.table for result in results] != [table]:
                raise SystemExit(f"{table} was not compacted: {results}")
        else:
            _require_success(lake, table)
        seconds = time.perf_counter() - started
        peaks = {"python": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "java": _measure_java()}
    print(json.dumps({"seconds": seconds, "peak_mib": peaks}))


def _await_executors(lake: "Lake", count: int) -> None:
    statuses = lake.spark.sparkContext._jsc.sc()
    until = time.monotonic() + _START_SECONDS
    while statuses.getExecutorMemoryStatus().size() - 1 < count:  # the driver is one of them
        if time.monotonic() > until:
            raise SystemExit(f"the cluster gave fewer than {count} executors")
        time.sleep(0.1)


def _require_success(lake: "Lake", table: str) -> None:
    result = lake.run(table)
    places = {step.place.name for step in result.steps if step.place is not None}
    if result.state != "succeeded" or places != {"executors"}:
        raise SystemExit(f"{table} was not read on executors: {result.state}, {places}")


def _measure_java() -> int:
    """Return the peak memory of the Java process that this process has started, in MiB."""
    peaks = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # it has ended
            continue
        if lines["Name"].strip() == "java" and _descends_from_here(int(lines["PPid"])):
            peaks.append(int(lines["VmHWM"].split()[0]) // 1024)
    return max(peaks)


def _descends_from_here(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
