"""Track the slice key through the rows of operators: how joins, conditions and projections change it. Pure.

A key is represented by the texts of all expressions that equal it (null-safe) in every row.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from runnel.run.analysis.expression_text import coalesce_text, column_text, find_column_ids, is_null_with_column

KeyTexts = tuple[frozenset[str], ...]  # for each column of `by`, the expressions that equal it
_POSITION = re.compile(r"@(\d+)@")
_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle")


class AlignmentUnknown(Exception):
    """Raised if the plan does not show whether slices depend on their own rows only. The text says why."""


@dataclass(frozen=True)
class KeyGroup:
    """A slice that a row comes from; `lookback_left` is how many slices before it may still be read for that row."""

    keys: KeyTexts
    lookback_left: int = 0


KeyGroups = tuple[KeyGroup, ...]


@dataclass(frozen=True)
class OperatorRows:
    """The rows of an operator.

    They are universal if all of them are read whichever slices are computed, and sliced if they come from slices.
    Rows of a join that does not match the keys have several groups.
    """

    kind: Literal["universal", "sliced"]
    groups: KeyGroups = ()


UNIVERSAL = OperatorRows("universal")


@dataclass(frozen=True)
class RowCondition:
    """What holds in all rows: pairs of equal expressions, and minimum differences between expressions.

    `minimum_differences[a, b] = n` says that a - b >= n.
    """

    equal_pairs: Sequence[tuple[str, str]] = ()
    minimum_differences: Mapping[tuple[str, str], int] = field(default_factory=dict)


class ColumnRenaming(NamedTuple):
    """An expression and the column that a projection makes of it; `value` is without value-preserving casts."""

    exact: str
    value: str
    column: str


def make_sliced_rows(groups: KeyGroups) -> OperatorRows:
    """Return rows that come from slices."""
    return OperatorRows("sliced", groups)


def merge_groups(groups: KeyGroups, condition: RowCondition = RowCondition()) -> KeyGroups:  # noqa: B008
    """Return the groups after a condition: merge those with the same key, or within the lookback of another.

    >>> left, right = KeyGroup((frozenset({"#1#"}),)), KeyGroup((frozenset({"#2#"}),), 6)
    >>> merge_groups((left, right), RowCondition([("#2#", "#1#")])) == (KeyGroup((frozenset({"#1#", "#2#"}),)),)
    True
    >>> near = RowCondition(minimum_differences={("#1#", "#2#"): 0, ("#2#", "#1#"): -6})
    >>> merge_groups((left, right), near) == (left,)
    True
    >>> far = RowCondition(minimum_differences={("#1#", "#2#"): 0, ("#2#", "#1#"): -7})
    >>> len(merge_groups((left, right), far))
    2
    """
    groups = _merge_equal_groups(tuple(_close_group(group, condition) for group in groups))
    for position, group in enumerate(groups):
        for other in groups[:position] + groups[position + 1 :]:
            distance = _find_distance(other, group, condition)
            if distance is not None and distance <= group.lookback_left:
                lookback_left = min(other.lookback_left, group.lookback_left - distance)
                remaining_groups = [
                    replace(candidate, lookback_left=lookback_left) if candidate is other else candidate
                    for candidate in groups
                    if candidate is not group
                ]
                return merge_groups(tuple(remaining_groups), condition)
    return groups


def _merge_equal_groups(groups: KeyGroups) -> KeyGroups:
    distinct_groups: list[KeyGroup] = []
    for group in groups:
        equal_groups = [other for other in distinct_groups if _is_same_slice(group, other)]
        for other in equal_groups:
            keys = tuple(left | right for left, right in zip(group.keys, other.keys, strict=True))
            group = KeyGroup(keys, min(group.lookback_left, other.lookback_left))
        distinct_groups = [*(other for other in distinct_groups if other not in equal_groups), group]
    return (
        tuple(distinct_groups) if len(distinct_groups) == len(groups) else _merge_equal_groups(tuple(distinct_groups))
    )


def _is_same_slice(group: KeyGroup, other: KeyGroup) -> bool:
    return all(left & right for left, right in zip(group.keys, other.keys, strict=True))


def _find_distance(later: KeyGroup, earlier: KeyGroup, condition: RowCondition) -> int | None:
    """Return how many slices one group lies before another at most; None if that or the order is unknown."""
    if len(later.keys) != 1 or not condition.minimum_differences:
        return None
    pairs = [(later_text, earlier_text) for later_text in later.keys[0] for earlier_text in earlier.keys[0]]
    is_before = any(condition.minimum_differences.get(pair, -1) >= 0 for pair in pairs)
    distances = [
        -minimum
        for later_text, earlier_text in pairs
        if (minimum := condition.minimum_differences.get((earlier_text, later_text))) is not None
    ]
    return max(0, min(distances)) if is_before and distances else None


def find_unfixed_positions(group: KeyGroup, fixed_texts: Collection[str]) -> list[int]:
    """Return the positions of the `by` columns that the given expressions do not determine.

    >>> find_unfixed_positions(KeyGroup((frozenset({"Cast(#1#)"}), frozenset({"#2#"}))), ["#1#", "#3#"])
    [1]
    """
    is_fixed = [
        any(
            text in fixed_texts or all(column_text(item) in fixed_texts for item in find_column_ids(text))
            for text in item
        )
        for item in group.keys
    ]
    return [position for position, item in enumerate(is_fixed) if not item]


def rename_columns(
    group: KeyGroup, renamings: Iterable[ColumnRenaming], visible_ids: Collection[int] | None
) -> KeyGroup:
    """Return a group after a projection: with new columns for expressions, without columns that are dropped."""
    all_key_texts = [set(key_texts) for key_texts in group.keys]
    for renaming in renamings:
        for key_texts in all_key_texts:
            key_texts |= {renaming.column for text in key_texts if text == renaming.value}
            key_texts |= {text.replace(renaming.exact, renaming.column) for text in key_texts if renaming.exact in text}
    visible_keys = (
        frozenset(text for text in key_texts if visible_ids is None or find_column_ids(text) <= set(visible_ids))
        for key_texts in all_key_texts
    )
    return replace(group, keys=tuple(visible_keys))


def to_positions(group: KeyGroup, ids: Sequence[int]) -> KeyGroup:
    """Return a group in terms of the positions of columns instead of their ids."""
    return rename_columns(
        group,
        [
            ColumnRenaming(column_text(column_id), column_text(column_id), f"@{position}@")
            for position, column_id in enumerate(ids)
        ],
        (),
    )


def intersect_groups(groups: Sequence[KeyGroup], covers_all_rows: bool) -> KeyGroup:
    """Return what groups, in terms of positions, have in common.

    `covers_all_rows` says that there are no other rows.
    """
    common_keys = [
        frozenset.intersection(*key_parts) for key_parts in zip(*(group.keys for group in groups), strict=True)
    ]
    keys = tuple(
        frozenset(text for text in key_texts if covers_all_rows or _POSITION.search(text)) for key_texts in common_keys
    )
    return KeyGroup(keys, min(group.lookback_left for group in groups))


def to_column_ids(group: KeyGroup, ids: Sequence[int]) -> KeyGroup:
    """Return a group in terms of the ids of the columns at these positions."""
    keys = (
        frozenset(_POSITION.sub(lambda m: column_text(ids[int(m[1])]), text) for text in key_texts)
        for key_texts in group.keys
    )
    return replace(group, keys=tuple(keys))


def join_rows(
    join_type: str, left: OperatorRows, right: OperatorRows, condition: RowCondition, ids: Sequence[Collection[int]]
) -> OperatorRows | None:
    """Return the rows of a join, or None if rows of one slice would miss matches in others.

    `ids` are the columns of its left and its right side.
    """
    if left.kind == right.kind == "universal":
        return UNIVERSAL
    if join_type in ("Inner", "Cross"):
        return make_sliced_rows(merge_groups(left.groups + right.groups, condition))
    if join_type in _LEFT:
        retained_groups = _find_retained_groups(left, right, condition, ids[0])
        return (
            _add_coalesced_keys(retained_groups, right.groups, condition)
            if join_type == "LeftOuter"
            else _to_sliced_rows(retained_groups)
        )
    if join_type == "RightOuter":
        return _add_coalesced_keys(_find_retained_groups(right, left, condition, ids[1]), left.groups, condition)
    if join_type == "FullOuter":
        return _join_full_outer(
            _find_matching_groups(left, right, condition, ids[0]), _find_matching_groups(right, left, condition, ids[1])
        )
    raise AlignmentUnknown(f"Runnel does not know a join of the kind `{join_type}`")


def _close_group(group: KeyGroup, condition: RowCondition) -> KeyGroup:
    return replace(group, keys=tuple(_close_over_pairs(key_texts, condition.equal_pairs) for key_texts in group.keys))


def _close_over_pairs(key_texts: frozenset[str], pairs: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Return all texts that equal a key, given pairs of equal texts."""
    closed_texts = set(key_texts)
    while added_texts := {text for pair in pairs for text in pair if closed_texts & set(pair)} - closed_texts:
        closed_texts |= added_texts
    return frozenset(closed_texts)


