"""Tables with slices in a real slot, and what tests of slice alignment build on them."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.declare.model.flow import TaskOptions
from runnel.run.analysis.slice_alignment import SlicedInput, check_slice_alignment
from tests.run.function_tasks import task_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SOLD = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("shop", pa.string()), ("amount", pa.int64())])
SEEN = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("shop", pa.string())])
RATES = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("rate", pa.int64())])
DAYS = tuple(dt.date(2026, 1, number) for number in (1, 2, 3))
TIMES = tuple(dt.datetime(one.year, one.month, one.day, 5, tzinfo=dt.UTC) for one in DAYS)
# Sliced are orders, items, events and past, which looks back; not rates. Null is a slice too.
TABLES = {
    "orders": (SOLD, [(1, DAYS[0], "a", 5), (2, DAYS[1], "a", 7), (1, DAYS[1], "b", 9), (3, None, "a", 1)]),
    "items": (SOLD, [(1, DAYS[0], "a", 1), (1, DAYS[1], "a", 2), (2, DAYS[2], "b", 7), (2, None, None, 7)]),
    "events": (SEEN, [(1, TIMES[0], "a"), (1, TIMES[1], "b"), (2, TIMES[1], "a"), (3, None, "a")]),
    "rates": (RATES, [(1, DAYS[0], 2), (2, DAYS[1], 3), (4, DAYS[2], 4), (3, None, 5)]),
    "past": (SOLD, [(1, DAYS[0], "a", 5), (2, DAYS[1], "a", 7)]),
}
KEYS = {"orders": "`day`", "items": "`day`", "events": "to_date(ts)", "past": "`day`"}
LOOKBACK = {"past": 5}


@dataclass(frozen=True)
class Slot:
    """Inputs as a task gets them; in SQL they are views with the same names."""

    name: str
    spark: "SparkSession"
    orders: "DataFrame"
    items: "DataFrame"
    events: "DataFrame"
    rates: "DataFrame"
    past: "DataFrame"

    def sql(self, text: str) -> "DataFrame":
        return self.spark.sql(text)

    def judge(self, frame: "DataFrame", *by: str, **keys: str) -> str | None:
        """Return why it can't be seen that a frame is computed by slices; `keys` are other names of inputs' slices."""
        more = tuple(f"`{name}`" for name in by[1:])
        sliced = {
            f"{self.name}.ods.{name}": SlicedInput(getattr(self, name), (text, *more), LOOKBACK.get(name, 0))
            for name, text in (KEYS | keys).items()
            if len(by) == 1 or name != "past"
        }
        return check_slice_alignment(task_of(_task, TaskOptions(by=by)), frame, sliced)


MakeFrame = Callable[[Slot], Any]


def _task(orders: Any) -> Any:
    return orders


def _over(*names: str) -> Any:
    from pyspark.sql import Window

    return Window.partitionBy(*names).orderBy("amount", "id", "shop")


def numbered(*names: str) -> "Column":
    from pyspark.sql import functions as F

    return F.row_number().over(_over(*names))


def return_frames(frames: Any) -> Any:
    return frames


def _equal(left: "DataFrame", right: "DataFrame", *names: str) -> "Column":
    found = left[names[0]] == right[names[0]]
    for name in names[1:]:
        found = found & (left[name] == right[name])
    return found


def join_items(slot: Slot, kind: str, *names: str) -> "DataFrame":
    """Return orders joined with items under a condition, with the columns of orders and one of items."""
    orders, items = slot.orders, slot.items
    joined = orders.join(items, _equal(orders, items, *names), kind)
    return joined if kind in ("left_semi", "left_anti") else joined.select(orders["*"], items.amount.alias("n"))
