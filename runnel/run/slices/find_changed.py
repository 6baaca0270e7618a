"""Find the slices of inputs that changed: from file metadata if that is enough, else by one Spark job.

Rows that were only rewritten cancel out, because sums of hashes over the rows of each slice are compared.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.diff.compaction_delta import compute_change
from runnel.lake.diff.file_delta import find_differing_files
from runnel.lake.iceberg.partial_tables import stage_partial_table
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.model.slice_key import ChangedSlice, SliceValue, union_keys
from runnel.names import TableName
from runnel.plan.slices import find_touched_keys, lookback_of
from runnel.run import content_tally
from runnel.run.slices.keys import FEW, SliceKeys, make_part_names
from runnel.run.write.target_layout import list_columns
from runnel.run.write.temporary_tables import place_temporarily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.run.task_context import TaskContext, TaskRun

_EXACT = ("date", "integer", "long", "short", "byte", "string", "boolean")  # types whose values are exact as literals
_COUNTABLE = ("date", "integer", "long", "short", "byte")
_GAINED, _LOST, _ON = (internal_column(word) for word in ("gained", "lost", "on"))
_CONTENT = "content"  # of a file table, which also has its hash

Expressions = Mapping[TableName, tuple[str, ...]]


@dataclass(frozen=True)
class ChangedSlices:
    """The keys to compute, and how each input changed."""

    keys: SliceKeys
    changes: Mapping[TableName, tuple[ChangedSlice, ...]] = field(default_factory=dict)


def find_changed_slices(task_run: "TaskRun", context: "TaskContext", expressions: Expressions) -> ChangedSlices:
    """Return the keys of the slices that a task has to compute; `expressions` give the slice in each sliced input."""
    task, step, facts = task_run.task, task_run.step, task_run.run_context.facts
    assert step.base is not None
    changes: dict[TableName, tuple[ChangedSlice, ...]] = {}
    unresolved: list[TableName] = []
    for table in step.changed:
        if table not in expressions:
            continue  # a reference: its changes recompute no slice
        slices = facts.changed_slices(table, step.base.inputs[table], task_run.inputs[table], expressions[table])
        if slices is None:
            unresolved.append(table)
        else:
            changes[table] = slices
    if unresolved:
        searched = _find_with_spark(task_run, context, {table: expressions[table] for table in unresolved})
        if isinstance(searched, SliceKeys):
            return ChangedSlices(_union_keys(context, task, searched, changes))
        changes |= searched
    return ChangedSlices(_collect_keys(task, changes), changes)


def _collect_keys(task: "Task", changes: Mapping[TableName, tuple[ChangedSlice, ...]]) -> SliceKeys:
    touched_keys = find_touched_keys(task, changes)
    if touched_keys is None:
        raise _lookback_type_error(task)
    return SliceKeys(len(touched_keys), touched_keys)


def _find_with_spark(
    task_run: "TaskRun", context: "TaskContext", expressions: Expressions
) -> dict[TableName, tuple[ChangedSlice, ...]] | SliceKeys:
    """Return the changed slices of inputs by one job; only their keys, as a frame, if they are many."""
    store, task, base = task_run.run_context.store, task_run.task, task_run.step.base
    assert base is not None
    temporary_tables: dict[TableName, str] = {}
    signs: dict[TableName, tuple[TableName, int]] = {}
    for table in expressions:
        before, after = base.inputs[table].location, task_run.inputs[table].location
        removed_entries, added_entries = find_differing_files(
            store, before, after, compute_change(store, table, before, after)
        )
        for location, entries, label, sign in (
            (after, added_entries, "came", 1),
            (before, removed_entries, "went", -1),
        ):
            if entries:
                name = TableName(table.layer, f"{table.name}__{label}_in_{task.table.layer}_{task.table.name}")
                temporary_tables[name], signs[name] = (
                    stage_partial_table(store, location, entries),
                    (table, sign),
                )
    if not temporary_tables:
        return dict.fromkeys(expressions, ())
    input_tables = list(expressions)
    with place_temporarily(context, temporary_tables):
        signed_tables = [
            (name, input_tables.index(table), sign, expressions[table]) for name, (table, sign) in signs.items()
        ]
        frame = _build_changes_frame(
            context,
            signed_tables,
            [name for name in temporary_tables if is_file_table(load_metadata(store, temporary_tables[name]))],
        )
        return _collect_changes(task, frame, input_tables, len(task.options.by))


def _build_changes_frame(
    context: "TaskContext",
    signed_tables: Sequence[tuple[TableName, int, int, tuple[str, ...]]],
    file_tables: Container[TableName],
) -> "DataFrame":
    """Return a row for each changed slice of each input, with the numbers of added and removed rows.

    In `file_tables` the hash column stands for the content column, which is not read.
    """
    from pyspark.sql import functions as F

    names = make_part_names(len(signed_tables[0][3]))
    signed_rows = []
    for name, input_number, sign, expressions in signed_tables:
        rows = context.session.table(context.identifier(name))
        columns = [column for column in list_columns(rows.schema) if name not in file_tables or column.name != _CONTENT]
        keys = [f"({text}) AS `{part}`" for text, part in zip(expressions, names, strict=True)]
        signed_rows.append(
            rows.selectExpr(
                *keys, f"{input_number} AS input", f"{sign} AS sign", *content_tally.build_row_hashes(columns)
            )
        )
    all_rows = signed_rows[0]
    for part in signed_rows[1:]:
        all_rows = all_rows.union(part)
    sums = {
        name: f"sum(sign * ({_unwrap_sum(sql)}))"
        for name, sql in content_tally.build_sums().items()
        if name != content_tally.ROWS
    }
    counts = {_GAINED: "count_if(sign > 0)", _LOST: "count_if(sign < 0)"}
    aggregates = [F.expr(sql).alias(name) for name, sql in (counts | sums).items()]
    changes = all_rows.groupBy(*(f"`{name}`" for name in names), "input").agg(*aggregates)
    difference_condition = " OR ".join([f"`{_GAINED}` <> `{_LOST}`", *(f"`{name}` <> 0" for name in sums)])
    return changes.where(difference_condition).select(*(f"`{name}`" for name in (*names, "input", _GAINED, _LOST)))


def _unwrap_sum(aggregate: str) -> str:
    """Return the expression inside an aggregate of `build_sums`."""
    return aggregate.removeprefix("sum(").removesuffix(")")


def _collect_changes(
    task: "Task", frame: "DataFrame", input_tables: Sequence[TableName], part_count: int
) -> dict[TableName, tuple[ChangedSlice, ...]] | SliceKeys:
    kinds = [field.dataType.typeName() for field in frame.schema.fields[:part_count]]
    if any(lookback_of(task, table) for table in input_tables) and kinds[0] not in _COUNTABLE:
        raise _lookback_type_error(task)
    if all(kind in _EXACT for kind in kinds):
        rows = frame.limit(FEW + 1).collect()
        if len(rows) <= FEW:
            slices_by_table: dict[TableName, dict[SliceValue, ChangedSlice]] = {table: {} for table in input_tables}
            for row in rows:
                key = tuple(row[:part_count])
                slices_by_table[input_tables[row["input"]]][key] = ChangedSlice(key, row[_GAINED], row[_LOST])
            return {
                table: tuple(slices[key] for key in union_keys([slices])) for table, slices in slices_by_table.items()
            }
    # The tables that the keys come from are removed before the keys are used, and Spark looks tables up each time.
    cached_keys = _add_following_keys(task, frame, input_tables, part_count).localCheckpoint().persist()
    return SliceKeys(cached_keys.count(), frame=cached_keys)


def _add_following_keys(
    task: "Task", frame: "DataFrame", input_tables: Sequence[TableName], part_count: int
) -> "DataFrame":
    """Return the distinct keys, each with the later keys that read it because of a lookback."""
    from pyspark.sql import functions as F

    names = [f"`{name}`" for name in make_part_names(part_count)]
    lookbacks = {
        input_number: lookback_of(task, table)
        for input_number, table in enumerate(input_tables)
        if lookback_of(task, table)
    }
    if not lookbacks:
        return frame.select(*names).distinct()
    steps = F.expr(
        "CASE "
        + " ".join(f"WHEN input = {input_number} THEN {number}" for input_number, number in lookbacks.items())
        + " ELSE 0 END"
    )
    is_date = frame.schema.fields[0].dataType.typeName() == "date"
    spread = frame.select(F.col(names[0]), F.explode(F.sequence(F.lit(0), steps)).alias(_ON))
    shifted_key = F.date_add(F.col(names[0]), F.col(f"`{_ON}`")) if is_date else F.col(names[0]) + F.col(f"`{_ON}`")
    return spread.select(shifted_key.alias(make_part_names(1)[0])).distinct()


def _union_keys(
    context: "TaskContext", task: "Task", keys: SliceKeys, changes: Mapping[TableName, tuple[ChangedSlice, ...]]
) -> SliceKeys:
    """Return the keys of a frame together with those found from file metadata."""
    from runnel.run.slices.keys import build_key_frame

    file_keys = _collect_keys(task, changes)
    if not file_keys.values or keys.frame is None:
        return keys
    cached_keys = keys.frame.union(build_key_frame(context.session, file_keys, keys.frame.schema)).distinct().persist()
    return SliceKeys(cached_keys.count(), frame=cached_keys)


def _lookback_type_error(task: "Task") -> Mistake:
    what = f"task `{task.table}` has a lookback, but its slices are not identified by one date or whole number"
    fix = "set `by` to one column of type date, int or long, or remove lookback="
    return Mistake("RUN_LOOKBACK", what, at=str(task.place), fix=fix)


def release_keys(keys: SliceKeys) -> None:
    """Release the cached frame of the keys."""
    if keys.frame is not None:
        keys.frame.unpersist()
