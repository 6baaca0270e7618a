"""Keys of slices, and a changed slice, as the lake reads them from files and as the planner combines them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SliceValue = tuple[Any, ...]


@dataclass(frozen=True)
class ChangedSlice:
    """A slice of an input that changed: its key, and how many rows were added and removed."""

    key: SliceValue
    rows_added: int = 0
    rows_removed: int = 0


def union_keys(key_groups: Iterable[Iterable[SliceValue]]) -> tuple[SliceValue, ...]:
    """Return every key once, sorted if the values can be ordered, with null last."""
    keys = list(dict.fromkeys(key for group in key_groups for key in group))
    try:
        return tuple(
            sorted(keys, key=lambda key: tuple((part is None, part) if part is not None else (True,) for part in key))
        )
    except TypeError:
        return tuple(keys)
