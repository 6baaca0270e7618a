"""Work on units as executors do, without Spark: everything is pickled on the way there and back.

If the tests of a run use a cluster, its executors do the work.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from runnel.lake.work_runner import ProcessRunner, ReportUnits, WorkRunner
from runnel.model.work_place import DEFAULT_SPLIT_BYTES, EXECUTORS, ByteCount, WorkPlace

cluster: WorkRunner | None = None
"""The executors of the cluster that the tests of this run use."""


class PicklingRunner(ProcessRunner):
    """Does the work of executors in this process; `chosen` are the sizes of all calls.

    `units` are those of the last call, `all_units` those of all calls; `shuffled_buckets` counts the buckets of all.
    """

    def __init__(self, parallel_units: int = 4, split_bytes: int = DEFAULT_SPLIT_BYTES) -> None:
        super().__init__(parallel_units=parallel_units, split_bytes=split_bytes)
        self.units: Sequence[Any] = ()
        self.all_units: list[Any] = []
        self.chosen: list[int] = []
        self.shuffled_buckets = 0

    @property
    def place(self) -> WorkPlace:
        return WorkPlace(EXECUTORS, "a test")

    def __call__(self, byte_count: ByteCount, local_paths: Iterable[str] = ()) -> "PicklingRunner":
        self.chosen.append(byte_count if isinstance(byte_count, int) else byte_count())
        return self

    def run(
        self, work: Callable[[Any], Any], units: Sequence[Any], report_units: ReportUnits | None = None
    ) -> list[Any]:
        self.units = units
        self.all_units += units
        if cluster is not None:
            return cluster.run(work, units, report_units)
        sent_work, sent_units = pickle.loads(pickle.dumps((work, list(units))))
        results: list[Any] = pickle.loads(pickle.dumps(super().run(sent_work, sent_units, report_units)))
        return results

    def run_shuffled(
        self,
        split: Callable[[Any], Iterable[tuple[int, bytes]]],
        units: Sequence[Any],
        merge: Callable[[int, Iterator[bytes]], Any],
        bucket_count: int,
        report_units: ReportUnits | None = None,
    ) -> list[Any]:
        self.units = units
        self.shuffled_buckets += bucket_count
        if cluster is not None:
            return cluster.run_shuffled(split, units, merge, bucket_count, report_units)
        sent = pickle.loads(pickle.dumps((split, list(units), merge)))
        results: list[Any] = pickle.loads(pickle.dumps(super().run_shuffled(*sent, bucket_count, report_units)))
        return results
