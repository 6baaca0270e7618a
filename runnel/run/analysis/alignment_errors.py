"""Tell a user which operator of a task stands against its `by=`, and what to do. Pure."""

from collections.abc import Sequence

from runnel.declare.model.flow import Task
from runnel.errors import Mistake, listed
from runnel.run.analysis.operators import NAMES

# What each operator does wrong, and what to do about it.
_TOLD = {
    "Aggregate": (
        "does not group by {it}: a slice would be made of part of its rows",
        "add {names} to groupBy(...), or remove by=",
    ),
    "Expand": (
        "does not always have {it}: some rows would be made of part of theirs",
        "keep {names} in every grouping set, outside of rollup or cube, or remove by=",
    ),
    "Window": (
        "is not partitioned by {it}: a slice would be made of part of its rows",
        "add {names} to partitionBy(...), or remove by=",
    ),
    "Distinct": (
        "does not compare {it}: a row may be left out because of another slice",
        "keep {names} among the columns that are compared, or remove by=",
    ),
    "Join": (
        "does not join on {it}: a slice would miss rows of the others",
        "join on {names} too, or put the input in reference=",
    ),
    "Subquery": (
        "looks at rows of other slices",
        "compare {names} in it with {names} outside of it, or put the input in reference=",
    ),
    "GlobalLimit": (
        "counts the rows of all slices",
        "take the first rows of each {names} with row_number(), or remove by=",
    ),
}
_LIKE = {
    "AsOfJoin": "Join",
    "Deduplicate": "Distinct",
    "DeduplicateWithinWatermark": "Distinct",
    "Except": "Distinct",
    "Intersect": "Distinct",
    "LateralJoin": "Join",
    "LocalLimit": "GlobalLimit",
    "Offset": "GlobalLimit",
    "Tail": "GlobalLimit",
}
_ALSO = {"DeduplicateWithinWatermark": "distinct", "Expand": "grouping in several ways", "Subquery": "subquery"}


def unaligned(task: Task, kind: str, places: Sequence[int] = (), *, is_inside: bool = False) -> Mistake:
    """Return the mistake of an operator, named by its class, that lacks the columns of `by` at some places, or all."""
    lacking = [task.options.by[place] for place in places] or list(task.options.by)
    wrong, fix = _TOLD[_LIKE.get(kind, kind)]
    name = _ALSO.get(kind) or NAMES[kind]
    who = f"the {name} in its subquery" if is_inside else f"its {name}"
    it = "it" if len(task.options.by) == 1 else listed(lacking)
    return _mistake(task, f"{who} {wrong.format(it=it, names=listed(lacking))}", fix.format(names=listed(lacking)))


def other_column(task: Task, place: int, *, is_there: bool) -> Mistake:
    """Return the mistake of a task whose column in `by` is not made from the slice's key."""
    name = task.options.by[place]
    if not is_there:
        return _mistake(task, f"it makes no column `{name}`", f"select `{name}`, or remove by=")
    fix = f"pass on `{name}` of the inputs unchanged, say in by_input= what it is made from, or remove by="
    return _mistake(task, f"its column `{name}` is not the one that its inputs are sliced by", fix)


def too_far_back(task: Task, width: int | None, most: int) -> Mistake:
    """Return the mistake of a window that reads more slices before its own than the lookback says, or later ones."""
    slices = f"{most} slice{'' if most == 1 else 's'}"
    reads = f"reads {width} slices back" if width is not None else "reads all earlier slices, or later ones"
    what = f"task `{task.table}` looks back {slices}, but its window {reads}"
    more = f"let lookback= be at least {width}" if width is not None else "give the window a range that ends"
    fix = f"{more}, as in `range between interval {width or most} days preceding and current row`; or remove by="
    return Mistake("RUN_LOOKBACK", what, at=str(task.place), fix=fix)


def _mistake(task: Task, but: str, fix: str) -> Mistake:
    what = f"task `{task.table}` is computed by {listed(task.options.by)}, but {but}"
    return Mistake("RUN_NOT_BY", what, at=str(task.place), fix=fix)
