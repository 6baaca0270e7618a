"""Close the Arrow allocators that Iceberg's readers leak in the JVM, one for each file that was read.

The leak is apache/iceberg#13937; a worker that runs for weeks would run out of memory. A reader holds memory from its
first row to its end, so an allocator that is empty now and was empty a minute ago belongs to a reader that has ended.
"""

import threading
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runnel.spark.per_driver_cache import PerDriverCache

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SWEEP_INTERVAL_SECONDS = 60.0
# Compiled by Janino, which Spark ships: checking thousands of allocators one by one from Python would take seconds.
_JAVA_SCRIPT = """
java.util.Set idle = new java.util.HashSet();
for (Object one : org.apache.iceberg.arrow.ArrowAllocation.rootAllocator().getChildAllocators()) {
    org.apache.iceberg.shaded.org.apache.arrow.memory.BufferAllocator allocator =
        (org.apache.iceberg.shaded.org.apache.arrow.memory.BufferAllocator) one;
    if (allocator.getAllocatedMemory() == 0) {
        if (((java.util.Set) before).contains(allocator)) {
            allocator.close();
        } else {
            idle.add(allocator);
        }
    }
}
return idle;
"""


class AllocatorSweeper:
    """Close the leaked allocators of one driver. The script is compiled on first use: short commands never need it."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self._swept_at = time.monotonic()
        self._guard = threading.Lock()

    def sweep_if_due(self) -> None:
        """Sweep at most once a minute, however often it is called."""
        with self._guard, suppress(Exception):  # Spark may be stopping, which frees all of them
            if time.monotonic() - self._swept_at > SWEEP_INTERVAL_SECONDS:
                self._swept_at = time.monotonic()
                self.sweep()

    def sweep(self) -> int:
        """Close the allocators that were idle last time and still are, and return how many became idle since."""
        script, arguments = self._script
        arguments[0] = script.evaluate(arguments)
        return int(arguments[0].size())

    @cached_property
    def _script(self) -> tuple[Any, Any]:
        """Return the compiled script and its arguments."""
        jvm, gateway = self._context._jvm, self._context._gateway
        assert jvm is not None
        assert gateway is not None
        names, kinds = gateway.new_array(jvm.java.lang.String, 1), gateway.new_array(jvm.java.lang.Class, 1)
        names[0], kinds[0] = "before", jvm.java.lang.Class.forName("java.lang.Object")
        script: Any = jvm.org.codehaus.janino.ScriptEvaluator()
        script.setParameters(names, kinds)
        script.setReturnType(kinds[0])
        script.cook(_JAVA_SCRIPT)
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = jvm.java.util.HashSet()
        return script, arguments


_sweepers = PerDriverCache(AllocatorSweeper)


def sweep_allocators(spark: "SparkSession") -> None:
    """Close the leaked allocators of this driver, if a sweep is due."""
    _sweepers.get(spark.sparkContext).sweep_if_due()
