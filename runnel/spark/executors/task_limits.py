"""Tell how many threads and how much memory a task on an executor may use, besides the executor's own Java."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.spark.jvm.command_line import is_local, memory_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_BYTES = 256 << 20
_MEMORY_SHARE = 0.5  # of an executor's memory: its Python workers live beside its heap


@dataclass(frozen=True)
class ExecutorLimits:
    """What one task may use."""

    threads: int
    memory_bytes: int


def read_executor_limits(spark: "SparkSession") -> ExecutorLimits:
    """Return the limits of a task, from the settings of the session.

    On a local master the tasks share this machine. Elsewhere a task gets its part of `spark.executor.pyspark.memory`,
    or else of half the executor's memory.
    """
    context = spark.sparkContext
    conf = context.getConf()
    threads = int(conf.get("spark.task.cpus", "1") or 1)
    if is_local(context.master or ""):
        return ExecutorLimits(threads, max(_LEAST_BYTES, memory_bytes() // 4 // max(1, context.defaultParallelism)))
    cores = int(conf.get("spark.executor.cores", "1") or 1)
    python_memory = conf.get("spark.executor.pyspark.memory")
    executor_bytes = parse_java_size(python_memory or conf.get("spark.executor.memory", "1g") or "1g")
    share = 1.0 if python_memory else _MEMORY_SHARE
    return ExecutorLimits(threads, max(_LEAST_BYTES, int(executor_bytes * share) * threads // max(cores, threads)))


def parse_java_size(text: str) -> int:
    """Return a size as Java and Spark write it, in bytes; a number without a unit is in MiB.

    >>> parse_java_size("512m"), parse_java_size("2g"), parse_java_size("100")
    (536870912, 2147483648, 104857600)
    """
    units = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
    lowered = text.strip().lower().removesuffix("b") if len(text.strip()) > 1 else text.strip()
    if lowered and lowered[-1] in units:
        return int(float(lowered[:-1]) * (1 << units[lowered[-1]]))
    return int(float(lowered) * (1 << 20))
