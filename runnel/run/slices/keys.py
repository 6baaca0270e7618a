"""Restrict Spark frames to the keys of slices: by values in a condition, or by a frame to join with."""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.declare.sql.literals import format_literal
from runnel.internal_names import internal_column
from runnel.model.slice_key import SliceValue
from runnel.plan.slices import add_preceding_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FEW = 1000  # at most so many keys are written into a condition
_BACK = internal_column("back")
_WINDOW = re.compile(r"(?i)\bwindow\s*\(")


@dataclass(frozen=True)
class SliceKeys:
    """Keys of slices: `values` if they are few and have an exact form in SQL, else `frame` with a row for each.

    `count` is the number of keys; `lookback` how many slices before each one are included.
    """

    count: int
    values: tuple[SliceValue, ...] | None = None
    frame: "DataFrame | None" = None
    lookback: int = 0

    @property
    def is_exact(self) -> bool:
        """Return whether the condition alone selects exactly the rows of the slices."""
        return self.values is not None and all(len(key) == 1 for key in self.values)

    def with_earlier(self, lookback: int) -> "SliceKeys":
        """Return the keys of these slices and of the `lookback` slices before each."""
        if not lookback:
            return self
        if self.values is None:
            return replace(self, lookback=lookback)
        earlier = add_preceding_keys(self.values, lookback)
        assert earlier is not None  # `find_changed_slices` has refused keys that can't be counted
        return SliceKeys(len(earlier), earlier)

    def condition(self, expressions: Sequence[str]) -> str | None:
        """Return SQL that is true for every row of the slices, so that Spark prunes files; None without `values`.

        For keys of several columns it may be true for other rows too.
        """
        if self.values is None:
            return None
        if not self.values:
            return "false"
        columns = [list(dict.fromkeys(key[index] for key in self.values)) for index in range(len(expressions))]
        return " AND ".join(
            _in_values_sql(text, column_values) for text, column_values in zip(expressions, columns, strict=True)
        )


def restrict_to_slices(frame: "DataFrame", keys: SliceKeys, expressions: Sequence[str]) -> "DataFrame":
    """Return the rows of a frame that are in the slices; `expressions` give the slice of a row."""
    from pyspark.sql import functions as F

    condition = keys.condition(expressions)
    rows = frame.where(condition) if condition is not None else frame
    if rows.columns != frame.columns:  # Spark adds a column for window(...)
        rows = rows.select(*(f"`{name}`" for name in frame.columns))
    day_bounds = _find_day_bounds(frame, keys, expressions)
    rows = rows.where(day_bounds) if day_bounds else rows
    if keys.is_exact:
        return rows
    key_rows = build_key_frame(frame.sparkSession, keys, frame.selectExpr(*expressions).schema)
    key_rows = F.broadcast(key_rows) if keys.values else key_rows
    if not any(_WINDOW.search(text) for text in expressions):
        return rows.join(key_rows, F.expr(_same_slice_sql(expressions)), "left_semi")
    own_names = [f"{name} own" for name in make_part_names(len(expressions))]  # Spark takes no window(...) in a join
    keyed_rows = rows.selectExpr(
        "*", *(f"({text}) AS `{name}`" for text, name in zip(expressions, own_names, strict=True))
    )
    same_slice = F.expr(_same_slice_sql([f"`{name}`" for name in own_names]))
    return keyed_rows.join(key_rows, same_slice, "left_semi").select(*(f"`{name}`" for name in frame.columns))


def exclude_slices(frame: "DataFrame", keys: SliceKeys, expressions: Sequence[str]) -> "DataFrame":
    """Return the rows of a frame that are in none of the slices."""
    from pyspark.sql import functions as F

    if keys.is_exact:
        return frame.where(f"({keys.condition(expressions)}) IS NOT TRUE")
    key_rows = build_key_frame(frame.sparkSession, keys, frame.selectExpr(*expressions).schema)
    return frame.join(
        F.broadcast(key_rows) if keys.values else key_rows, F.expr(_same_slice_sql(expressions)), "left_anti"
    )


