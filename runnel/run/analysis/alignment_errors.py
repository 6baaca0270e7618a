"""Describe which operator of a task contradicts its `by=`, and what to do. Pure."""

from collections.abc import Sequence

from runnel.declare.model.flow import ALL_SLICES, Task
from runnel.errors import Mistake, did_you_mean, join_names, plural
from runnel.run.analysis.operators import NAMES

# What each operator does wrong, and what to do about it.
_ADVICE = {
    "Aggregate": (
        "does not group by {it}: a slice would be computed from only part of its rows",
        "add {names} to groupBy(...), or remove by=",
    ),
    "Expand": (
        "does not always have {it}: some rows would be computed from only part of their input",
        "keep {names} in every grouping set, outside of rollup or cube, or remove by=",
    ),
    "Window": (
        "is not partitioned by {it}: a slice would be computed from only part of its rows",
        "add {names} to partitionBy(...), or remove by=",
    ),
    "Distinct": (
        "does not compare {it}: a row may be left out because of another slice",
        "keep {names} among the columns that are compared, or remove by=",
    ),
    "Join": (
        "does not join on {it}: a slice would miss rows of the others",
        "join on {names} too, put the input in reference=, or write {all_slices} if each slice reads all of it",
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
_ADVISED_AS = {
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
_OPERATOR_NAMES = {
    "DeduplicateWithinWatermark": "distinct",
    "Expand": "grouping in several ways",
    "Subquery": "subquery",
}


def unaligned_error(task: Task, kind: str, positions: Sequence[int] = (), *, is_inside: bool = False) -> Mistake:
    """Return the error for an operator that lacks the `by` columns at `positions`, or all of them."""
    missing_columns = [task.options.by[position] for position in positions] or list(task.options.by)
    problem, fix = _ADVICE[_ADVISED_AS.get(kind, kind)]
    name = _OPERATOR_NAMES.get(kind) or NAMES[kind]
    operator = f"the {name} in its subquery" if is_inside else f"its {name}"
    columns_text = "it" if len(task.options.by) == 1 else join_names(missing_columns)
    return _not_by_error(
        task,
        f"{operator} {problem.format(it=columns_text, names=join_names(missing_columns))}",
        fix.format(names=join_names(missing_columns), all_slices=f'by_input={{"INPUT": "{ALL_SLICES}"}}'),
    )


def missing_column_error(task: Task, position: int, columns: Sequence[str]) -> Mistake:
    """Return the error for a task that does not make a column of its `by`."""
    name = task.options.by[position]
    problem = f"it returns no column `{name}`" + did_you_mean(name, columns)
    return _not_by_error(task, problem, f"select `{name}`, name another column in by=, or remove by=", "by")


def map_column_error(task: Task, position: int) -> Mistake:
    """Return the error for a task whose `by` column is a map."""
    fix = "let by= name a column of another type, such as a text, a number or a date"
    return _not_by_error(task, f"its column `{task.options.by[position]}` is a map, which can't be compared", fix, "by")


def wrong_column_error(task: Task, position: int) -> Mistake:
    """Return the error for a task whose `by` column is not computed from the slice key."""
    name = task.options.by[position]
    fix = f"pass on `{name}` of the inputs unchanged, say in by_input= what it is made from, or remove by="
    return _not_by_error(task, f"its column `{name}` is not the one that its inputs are sliced by", fix)


def lookback_error(task: Task, width: int | None, lookback: int) -> Mistake:
    """Return the error for a window that reads further back than the lookback, or later slices."""
    slices = plural(lookback, "slice")
    reads = f"reads {width} slices back" if width is not None else "reads all earlier slices, or later ones"
    what = f"task `{task.table}` looks back {slices}, but its window {reads}"
    advice = f"set lookback= to at least {width}" if width is not None else "give the window a range that ends"
    fix = f"{advice}, as in `range between interval {width or lookback} days preceding and current row`; or remove by="
    return Mistake("RUN_LOOKBACK", what, at=str(task.place), fix=fix)


def _not_by_error(task: Task, problem: str, fix: str, option: str | None = None) -> Mistake:
    """Return the error; `option` is the one to blame, if it is not the query."""
    what = f"task `{task.table}` is computed by {join_names(task.options.by)}, but {problem}"
    place = task.place_of(option) if option is not None else task.place
    return Mistake("RUN_NOT_BY", what, at=str(place), fix=fix)
