"""What is known of the slice's key in the rows of an operator, and how joins and projections change it. Pure.

A key is known by the texts of expressions that equal it, null-safe, in every row.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from runnel.run.analysis.expression_text import coalesced, column, columns, turns_null

Keys = tuple[frozenset[str], ...]  # for each column of `by`, the expressions that equal it
_PLACE = re.compile(r"@(\d+)@")
_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle")


class Unfollowed(Exception):
    """Nobody can see whether slices are made of their own rows alone. The text says why."""


@dataclass(frozen=True)
class Group:
    """One slice that a row is made from; `spare` is how many slices before it may still be read for that row."""

    keys: Keys
    spare: int = 0


Groups = tuple[Group, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of an operator.

    They are universal where all of them are there whatever is computed, and sliced where they come from slices. Rows
    of a join that does not match the keys have several groups.
    """

    kind: Literal["universal", "sliced"]
    groups: Groups = ()


UNIVERSAL = Rows("universal")


@dataclass(frozen=True)
class Condition:
    """What holds in rows: pairs of expressions that are equal, and how much one is at least above another.

    `least[a, b] = n` says that a - b >= n.
    """

    pairs: Sequence[tuple[str, str]] = ()
    least: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Renaming(NamedTuple):
    """An expression and the column that a projection makes of it; `value` is it without casts that keep its value."""

    exact: str
    value: str
    column: str


def sliced_by(groups: Groups) -> Rows:
    """Return rows that come from slices."""
    return Rows("sliced", groups)


def merged(groups: Groups, condition: Condition = Condition()) -> Groups:  # noqa: B008
    """Return groups after a condition: one where two have the same key, or one lies within the reach of another.

    >>> one, two = Group((frozenset({"#1#"}),)), Group((frozenset({"#2#"}),), 6)
    >>> merged((one, two), Condition([("#2#", "#1#")])) == (Group((frozenset({"#1#", "#2#"}),)),)
    True
    >>> merged((one, two), Condition(least={("#1#", "#2#"): 0, ("#2#", "#1#"): -6})) == (one,)
    True
    >>> len(merged((one, two), Condition(least={("#1#", "#2#"): 0, ("#2#", "#1#"): -7})))
    2
    """
    groups = _equal(tuple(_closed_group(group, condition) for group in groups))
    for place, group in enumerate(groups):
        for other in groups[:place] + groups[place + 1 :]:
            width = _distance(other, group, condition)
            if width is not None and width <= group.spare:
                spare = min(other.spare, group.spare - width)
                rest = [replace(one, spare=spare) if one is other else one for one in groups if one is not group]
                return merged(tuple(rest), condition)
    return groups


def _equal(groups: Groups) -> Groups:
    found: list[Group] = []
    for group in groups:
        same = [other for other in found if _is_same(group, other)]
        for other in same:
            keys = tuple(left | right for left, right in zip(group.keys, other.keys, strict=True))
            group = Group(keys, min(group.spare, other.spare))
        found = [*(other for other in found if other not in same), group]
    return tuple(found) if len(found) == len(groups) else _equal(tuple(found))


def _is_same(group: Group, other: Group) -> bool:
    return all(left & right for left, right in zip(group.keys, other.keys, strict=True))


def _distance(later: Group, earlier: Group, condition: Condition) -> int | None:
    """Return how many slices one group lies before another at most; None where that, or the order, is not known."""
    if len(later.keys) != 1 or not condition.least:
        return None
    pairs = [(one, two) for one in later.keys[0] for two in earlier.keys[0]]
    is_before = any(condition.least.get(pair, -1) >= 0 for pair in pairs)
    widths = [-least for one, two in pairs if (least := condition.least.get((two, one))) is not None]
    return max(0, min(widths)) if is_before and widths else None


def lacking(group: Group, given: Collection[str]) -> list[int]:
    """Return the places of the columns whose key is not fixed by the values of the given expressions.

    >>> lacking(Group((frozenset({"Cast(#1#)"}), frozenset({"#2#"}))), ["#1#", "#3#"])
    [1]
    """
    is_fixed = [
        any(text in given or all(column(one) in given for one in columns(text)) for text in one) for one in group.keys
    ]
    return [place for place, one in enumerate(is_fixed) if not one]


def renamed(group: Group, names: Iterable[Renaming], visible: Collection[int] | None) -> Group:
    """Return a group after a projection: what each new column stands for, and which columns are still there."""
    found = [set(known) for known in group.keys]
    for old in names:
        for known in found:
            known |= {old.column for text in known if text == old.value}
            known |= {text.replace(old.exact, old.column) for text in known if old.exact in text}
    kept = (frozenset(text for text in known if visible is None or columns(text) <= set(visible)) for known in found)
    return replace(group, keys=tuple(kept))