def build_key_frame(session: "SparkSession", keys: SliceKeys, schema: "StructType") -> "DataFrame":
    """Return the keys as a frame with internal column names; `schema` has the types of their parts."""
    from pyspark.sql import functions as F

    names = make_part_names(len(schema.fields))
    if keys.values is not None:
        return session.sql(_values_sql(keys.values, names, [field.dataType.simpleString() for field in schema.fields]))
    assert keys.frame is not None
    key_rows = keys.frame.toDF(*names)
    if keys.lookback:
        first_part = F.col(f"`{names[0]}`")
        steps = F.explode(F.sequence(F.lit(0), F.lit(keys.lookback)))
        is_date = schema.fields[0].dataType.typeName() == "date"
        key_rows = key_rows.select(first_part, steps.alias(_BACK)).select(
            (F.date_sub(first_part, F.col(f"`{_BACK}`")) if is_date else first_part - F.col(f"`{_BACK}`")).alias(
                names[0]
            )
        )
    return key_rows.distinct() if keys.lookback else key_rows


def _values_sql(values: Sequence[SliceValue], names: Sequence[str], kinds: Sequence[str]) -> str:
    """Return rows as SQL: a frame of Python objects would start Python workers to read them."""

    def row(key: SliceValue) -> str:
        parts = zip(key, kinds, strict=True)
        return ", ".join(f"CAST({'NULL' if part is None else format_literal(part)} AS {kind})" for part, kind in parts)

    columns = ", ".join(f"`{name}`" for name in names)
    rows = ", ".join(f"({row(key)})" for key in values or ((None,) * len(kinds),))
    return f"SELECT * FROM VALUES {rows} AS runnel_keys({columns})" + ("" if values else " WHERE false")


def make_part_names(count: int) -> list[str]:
    """Return the column names of a frame of keys."""
    return [internal_column("slice", index) for index in range(count)]


def _same_slice_sql(expressions: Sequence[str]) -> str:
    """Return SQL for whether a row belongs to the slice of a row in a frame of keys."""
    names = make_part_names(len(expressions))
    return " AND ".join(f"({text}) <=> `{name}`" for text, name in zip(expressions, names, strict=True))


def _in_values_sql(expression: str, values: Sequence[Any]) -> str:
    literals = [format_literal(value) for value in values if value is not None]
    conditions = [f"({expression}) IN ({', '.join(literals)})"] if literals else []
    if len(literals) < len(values):
        conditions.append(f"({expression}) IS NULL")
    return "(" + " OR ".join(conditions) + ")"


def _find_day_bounds(frame: "DataFrame", keys: SliceKeys, expressions: Sequence[str]) -> str | None:
    """Return bounds of `time` for a key `to_date(time)`, so that Spark skips files without these days."""
    if not keys.is_exact or not keys.values or len(expressions) != 1 or any(key[0] is None for key in keys.values):
        return None
    match = re.fullmatch(r"(?i)\s*(?:to_date|date)\(\s*(`[^`]+`|\w+)\s*\)\s*", expressions[0])
    match = match or re.fullmatch(r"(?i)\s*cast\(\s*(`[^`]+`|\w+)\s+as\s+date\s*\)\s*", expressions[0])
    if not match or not all(isinstance(key[0], dt.date) for key in keys.values):
        return None
    name = match[1].strip("`").lower()
    kinds = [field.dataType.typeName() for field in frame.schema.fields if field.name.lower() == name]
    if len(kinds) != 1 or kinds[0] not in ("timestamp", "timestamp_ntz"):
        return None
    days = [key[0] for key in keys.values]
    first, last = min(days), max(days)
    lower_bound = f"{match[1]} >= {kinds[0]} '{first}'"
    if last == dt.date.max:  # Python has no day after it; no time of a lake is later
        return lower_bound
    return f"{lower_bound} AND {match[1]} < {kinds[0]} '{last + dt.timedelta(days=1)}'"
