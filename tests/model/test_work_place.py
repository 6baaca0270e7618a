"""Where work is done: in this process or on executors, and the reason that people read."""

import pytest

from runnel.model.work_place import ByteCount, WorkPlaceRules

MIB = 1 << 20
CLUSTER = WorkPlaceRules(has_cluster=True, shared_folders=("/mnt/lake",))


def _never_called() -> int:
    raise AssertionError("the place does not depend on the size")


CASES = {
    "a local master": (WorkPlaceRules(), 10**12, (), "process", "Spark has no cluster"),
    "little work on a cluster": (
        CLUSTER, 256 * MIB, (), "process", "256.0 MiB are not more than spark.executors_from, 256.0 MiB"),
    "much work on a cluster": (
        CLUSTER, 300 * MIB, (), "executors", "300.0 MiB are more than spark.executors_from, 256.0 MiB"),
    "files that all machines see": (
        CLUSTER, 300 * MIB, ("/mnt/lake/in/a.csv",), "executors",
        "300.0 MiB are more than spark.executors_from, 256.0 MiB"),
    "files of this machine": (
        CLUSTER, 300 * MIB, ("/mnt/lake/in/a.csv", "/home/ada/b.csv"), "process",
        "/home/ada/b.csv is on this machine only: no folder of spark.shared holds it"),
    "work of about this size": (
        CLUSTER, lambda: 300 * MIB, (), "executors", "about 300.0 MiB are more than spark.executors_from, 256.0 MiB"),
    "work of any size": (WorkPlaceRules(), _never_called, (), "process", "Spark has no cluster"),
    "forced here": (WorkPlaceRules("process", True), 10**12, (), "process", 'spark.run_on is "process"'),
    "forced there": (WorkPlaceRules("executors"), 1, ("/a",), "executors", 'spark.run_on is "executors"'),
}  # fmt: skip


@pytest.mark.parametrize(("rules", "size", "paths", "place", "reason"), CASES.values(), ids=CASES)
def test_place(rules: WorkPlaceRules, size: ByteCount, paths: tuple[str, ...], place: str, reason: str) -> None:
    chosen = rules.choose(size, paths)
    assert (chosen.name, chosen.reason) == (place, reason)
