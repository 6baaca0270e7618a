"""Close what Iceberg's readers leave open in Java: an allocator of Arrow for each file that was read, for ever.

That is apache/iceberg#13937; a worker that lives for weeks would run out of memory by it. A reader holds memory from
its first row to its end, so one that holds nothing, and held nothing a minute ago, has ended.
"""

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

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
_known: "dict[SparkContext, tuple[float, Sweeper | None]]" = {}  # of the one driver: when it was swept, and by what
_guard = threading.Lock()


class Sweeper:
    """What closes the allocators of one driver."""

    def __init__(self, context: "SparkContext") -> None:
        jvm, gateway = context._jvm, context._gateway
        assert jvm is not None
        assert gateway is not None
        names, kinds = gateway.new_array(jvm.java.lang.String, 1), gateway.new_array(jvm.java.lang.Class, 1)
        names[0], kinds[0] = "before", jvm.java.lang.Class.forName("java.lang.Object")
        self._given = gateway.new_array(jvm.java.lang.Object, 1)
        self._given[0] = jvm.java.util.HashSet()
        self._script: Any = jvm.org.codehaus.janino.ScriptEvaluator()
        self._script.setParameters(names, kinds)
        self._script.setReturnType(kinds[0])
        self._script.cook(_SCRIPT)

    def sweep(self) -> int:
        """Close what was idle the last time and is still, and return how many are idle since."""
        self._given[0] = self._script.evaluate(self._given)
        return int(self._given[0].size())


def sweep(spark: "SparkSession") -> None:
    """Close what readers of this driver left open, once a minute however often it is asked for."""
    context, now = spark.sparkContext, time.monotonic()
    with _guard, suppress(Exception):  # Spark may be ending, and all of it goes then
        if context not in _known:
            _known.clear()
            _known[context] = now, None  # a command that ends soon needs no sweeper
        swept_at, sweeper = _known[context]
        if now - swept_at > EVERY_SECONDS:
            sweeper = sweeper or Sweeper(context)
            _known[context] = now, sweeper
            sweeper.sweep()
