"""The keys of the slices that a task computes, for Spark: values in a condition, or a frame to join with."""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.declare.sql.literals import literal
from runnel.internal_names import internal_column
from runnel.plan.slices import Key, preceding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FEW = 1000  # so many keys are written into a condition
_BACK = internal_column("back")
_WINDOW = re.compile(r"(?i)\bwindow\s*\(")


@dataclass(frozen=True)
class Keys:
    """Keys of slices. `values` where they are few and have an exact form in SQL, else `frame` with a row for each.

    `number` is how many there are; `back` how many slices before each belong to it.
    """

    number: int
    values: tuple[Key, ...] | None = None
    frame: "DataFrame | None" = None
    back: int = 0

    @property
    def is_exact(self) -> bool:
        """Tell whether the condition alone chooses the rows of the slices."""
        return self.values is not None and all(len(key) == 1 for key in self.values)

    def with_earlier(self, back: int) -> "Keys":
        """Return the keys of these slices and of the `back` ones before each."""
        if not back:
            return self
        if self.values is None:
            return replace(self, back=back)
        earlier = preceding(self.values, back)
        assert earlier is not None  # who found the keys has counted on from them
        return Keys(len(earlier), earlier)

    def condition(self, expressions: Sequence[str]) -> str | None:
        """Return SQL that is true for every row of the slices, and so prunes files; None where there is none.

        For keys of several columns it may be true for other rows too.
        """
        if self.values is None:
            return None
        if not self.values:
            return "false"
        columns = [list(dict.fromkeys(key[at] for key in self.values)) for at in range(len(expressions))]
        return " AND ".join(_among(text, found) for text, found in zip(expressions, columns, strict=True))


def restrict(frame: "DataFrame", keys: Keys, expressions: Sequence[str]) -> "DataFrame":
    """Return the rows of a frame that are in the slices; `expressions` name the slice of a row."""
    from pyspark.sql import functions as F

    condition = keys.condition(expressions)
    found = frame.where(condition) if condition is not None else frame
    if found.columns != frame.columns:  # Spark adds a column for window(...)
        found = found.select(*(f"`{name}`" for name in frame.columns))
    hint = _day_bounds(frame, keys, expressions)
    found = found.where(hint) if hint else found
    if keys.is_exact:
        return found
    kept = frame_of(frame.sparkSession, keys, frame.selectExpr(*expressions).schema)
    kept = F.broadcast(kept) if keys.values else kept
    if not any(_WINDOW.search(text) for text in expressions):
        return found.join(kept, F.expr(_same(expressions)), "left_semi")
    own = [f"{name} own" for name in part_names(len(expressions))]  # Spark takes no window(...) in a join
    named = found.selectExpr("*", *(f"({text}) AS `{name}`" for text, name in zip(expressions, own, strict=True)))
    same = F.expr(_same([f"`{name}`" for name in own]))
    return named.join(kept, same, "left_semi").select(*(f"`{name}`" for name in frame.columns))


def outside(frame: "DataFrame", keys: Keys, expressions: Sequence[str]) -> "DataFrame":
    """Return the rows of a frame that are in none of the slices."""
    from pyspark.sql import functions as F

    if keys.is_exact:
        return frame.where(f"({keys.condition(expressions)}) IS NOT TRUE")
    gone = frame_of(frame.sparkSession, keys, frame.selectExpr(*expressions).schema)
    return frame.join(F.broadcast(gone) if keys.values else gone, F.expr(_same(expressions)), "left_anti")


def frame_of(session: "SparkSession", keys: Keys, schema: "StructType") -> "DataFrame":
    """Return the keys as a frame whose columns no table has; `schema` has the types of their parts."""
    from pyspark.sql import functions as F

    names = part_names(len(schema.fields))
    if keys.values is not None:
        return session.sql(_values_sql(keys.values, names, [field.dataType.simpleString() for field in schema.fields]))
    assert keys.frame is not None
    found = keys.frame.toDF(*names)
    if keys.back:
        first = F.col(f"`{names[0]}`")
        steps = F.explode(F.sequence(F.lit(0), F.lit(keys.back)))
        is_date = schema.fields[0].dataType.typeName() == "date"
        found = found.select(first, steps.alias(_BACK)).select(
            (F.date_sub(first, F.col(f"`{_BACK}`")) if is_date else first - F.col(f"`{_BACK}`")).alias(names[0])
        )
    return found.distinct() if keys.back else found


def _values_sql(values: Sequence[Key], names: Sequence[str], kinds: Sequence[str]) -> str:
    """Return rows as SQL: a frame made of Python objects would start processes of Python to read them."""

    def row(key: Key) -> str:
        parts = zip(key, kinds, strict=True)
        return ", ".join(f"CAST({'NULL' if part is None else literal(part)} AS {kind})" for part, kind in parts)

    columns = ", ".join(f"`{name}`" for name in names)
    rows = ", ".join(f"({row(key)})" for key in values or ((None,) * len(kinds),))
    return f"SELECT * FROM VALUES {rows} AS runnel_keys({columns})" + ("" if values else " WHERE false")


def part_names(number: int) -> list[str]:
    """Return what the columns of a frame of keys are called."""
    return [internal_column("slice", at) for at in range(number)]


def _same(expressions: Sequence[str]) -> str:
    """Return SQL of whether a row is of the slice in a row of a frame of keys."""
    names = part_names(len(expressions))
    return " AND ".join(f"({text}) <=> `{name}`" for text, name in zip(expressions, names, strict=True))


def _among(expression: str, values: Sequence[Any]) -> str:
    known = [literal(value) for value in values if value is not None]
    found = [f"({expression}) IN ({', '.join(known)})"] if known else []
    if len(known) < len(values):
        found.append(f"({expression}) IS NULL")
    return "(" + " OR ".join(found) + ")"


def _day_bounds(frame: "DataFrame", keys: Keys, expressions: Sequence[str]) -> str | None:
    """Return bounds of the time behind a key `to_date(time)`, so that files without these days are not read."""
    if not keys.is_exact or not keys.values or len(expressions) != 1 or any(key[0] is None for key in keys.values):
        return None
    found = re.fullmatch(r"(?i)\s*(?:to_date|date)\(\s*(`[^`]+`|\w+)\s*\)\s*", expressions[0])
    found = found or re.fullmatch(r"(?i)\s*cast\(\s*(`[^`]+`|\w+)\s+as\s+date\s*\)\s*", expressions[0])
    if not found or not all(isinstance(key[0], dt.date) for key in keys.values):
        return None
    name = found[1].strip("`").lower()
    kinds = [field.dataType.typeName() for field in frame.schema.fields if field.name.lower() == name]
    if len(kinds) != 1 or kinds[0] not in ("timestamp", "timestamp_ntz"):
        return None
    days = [key[0] for key in keys.values]
    first, after = min(days), max(days) + dt.timedelta(days=1)
    return f"{found[1]} >= {kinds[0]} '{first}' AND {found[1]} < {kinds[0]} '{after}'"
