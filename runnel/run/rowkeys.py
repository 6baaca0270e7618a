"""What is known of the slice's key in the rows of an operator, and how joins and projections change it. Pure.

A key is known by the texts of expressions that equal it, null-safe, in every row.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from runnel.run.expression import coalesced, column, columns, turns_null

# For each column of `by`, the expressions that equal it.
Group = tuple[frozenset[str], ...]
Groups = tuple[Group, ...]
Pairs = Sequence[tuple[str, str]]
_PLACE = re.compile(r"@(\d+)@")
_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle")


@dataclass(frozen=True)
class Rows:
    """The rows of an operator.

    They are universal where all of them are there whatever is computed, sliced where they come from slices, and
    trusted where nobody can look. A group stands for one slice that a row is made from; rows of a join that does not
    match the keys have several.
    """

    kind: Literal["universal", "sliced", "trusted"]
    groups: Groups = ()


UNIVERSAL, TRUSTED = Rows("universal"), Rows("trusted")


def sliced_by(groups: Groups) -> Rows:
    """Return rows that come from slices."""
    return Rows("sliced", groups)


def merged(groups: Groups, pairs: Pairs = ()) -> Groups:
    """Return groups after a condition that makes pairs of expressions equal: one where two have the same key.

    >>> merged(((frozenset({"#1#"}),), (frozenset({"#2#"}),)), [("#2#", "#1#")]) == ((frozenset({"#1#", "#2#"}),),)
    True
    """
    found: list[Group] = []
    for group in groups:
        one = tuple(_closed(known, pairs) for known in group)
        same = [other for other in found if all(left & right for left, right in zip(one, other, strict=True))]
        for other in same:
            one = tuple(left | right for left, right in zip(one, other, strict=True))
        found = [*(other for other in found if other not in same), one]
    return tuple(found) if len(found) == len(groups) else merged(tuple(found))


def lacking(group: Group, given: Collection[str]) -> list[int]:
    """Return the places of the columns whose key is not fixed by the values of the given expressions.

    >>> lacking((frozenset({"Cast(#1#)"}), frozenset({"#2#"})), ["#1#", "#3#"])
    [1]
    """
    is_fixed = [
        any(text in given or all(column(one) in given for one in columns(text)) for text in one) for one in group
    ]
    return [place for place, one in enumerate(is_fixed) if not one]


def renamed(group: Group, names: Iterable[tuple[str, str]], visible: Collection[int] | None) -> Group:
    """Return a group after a projection: what each new text stands for, and which columns are still there."""
    found = [set(known) for known in group]
    for old, new in names:
        for known in found:
            known |= {text.replace(old, new) for text in known if old in text}
    return tuple(
        frozenset(text for text in known if visible is None or columns(text) <= set(visible)) for known in found
    )


def placed(group: Group, ids: Sequence[int]) -> Group:
    """Return a group in terms of the places of columns instead of their ids."""
    return renamed(group, [(column(one), f"@{place}@") for place, one in enumerate(ids)], ())


def common(groups: Sequence[Group], is_whole: bool) -> Group:
    """Return what rows of several groups, in terms of places, have in common; `is_whole` if there are no other rows."""
    known = [frozenset.intersection(*parts) for parts in zip(*groups, strict=True)]
    return tuple(frozenset(text for text in one if is_whole or _PLACE.search(text)) for one in known)


def at(group: Group, ids: Sequence[int]) -> Group:
    """Return a group in terms of the ids that columns have at their places."""
    return tuple(frozenset(_PLACE.sub(lambda m: column(ids[int(m[1])]), text) for text in known) for known in group)


def joined(kind: str, left: Rows, right: Rows, pairs: Pairs, ids: Sequence[Collection[int]]) -> Rows | None:
    """Return the rows of a join, or None where rows of one slice miss matches in others.

    `ids` are the columns of its left and its right side.
    """
    if "trusted" in (left.kind, right.kind):
        return TRUSTED
    if left.kind == right.kind == "universal":
        return UNIVERSAL
    if kind in ("Inner", "Cross"):
        return sliced_by(merged(left.groups + right.groups, pairs))
    if kind in _LEFT:
        found = _kept(left, right, pairs, ids[0])
        return _with_coalesced(found, right.groups) if kind == "LeftOuter" else _of(found)
    if kind == "RightOuter":
        return _with_coalesced(_kept(right, left, pairs, ids[1]), left.groups)
    if kind == "FullOuter":
        return _full(_matching(left, right, pairs, ids[0]), _matching(right, left, pairs, ids[1]))
    return TRUSTED


def _is_fixed(text: str, given: Collection[str]) -> bool:
    return text in given or all(column(one) in given for one in columns(text))


def _closed(known: frozenset[str], pairs: Pairs) -> frozenset[str]:
    """Return what equals a key, given pairs that are equal."""
    found = set(known)
    while more := {one for pair in pairs for one in pair if found & set(pair)} - found:
        found |= more
    return frozenset(found)


def _kept(side: Rows, other: Rows, pairs: Pairs, ids: Collection[int]) -> Groups | None:
    """Return the groups of a side whose rows are all kept, or None where what they meet is not of their slice."""
    return side.groups if other.kind == "universal" else _matching(side, other, pairs, ids)


def _matching(side: Rows, other: Rows, pairs: Pairs, ids: Collection[int]) -> Groups | None:
    """Return the groups of a side by which its rows find those of the other, or None where they do not."""
    found = merged(side.groups + other.groups, pairs)
    if side.kind == "universal":
        own = tuple(frozenset(text for text in known if columns(text) <= set(ids)) for known in found[0])
        return (own,) if len(found) == 1 and all(own) else None
    return side.groups if all(any(_is_in(own, one) for own in side.groups) for one in found) else None


def _is_in(own: Group, whole: Group) -> bool:
    return all(known and known <= more for known, more in zip(own, whole, strict=True))


def _of(groups: Groups | None) -> Rows | None:
    return None if groups is None else sliced_by(groups)


def _with_coalesced(kept: Groups | None, other: Groups) -> Rows | None:
    """Return the rows of an outer join: where the other side is null or equal, a coalesce of both is the key."""
    if kept is None or len(kept) != 1 or len(other) != 1:
        return _of(kept)
    nulls = tuple(frozenset(filter(turns_null, known)) for known in other[0])
    return sliced_by((tuple(own | _both(own, null) for own, null in zip(kept[0], nulls, strict=True)),))


def _full(left: Groups | None, right: Groups | None) -> Rows | None:
    if left is None or right is None or len(left) != 1 or len(right) != 1:
        return None
    sides = [[frozenset(filter(turns_null, known)) for known in one[0]] for one in (left, right)]
    return sliced_by((tuple(_both(*known) for known in zip(*sides, strict=True)),))


def _both(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(text for one in left for two in right for text in (coalesced(one, two), coalesced(two, one)))
