"""What is made once for the driver of this process, and anew for the next one."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")


class PerDriver(Generic[T]):
    """Something that takes many calls of Java to make, kept for as long as its driver is the one that is asked for."""

    def __init__(self, make: "Callable[[SparkContext], T]") -> None:
        self._make = make
        self._kept: tuple[SparkContext, T] | None = None
        self._guard = threading.Lock()

    def of(self, context: "SparkContext") -> T:
        """Return what was made for a driver; steps that go side by side get the same."""
        with self._guard:
            if self._kept is None or self._kept[0] is not context:
                self._kept = context, self._make(context)
            return self._kept[1]
