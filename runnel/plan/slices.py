"""Slices of a task's data: what names them in each input, which of them a change touches, and how that reads. Pure."""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from runnel.declare.model.flow import Task
from runnel.declare.options.expression_list import parts
from runnel.declare.sql.literals import column
from runnel.names import TableName

MOST = 0.6  # past this share of changed slices all of them are computed
SHOWN_KEYS = 100
_SHOWN = 3

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Slice:
    """A slice of an input that changed: its key, and how many rows came and went."""

    key: Key
    gained: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Slices:
    """The slices of a task to compute, and how many it has. `keys` is None where Spark finds them during the run."""

    keys: tuple[Key, ...] | None
    of: int | None = None

    @property
    def is_most(self) -> bool:
        """Tell whether so many changed that computing all is cheaper."""
        return self.keys is not None and is_most(len(self.keys), self.of)

    @property
    def share(self) -> float | None:
        """Return which part of the slices changed, where that is known."""
        if self.keys is None or not self.of:
            return None
        return min(1.0, len(self.keys) / self.of)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on; of very many keys only the first."""
        shown = [[plain(part) for part in key] for key in (self.keys or ())[:SHOWN_KEYS]]
        keys = [key[0] if len(key) == 1 else key for key in shown]
        number = None if self.keys is None else len(self.keys)
        return {"changed": number, "of": self.of, "keys": None if self.keys is None else keys}


def is_most(changed: int, of: int | None) -> bool:
    """Tell whether so many slices changed that computing all is cheaper.

    >>> is_most(2, 365), is_most(300, 365), is_most(3, None)
    (False, True, False)
    """
    return of is not None and changed > 1 and changed > MOST * of


def expressions(task: Task, table: TableName, columns: Collection[str]) -> tuple[str, ...] | None:
    """Return what names the slice of a row of an input, as Spark SQL, one for each of the task's `by`.

    None where nothing does: then any change of the input concerns all slices, unless it is a reference.
    """
    if is_reference(task, table):
        return None
    given = {dict(task.options.by_input).get(parameter) for parameter in _parameters(task, table)}
    if len(given) != 1:
        return None  # one table under two names that are sliced in different ways
    text = given.pop()
    if text is not None:
        return parts(text)
    known = {name.lower() for name in columns}
    return tuple(column(name) for name in task.options.by) if known.issuperset(_lower(task.options.by)) else None


def is_reference(task: Task, table: TableName) -> bool:
    """Tell whether changes of an input alone recompute nothing."""
    return bool(task.options.reference) and set(_parameters(task, table)) <= set(task.options.reference)


def in_full_reason(task: Task, why_whole: str | None) -> str | None:
    """Return why all of a task has to be computed though only some rows changed; None if they are enough.

    `why_whole` is what was seen when it was last computed in full; `trust_by` promises that slices are independent.
    """
    return why_whole or None if not task.options.trust_by else None


def lookback(task: Task, table: TableName) -> int:
    """Return how many earlier slices of an input a slice reads."""
    given = dict(task.options.lookback)
    return max((given.get(parameter, 0) for parameter in _parameters(task, table)), default=0)


def following(keys: Iterable[Key], number: int) -> tuple[Key, ...] | None:
    """Return keys with those of the `number` slices after each; None where they can't be counted on.

    >>> following([(1,), (2,)], 2), following([("a",)], 1), following([(dt.date.max,)], 1)
    (((1,), (2,), (3,), (4,)), None, ((datetime.date(9999, 12, 31),),))
    """
    return _steps(keys, range(number + 1))


def preceding(keys: Iterable[Key], number: int) -> tuple[Key, ...] | None:
    """Return keys with those of the `number` slices before each; None where they can't be counted back.

    >>> preceding([(dt.date(2026, 1, 1),)], 1)
    ((datetime.date(2026, 1, 1),), (datetime.date(2025, 12, 31),))
    """
    return _steps(keys, range(0, -number - 1, -1))


def union(found: Iterable[Iterable[Key]]) -> tuple[Key, ...]:
    """Return every key once, in order where there is one; null comes last."""
    keys = list(dict.fromkeys(key for some in found for key in some))
    try:
        return tuple(
            sorted(keys, key=lambda key: tuple((part is None, part) if part is not None else (True,) for part in key))
        )
    except TypeError:
        return tuple(keys)


def touched(task: Task, changes: Mapping[TableName, Sequence[Slice]]) -> tuple[Key, ...] | None:
    """Return the keys that a task has to compute for changed slices of its inputs: theirs, and those that look back.

    None where a lookback can't be counted on from them.
    """
    found: list[Sequence[Key]] = []
    for table, slices in changes.items():
        keys, back = tuple(one.key for one in slices), lookback(task, table)
        more = following(keys, back) if back else keys
        if more is None:
            return None
        found.append(more)
    return union(found)


def told(changes: Mapping[TableName, Sequence[Slice]], count: int, of: int | None) -> str:
    """Return which slices changed and how.

    >>> day = [Slice((dt.date(2026, 1, 2),), 1204), Slice((dt.date(2026, 1, 7),), 0, 3)]
    >>> told({TableName("ods", "orders"): day}, 2, 365)
    '2 of 365, ods.orders gained 1,204 rows on 2026-01-02 and lost 3 on 2026-01-07'
    """
    number = f"{count:,} of {max(count, of):,}" if of is not None else f"{count:,}"
    return ", ".join([number, *(f"{table} {_moves(found)}" for table, found in changes.items())])


def plain(part: Any) -> Any:
    """Return a part of a key as JSON has it."""
    return part if part is None or isinstance(part, bool | int | float | str) else str(part)


def _moves(found: Sequence[Slice]) -> str:
    texts: list[str] = []
    noun = " row"  # only the first number says what it counts
    for one in found[:_SHOWN]:
        net = one.gained - one.lost
        rows = noun + ("s" if noun and abs(net) != 1 else "")
        noun = "" if net else noun
        verb = f"gained {net:,}{rows}" if net > 0 else f"lost {-net:,}{rows}" if net else "changed"
        texts.append(f"{verb} {_where(one.key)}")
    rest = len(found) - _SHOWN
    if rest > 0:
        texts.append(f"changed in {rest:,} more")
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _where(key: Key) -> str:
    shown = "/".join("null" if part is None else str(part) for part in key)
    return f"{'on' if isinstance(key[0], dt.date) else 'in'} {shown}"


def _steps(keys: Iterable[Key], steps: range) -> tuple[Key, ...] | None:
    found: dict[Key, None] = {}
    for key in keys:
        first = key[0]
        if len(key) > 1 or (first is not None and _type(first) is None):
            return None
        for step in steps:
            with suppress(OverflowError):  # before the first day that there is, and after the last
                found[(first if first is None or not step else _shifted(first, step),)] = None
    return tuple(found)


def _shifted(value: Any, step: int) -> Any:
    return value + (dt.timedelta(days=step) if isinstance(value, dt.date) else step)


def _type(value: Any) -> type | None:
    """Return the type of a value that has a next one."""
    if isinstance(value, bool | dt.datetime):
        return None
    return next((kind for kind in (int, dt.date) if isinstance(value, kind)), None)


def _parameters(task: Task, table: TableName) -> list[str]:
    return [parameter for parameter, named in task.inputs if named == table]


def _lower(names: Iterable[str]) -> list[str]:
    return [name.strip("`").lower() for name in names]
