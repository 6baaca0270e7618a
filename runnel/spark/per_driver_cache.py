"""Cache a value per Spark driver of this process."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")


class PerDriverCache(Generic[T]):
    """Cache a value that takes many calls of Java to create; another driver replaces it."""

    def __init__(self, make: "Callable[[SparkContext], T]") -> None:
        self._make = make
        self._cached: tuple[SparkContext, T] | None = None
        self._guard = threading.Lock()

    def get(self, context: "SparkContext") -> T:
        """Return the value of a driver, created on first use; concurrent steps get the same value."""
        with self._guard:
            if self._cached is None or self._cached[0] is not context:
                self._cached = context, self._make(context)
            return self._cached[1]
