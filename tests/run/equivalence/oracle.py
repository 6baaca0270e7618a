"""What every table must hold: the tasks' own functions on whole inputs, in plain PySpark, one after the other.

Knows nothing of slices, versions or earlier results but this: the same text over the same rows gives the same rows.
"""

import datetime as dt
import hashlib
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.run.equivalence.mutations import SWIFT
from tests.run.equivalence.project_model import Task, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Counter[tuple[tuple[str, Any], ...]]
GOOD = "coalesce(amount >= 0, true)"


@dataclass(frozen=True)
class Made:
    """A table as it must be, and the rows that a check sets aside."""

    key: str
    rows: pa.Table
    aside: pa.Table | None = None


class Oracle:
    """Computes all tables of a world from its sources."""

    def __init__(self, spark: "SparkSession") -> None:
        self._session = spark.newSession()
        for name, value in (SWIFT | {"spark.sql.shuffle.partitions": "1"}).items():
            self._session.conf.set(name, value)
        self._known: dict[str, Made] = {}

    def tables(self, world: World, sources: dict[str, pa.Table]) -> dict[str, Made]:
        """Return every task's table, given the sources'."""
        made = {name: Made(_digest(name, *sorted(map(repr, rows.to_pylist()))), rows) for name, rows in sources.items()}
        for task in world.tasks:
            key = _digest(task.text, str(task.aside), *(made[name].key for name in task.inputs))
            if key not in self._known:
                self._known[key] = self._make(key, task, {name: made[name].rows for name in task.inputs})
            made[task.table] = self._known[key]
        return {task.table: made[task.table] for task in world.tasks}

    def _make(self, key: str, task: Task, inputs: dict[str, pa.Table]) -> Made:
        frames = {name: self._session.createDataFrame(rows) for name, rows in inputs.items()}
        frame = self._asked(task, frames) if task.is_sql else _called(task, frames)
        if task.aside is None:
            return Made(key, frame.toArrow())
        bad = frame.where(f"not {GOOD}").toArrow() if task.aside == "quarantine" else None
        return Made(key, frame.where(GOOD).toArrow(), bad)

    def _asked(self, task: Task, frames: "dict[str, DataFrame]") -> "DataFrame":
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name.replace(".", "_"))
        return self._session.sql(task.text.format(**{p: name.replace(".", "_") for p, name in task.named.items()}))


def _called(task: Task, frames: "dict[str, DataFrame]") -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    space: dict[str, Any] = {"F": F, "Window": Window}
    exec(f"def made({', '.join(task.named)}):\n{indent(task.text, '    ')}", space)
    found: DataFrame = space["made"](**{parameter: frames[name] for parameter, name in task.named.items()})
    return found


def rows_of(table: pa.Table, without: tuple[str, ...] = ()) -> Rows:
    """Return rows as a multiset of plain values; floating point to nine digits."""
    kept = table.drop_columns([name for name in without if name in table.column_names])
    return Counter(tuple(sorted((name, plain(value)) for name, value in row.items())) for row in kept.to_pylist())


def plain(value: Any) -> Any:
    """Return a value as both sides write it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return value


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