def _find_retained_groups(
    side: OperatorRows, other: OperatorRows, condition: RowCondition, ids: Collection[int]
) -> KeyGroups | None:
    """Return the groups of the side that an outer join retains, or None if its rows match other slices."""
    return side.groups if other.kind == "universal" else _find_matching_groups(side, other, condition, ids)


def _find_matching_groups(
    side: OperatorRows, other: OperatorRows, condition: RowCondition, ids: Collection[int]
) -> KeyGroups | None:
    """Return the groups by which the rows of a side match the other side, or None if they don't."""
    merged_groups = merge_groups(side.groups + other.groups, condition)
    if side.kind == "universal":
        own = tuple(
            frozenset(text for text in key_texts if find_column_ids(text) <= set(ids))
            for key_texts in merged_groups[0].keys
        )
        return (replace(merged_groups[0], keys=own),) if len(merged_groups) == 1 and all(own) else None
    owners = [
        next((own for own in side.groups if _is_within_group(own, merged_group)), None)
        for merged_group in merged_groups
    ]
    if None in owners:
        return None
    lookbacks_left = {
        id(own): merged_group.lookback_left for own, merged_group in zip(owners, merged_groups, strict=True)
    }
    return tuple(replace(own, lookback_left=lookbacks_left.get(id(own), own.lookback_left)) for own in side.groups)