def placed(group: Group, ids: Sequence[int]) -> Group:
    """Return a group in terms of the places of columns instead of their ids."""
    return renamed(group, [Renaming(column(one), column(one), f"@{place}@") for place, one in enumerate(ids)], ())


def common(groups: Sequence[Group], is_whole: bool) -> Group:
    """Return what rows of several groups, in terms of places, have in common; `is_whole` if there are no other rows."""
    known = [frozenset.intersection(*parts) for parts in zip(*(group.keys for group in groups), strict=True)]
    keys = tuple(frozenset(text for text in one if is_whole or _PLACE.search(text)) for one in known)
    return Group(keys, min(group.spare for group in groups))


def at(group: Group, ids: Sequence[int]) -> Group:
    """Return a group in terms of the ids that columns have at their places."""
    keys = (frozenset(_PLACE.sub(lambda m: column(ids[int(m[1])]), text) for text in known) for known in group.keys)
    return replace(group, keys=tuple(keys))


def joined(kind: str, left: Rows, right: Rows, condition: Condition, ids: Sequence[Collection[int]]) -> Rows | None:
    """Return the rows of a join, or None where rows of one slice miss matches in others.

    `ids` are the columns of its left and its right side.
    """
    if left.kind == right.kind == "universal":
        return UNIVERSAL
    if kind in ("Inner", "Cross"):
        return sliced_by(merged(left.groups + right.groups, condition))
    if kind in _LEFT:
        found = _kept(left, right, condition, ids[0])
        return _with_coalesced(found, right.groups, condition) if kind == "LeftOuter" else _of(found)
    if kind == "RightOuter":
        return _with_coalesced(_kept(right, left, condition, ids[1]), left.groups, condition)
    if kind == "FullOuter":
        return _full(_matching(left, right, condition, ids[0]), _matching(right, left, condition, ids[1]))
    raise Unfollowed(f"Runnel does not know a join of the kind `{kind}`")


def _closed_group(group: Group, condition: Condition) -> Group:
    return replace(group, keys=tuple(_closed(known, condition.pairs) for known in group.keys))


def _closed(known: frozenset[str], pairs: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Return what equals a key, given pairs that are equal."""
    found = set(known)
    while more := {one for pair in pairs for one in pair if found & set(pair)} - found:
        found |= more
    return frozenset(found)


def _kept(side: Rows, other: Rows, condition: Condition, ids: Collection[int]) -> Groups | None:
    """Return the groups of a side whose rows are all kept, or None where what they meet is not of their slice."""
    return side.groups if other.kind == "universal" else _matching(side, other, condition, ids)


def _matching(side: Rows, other: Rows, condition: Condition, ids: Collection[int]) -> Groups | None:
    """Return the groups of a side by which its rows find those of the other, or None where they do not."""
    found = merged(side.groups + other.groups, condition)
    if side.kind == "universal":
        own = tuple(frozenset(text for text in known if columns(text) <= set(ids)) for known in found[0].keys)
        return (replace(found[0], keys=own),) if len(found) == 1 and all(own) else None
    owners = [next((own for own in side.groups if _is_in(own, one)), None) for one in found]
    if None in owners:
        return None
    spares = {id(own): one.spare for own, one in zip(owners, found, strict=True)}
    return tuple(replace(own, spare=spares.get(id(own), own.spare)) for own in side.groups)


def _is_in(own: Group, whole: Group) -> bool:
    return all(known and known <= more for known, more in zip(own.keys, whole.keys, strict=True))


def _of(groups: Groups | None) -> Rows | None:
    return None if groups is None else sliced_by(groups)


def _with_coalesced(kept: Groups | None, other: Groups, condition: Condition) -> Rows | None:
    """Return the rows of an outer join: where the other side is null or equal, a coalesce of both is the key."""
    if kept is None or len(kept) != 1 or len(other) != 1:
        return _of(kept)
    if len(merged(kept + other, Condition(condition.pairs))) > 1:  # slices before it, as a lookback allows
        return sliced_by(kept)
    nulls = tuple(frozenset(filter(turns_null, known)) for known in other[0].keys)
    keys = tuple(own | _both(own, null) for own, null in zip(kept[0].keys, nulls, strict=True))
    return sliced_by((replace(kept[0], keys=keys),))


def _full(left: Groups | None, right: Groups | None) -> Rows | None:
    if left is None or right is None or len(left) != 1 or len(right) != 1:
        return None
    sides = [[frozenset(filter(turns_null, known)) for known in one[0].keys] for one in (left, right)]
    keys = tuple(_both(*known) for known in zip(*sides, strict=True))
    return sliced_by((Group(keys, min(left[0].spare, right[0].spare)),))


def _both(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(text for one in left for two in right for text in (coalesced(one, two), coalesced(two, one)))
