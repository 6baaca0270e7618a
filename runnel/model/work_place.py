"""Decide where the work of sources, sinks and upkeep is done: in this process, or on Spark's executors.

Pure. Rows, positions and bad rows do not depend on the place.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from runnel.text_tables import format_bytes

PROCESS, EXECUTORS = "process", "executors"
ByteCount = int | Callable[[], int]
"""A number of bytes, or a function that estimates it, which is called only if the place depends on it."""
DEFAULT_SPLIT_BYTES = 128 << 20


@dataclass(frozen=True)
class WorkPlace:
    """Where work is done, `process` or `executors`, and the reason, for people."""

    name: str
    reason: str

    def describe(self) -> str:
        """Return it as the end of a sentence.

        >>> WorkPlace(PROCESS, "Spark has no cluster").describe()
        'in this process: Spark has no cluster'
        """
        return f"{'on executors' if self.name == EXECUTORS else 'in this process'}: {self.reason}"

    def json(self) -> dict[str, str]:
        """Return what scripts rely on."""
        return {"name": self.name, "reason": self.reason}


@dataclass(frozen=True)
class WorkPlaceRules:
    """The settings on which the place depends.

    `run_on` is "auto", "process" or "executors"; with "auto", work of more than `executors_from_bytes` is done on the
    executors of a cluster. `shared_folders` are those that all machines of the cluster see. A larger file than
    `split_bytes` is read in splits.
    """

    run_on: str = "auto"
    has_cluster: bool = False
    executors_from_bytes: int = 256 << 20
    shared_folders: tuple[str, ...] = ()
    split_bytes: int = DEFAULT_SPLIT_BYTES

    @property
    def has_choice(self) -> bool:
        """Return whether the place is worth telling: the project has a cluster, or its settings name a place."""
        return self.has_cluster or self.run_on != "auto"

    def choose(self, byte_count: ByteCount, local_paths: Iterable[str] = ()) -> WorkPlace:
        """Return the place for work that reads or writes this many bytes, and these files or folders of a disk."""
        if self.run_on == PROCESS:
            return WorkPlace(PROCESS, 'spark.run_on is "process"')
        if self.run_on == "auto" and not self.has_cluster:
            return WorkPlace(PROCESS, "Spark has no cluster")
        unshared_path = next((path for path in local_paths if not self.is_shared(path)), None)
        if unshared_path is not None:
            return WorkPlace(PROCESS, f"{unshared_path} is on this machine only: no folder of spark.shared holds it")
        if self.run_on == EXECUTORS:
            return WorkPlace(EXECUTORS, 'spark.run_on is "executors"')
        limit = format_bytes(self.executors_from_bytes)
        size = byte_count if isinstance(byte_count, int) else byte_count()
        size_text = format_bytes(size) if isinstance(byte_count, int) else f"about {format_bytes(size)}"
        if size <= self.executors_from_bytes:
            return WorkPlace(PROCESS, f"{size_text} are not more than spark.executors_from, {limit}")
        return WorkPlace(EXECUTORS, f"{size_text} are more than spark.executors_from, {limit}")

    def is_shared(self, path: str) -> bool:
        """Return whether all machines that work see a path of this machine's disk.

        >>> rules = WorkPlaceRules(has_cluster=True, shared_folders=("/mnt/lake",))
        >>> rules.is_shared("/mnt/lake/a.csv"), rules.is_shared("/mnt/lakes/a.csv"), WorkPlaceRules().is_shared("/a")
        (True, False, True)
        """
        if not self.has_cluster:
            return True
        return any(PurePosixPath(path).is_relative_to(folder) for folder in self.shared_folders)
