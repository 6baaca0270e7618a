"""Find and describe slices of a task's data: their expressions in each input, and those that a change affects. Pure."""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from runnel.declare.model.flow import ALL_SLICES, Task
from runnel.declare.options.expression_list import split_expressions
from runnel.declare.sql.literals import quote_column
from runnel.errors import join_names
from runnel.model.slice_key import ChangedSlice, SliceValue, union_keys
from runnel.names import TableName

MOST = 0.6  # above this share of changed slices everything is computed
SHOWN_KEYS = 100
_SHOWN_SLICES = 3


@dataclass(frozen=True)
class SliceSelection:
    """The slices of a task to compute, and how many it has. `keys` is None if Spark finds them during the run."""

    keys: tuple[SliceValue, ...] | None
    total: int | None = None

    @property
    def is_most(self) -> bool:
        """Return whether so many slices changed that computing everything is cheaper."""
        return self.keys is not None and is_most_slices(len(self.keys), self.total)

    @property
    def share(self) -> float | None:
        """Return the share of slices that changed, or None if it is not known."""
        if self.keys is None or not self.total:
            return None
        return min(1.0, len(self.keys) / self.total)

    def json(self) -> dict[str, Any]:
        """Return the JSON that scripts rely on, with only the first keys if there are very many."""
        first_keys = [[to_json_value(part) for part in key] for key in (self.keys or ())[:SHOWN_KEYS]]
        keys = [key[0] if len(key) == 1 else key for key in first_keys]
        number = None if self.keys is None else len(self.keys)
        return {"changed": number, "of": self.total, "keys": None if self.keys is None else keys}


def is_most_slices(changed: int, total: int | None) -> bool:
    """Return whether so many slices changed that computing all is cheaper.

    >>> is_most_slices(2, 365), is_most_slices(300, 365), is_most_slices(3, None)
    (False, True, False)
    """
    return total is not None and changed > 1 and changed > MOST * total


def slice_expressions(task: Task, table: TableName, columns: Collection[str]) -> tuple[str, ...] | None:
    """Return the Spark SQL expressions that name the slice of an input's row, one for each column of the task's `by`.

    None if the input has none: then any change of it affects all slices, unless it is a reference.
    """
    if is_reference(task, table):
        return None
    input_expressions = {dict(task.options.by_input).get(parameter) for parameter in _input_parameters(task, table)}
    if len(input_expressions) != 1:
        return None  # one table is used for two inputs with different expressions
    text = input_expressions.pop()
    if text is not None:
        return split_expressions(text) if text != ALL_SLICES else None
    column_names = {name.lower() for name in columns}
    return (
        tuple(quote_column(name) for name in task.options.by)
        if column_names.issuperset(_lower_names(task.options.by))
        else None
    )


def explain_unsliced_input(task: Task, table: TableName) -> str:
    """Return why an input has no slices."""
    if ALL_SLICES in {dict(task.options.by_input).get(parameter) for parameter in _input_parameters(task, table)}:
        return "each slice reads all of it"
    return f"it has no {join_names(task.options.by)} to split slices by"


def explain_unsliced_task(task: Task) -> str:
    """Return why a task is computed in full if none of its inputs has slices."""
    return f"none of its inputs has {join_names(task.options.by)}"


def may_have_slices(task: Task, table: TableName) -> bool:
    """Tell whether an input is expected to have slices: its author has not said that it has none."""
    parameters = _input_parameters(task, table)
    return not is_reference(task, table) and any(
        dict(task.options.by_input).get(parameter) != ALL_SLICES for parameter in parameters
    )


def is_reference(task: Task, table: TableName) -> bool:
    """Return whether a change of only this input recomputes nothing."""
    return bool(task.options.reference) and set(_input_parameters(task, table)) <= set(task.options.reference)


def full_computation_reason(task: Task, full_reason: str | None) -> str | None:
    """Return why all of a task has to be computed though only some rows changed; None if they are enough.

    `full_reason` is what was seen when it was last computed in full; `trust_by` promises that slices are independent.
    """
    return full_reason or None if not task.options.trust_by else None


def lookback_of(task: Task, table: TableName) -> int:
    """Return how many earlier slices of an input a slice reads."""
    lookbacks = dict(task.options.lookback)
    return max((lookbacks.get(parameter, 0) for parameter in _input_parameters(task, table)), default=0)


