"""Close what Iceberg's readers leave open in Java: an allocator of Arrow for each file that was read, for ever.

That is apache/iceberg#13937; a worker that lives for weeks would run out of memory by it. A reader holds memory from
its first row to its end, so one that holds nothing, and held nothing a minute ago, has ended.
"""

import threading
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runnel.spark.per_driver_cache import PerDriver

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

EVERY_SECONDS = 60.0
# For the compiler that Spark has with it: asked from Python one by one, thousands of allocators would take seconds.
_SCRIPT = """
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


class Sweeper:
    """What closes the allocators of one driver. A command that ends soon never needs its script."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self._swept_at = time.monotonic()
        self._guard = threading.Lock()

    def sweep_in_turn(self) -> None:
        """Sweep once a minute, however often it is asked for."""
        with self._guard, suppress(Exception):  # Spark may be ending, and all of it goes then
            if time.monotonic() - self._swept_at > EVERY_SECONDS:
                self._swept_at = time.monotonic()
                self.sweep()

    def sweep(self) -> int:
        """Close what was idle the last time and is still, and return how many are idle since."""
        script, given = self._script
        given[0] = script.evaluate(given)
        return int(given[0].size())

    @cached_property
    def _script(self) -> tuple[Any, Any]:
        """Return the script, ready to run, and what it is given."""
        jvm, gateway = self._context._jvm, self._context._gateway
        assert jvm is not None
        assert gateway is not None
        names, kinds = gateway.new_array(jvm.java.lang.String, 1), gateway.new_array(jvm.java.lang.Class, 1)
        names[0], kinds[0] = "before", jvm.java.lang.Class.forName("java.lang.Object")
        script: Any = jvm.org.codehaus.janino.ScriptEvaluator()
        script.setParameters(names, kinds)
        script.setReturnType(kinds[0])
        script.cook(_SCRIPT)
        given = gateway.new_array(jvm.java.lang.Object, 1)
        given[0] = jvm.java.util.HashSet()
        return script, given


_sweepers = PerDriver(Sweeper)


def sweep(spark: "SparkSession") -> None:
    """Close what readers of this driver left open, now and then."""
    _sweepers.of(spark.sparkContext).sweep_in_turn()