def _is_within_group(own: KeyGroup, whole: KeyGroup) -> bool:
    return all(
        own_texts and own_texts <= whole_texts for own_texts, whole_texts in zip(own.keys, whole.keys, strict=True)
    )


def _to_sliced_rows(groups: KeyGroups | None) -> OperatorRows | None:
    return None if groups is None else make_sliced_rows(groups)


def _add_coalesced_keys(
    retained_groups: KeyGroups | None, other_groups: KeyGroups, condition: RowCondition
) -> OperatorRows | None:
    """Return the rows of an outer join: coalesce(own, other) is the key too, as the other side is equal or null."""
    if retained_groups is None or len(retained_groups) != 1 or len(other_groups) != 1:
        return _to_sliced_rows(retained_groups)
    if (
        len(merge_groups(retained_groups + other_groups, RowCondition(condition.equal_pairs))) > 1
    ):  # earlier slices, as a lookback allows
        return make_sliced_rows(retained_groups)
    nullable_keys = tuple(frozenset(filter(is_null_with_column, key_texts)) for key_texts in other_groups[0].keys)
    keys = tuple(
        own | _coalesce_both_ways(own, nullable_texts)
        for own, nullable_texts in zip(retained_groups[0].keys, nullable_keys, strict=True)
    )
    return make_sliced_rows((replace(retained_groups[0], keys=keys),))


def _join_full_outer(left: KeyGroups | None, right: KeyGroups | None) -> OperatorRows | None:
    if left is None or right is None or len(left) != 1 or len(right) != 1:
        return None
    nullable_keys = [
        [frozenset(filter(is_null_with_column, key_texts)) for key_texts in side_groups[0].keys]
        for side_groups in (left, right)
    ]
    keys = tuple(_coalesce_both_ways(*key_texts) for key_texts in zip(*nullable_keys, strict=True))
    return make_sliced_rows((KeyGroup(keys, min(left[0].lookback_left, right[0].lookback_left)),))


def _coalesce_both_ways(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(
        text
        for left_text in left
        for right_text in right
        for text in (coalesce_text(left_text, right_text), coalesce_text(right_text, left_text))
    )