def add_following_keys(keys: Iterable[SliceValue], number: int) -> tuple[SliceValue, ...] | None:
    """Return keys with those of the `number` slices after each; None if later keys can't be computed.

    >>> add_following_keys([(1,), (2,)], 2), add_following_keys([("a",)], 1), add_following_keys([(dt.date.max,)], 1)
    (((1,), (2,), (3,), (4,)), None, ((datetime.date(9999, 12, 31),),))
    """
    return _shift_keys(keys, range(number + 1))


def add_preceding_keys(keys: Iterable[SliceValue], number: int) -> tuple[SliceValue, ...] | None:
    """Return keys with those of the `number` slices before each; None if earlier keys can't be computed.

    >>> add_preceding_keys([(dt.date(2026, 1, 1),)], 1)
    ((datetime.date(2026, 1, 1),), (datetime.date(2025, 12, 31),))
    """
    return _shift_keys(keys, range(0, -number - 1, -1))


def find_touched_keys(task: Task, changes: Mapping[TableName, Sequence[ChangedSlice]]) -> tuple[SliceValue, ...] | None:
    """Return the keys that a task must compute after slices of its inputs changed: theirs, and those that look back.

    None if a lookback is set and the keys have no next value.
    """
    key_groups: list[Sequence[SliceValue]] = []
    for table, slices in changes.items():
        keys, lookback_count = tuple(changed_slice.key for changed_slice in slices), lookback_of(task, table)
        needed_keys = add_following_keys(keys, lookback_count) if lookback_count else keys
        if needed_keys is None:
            return None
        key_groups.append(needed_keys)
    return union_keys(key_groups)


def describe_slices(changes: Mapping[TableName, Sequence[ChangedSlice]], count: int, total: int | None) -> str:
    """Describe which slices changed, and how.

    >>> day = [ChangedSlice((dt.date(2026, 1, 2),), 1204), ChangedSlice((dt.date(2026, 1, 7),), 0, 3)]
    >>> describe_slices({TableName("ods", "orders"): day}, 2, 365)
    '2 of 365, ods.orders gained 1,204 rows on 2026-01-02 and lost 3 on 2026-01-07'
    """
    number = f"{count:,} of {max(count, total):,}" if total is not None else f"{count:,}"
    return ", ".join(
        [number, *(f"{table} {_describe_slice_changes(table_slices)}" for table, table_slices in changes.items())]
    )


def to_json_value(part: Any) -> Any:
    """Convert a value of a key to JSON."""
    return part if part is None or isinstance(part, bool | int | float | str) else str(part)


def _describe_slice_changes(slices: Sequence[ChangedSlice]) -> str:
    texts: list[str] = []
    noun = " row"  # only the first number gets the noun
    for changed_slice in slices[:_SHOWN_SLICES]:
        net = changed_slice.rows_added - changed_slice.rows_removed
        rows = noun + ("s" if noun and abs(net) != 1 else "")
        noun = "" if net else noun
        verb = f"gained {net:,}{rows}" if net > 0 else f"lost {-net:,}{rows}" if net else "changed"
        texts.append(f"{verb} {_describe_key(changed_slice.key)}")
    remaining = len(slices) - _SHOWN_SLICES
    if remaining > 0:
        texts.append(f"changed in {remaining:,} more")
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _describe_key(key: SliceValue) -> str:
    key_text = "/".join("null" if part is None else str(part) for part in key)
    return f"{'on' if isinstance(key[0], dt.date) else 'in'} {key_text}"


def _shift_keys(keys: Iterable[SliceValue], steps: range) -> tuple[SliceValue, ...] | None:
    shifted_keys: dict[SliceValue, None] = {}
    for key in keys:
        first = key[0]
        if len(key) > 1 or (first is not None and _countable_type(first) is None):
            return None
        for step in steps:
            with suppress(OverflowError):  # outside the range of dates
                shifted_keys[(first if first is None or not step else _shift_value(first, step),)] = None
    return tuple(shifted_keys)


def _shift_value(value: Any, step: int) -> Any:
    return value + (dt.timedelta(days=step) if isinstance(value, dt.date) else step)


def _countable_type(value: Any) -> type | None:
    """Return the type of a value that can be counted up, such as a date; else None."""
    if isinstance(value, bool | dt.datetime):
        return None
    return next((kind for kind in (int, dt.date) if isinstance(value, kind)), None)


def _input_parameters(task: Task, table: TableName) -> list[str]:
    return [parameter for parameter, named in task.inputs if named == table]


def _lower_names(names: Iterable[str]) -> list[str]:
    return [name.strip("`").lower() for name in names]
