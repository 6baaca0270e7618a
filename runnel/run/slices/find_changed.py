"""Find the slices of inputs that changed: by their files where those tell, else by one Spark job.

Rows that were only rewritten cancel out, by sums of hashes over the rows of each slice.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.diff.compaction_delta import change
from runnel.lake.diff.file_delta import rows_apart
from runnel.lake.iceberg.partial_tables import side
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.names import TableName
from runnel.plan.slices import Key, Slice, lookback, touched, union
from runnel.run import content_tally
from runnel.run.slices.keys import FEW, Keys, part_names
from runnel.run.write.target_layout import columns_of
from runnel.run.write.temporary_tables import placed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.plan.facts import Head
    from runnel.plan.steps import Step
    from runnel.run.run_context import Work
    from runnel.run.task_context import Context

_EXACT = ("date", "integer", "long", "short", "byte", "string", "boolean")  # types whose values are exact as literals
_COUNTABLE = ("date", "integer", "long", "short", "byte")
_GAINED, _LOST, _ON = (internal_column(word) for word in ("gained", "lost", "on"))
_CONTENT = "content"  # of a table of files, next to its hash

Expressions = Mapping[TableName, tuple[str, ...]]


@dataclass(frozen=True)
class Found:
    """The keys to compute, and how each input changed."""

    keys: Keys
    changes: Mapping[TableName, tuple[Slice, ...]] = field(default_factory=dict)


def find(
    work: "Work",
    context: "Context",
    task: "Task",
    step: "Step",
    inputs: "Mapping[TableName, Head]",
    expressions: Expressions,
) -> Found:
    """Return the keys of the slices that a task has to compute; `expressions` name them in each sliced input."""
    assert step.base is not None
    known: dict[TableName, tuple[Slice, ...]] = {}
    unknown: list[TableName] = []
    for table in step.changed:
        if table not in expressions:
            continue  # a reference: its own changes recompute nothing
        slices = work.facts.slices(table, step.base.inputs[table], inputs[table], expressions[table])
        if slices is None:
            unknown.append(table)
        else:
            known[table] = slices
    if unknown:
        looked = _look(work, context, task, step, inputs, {table: expressions[table] for table in unknown})
        if isinstance(looked, Keys):
            return Found(_joined(context, task, looked, known))
        known |= looked
    return Found(_values(task, known), known)


def _values(task: "Task", known: Mapping[TableName, tuple[Slice, ...]]) -> Keys:
    found = touched(task, known)
    if found is None:
        raise _uncountable(task)
    return Keys(len(found), found)


def _look(
    work: "Work",
    context: "Context",
    task: "Task",
    step: "Step",
    inputs: "Mapping[TableName, Head]",
    expressions: Expressions,
) -> dict[TableName, tuple[Slice, ...]] | Keys:
    """Return the changed slices of inputs by one job; only their keys, as a frame, where they are many."""
    assert step.base is not None
    sides: dict[TableName, str] = {}
    signs: dict[TableName, tuple[TableName, int]] = {}
    for table in expressions:
        before, after = step.base.inputs[table].location, inputs[table].location
        older, newer = rows_apart(work.store, before, after, change(work.store, table, before, after))
        for location, entries, word, sign in ((after, newer, "came", 1), (before, older, "went", -1)):
            if entries:
                name = TableName(table.layer, f"{table.name}__{word}_in_{task.table.layer}_{task.table.name}")
                sides[name], signs[name] = side(work.store, location, entries), (table, sign)
    if not sides:
        return dict.fromkeys(expressions, ())
    order = list(expressions)
    with placed(context, sides):
        named = [(name, order.index(table), sign, expressions[table]) for name, (table, sign) in signs.items()]
        frame = _changed(context, named, [name for name in sides if is_file_table(load(work.store, sides[name]))])
        return _collected(task, frame, order, len(task.options.by))


def _changed(
    context: "Context", sides: Sequence[tuple[TableName, int, int, tuple[str, ...]]], files: Container[TableName]
) -> "DataFrame":
    """Return a row for each slice of each input whose rows differ, with how many came and went.

    In tables of `files` the hash of each content stands for it, so that it is not read.
    """
    from pyspark.sql import functions as F

    names = part_names(len(sides[0][3]))
    parts = []
    for name, place, sign, expressions in sides:
        rows = context.session.table(context.identifier(name))
        columns = [one for one in columns_of(rows.schema) if name not in files or one.name != _CONTENT]
        keys = [f"({text}) AS `{part}`" for text, part in zip(expressions, names, strict=True)]
        parts.append(rows.selectExpr(*keys, f"{place} AS input", f"{sign} AS sign", *content_tally.hashes(columns)))
    every = parts[0]
    for part in parts[1:]:
        every = every.union(part)
    sums = {
        name: f"sum(sign * ({_inner(sql)}))" for name, sql in content_tally.sums().items() if name != content_tally.ROWS
    }
    counts = {_GAINED: "count_if(sign > 0)", _LOST: "count_if(sign < 0)"}
    wanted = [F.expr(sql).alias(name) for name, sql in (counts | sums).items()]
    found = every.groupBy(*(f"`{name}`" for name in names), "input").agg(*wanted)
    differs = " OR ".join([f"`{_GAINED}` <> `{_LOST}`", *(f"`{name}` <> 0" for name in sums)])
    return found.where(differs).select(*(f"`{name}`" for name in (*names, "input", _GAINED, _LOST)))


def _inner(aggregate: str) -> str:
    """Return what an aggregate of `tally.sums` adds up."""
    return aggregate.removeprefix("sum(").removesuffix(")")


def _collected(
    task: "Task", frame: "DataFrame", order: Sequence[TableName], parts: int
) -> dict[TableName, tuple[Slice, ...]] | Keys:
    kinds = [field.dataType.typeName() for field in frame.schema.fields[:parts]]
    if any(lookback(task, table) for table in order) and kinds[0] not in _COUNTABLE:
        raise _uncountable(task)
    if all(kind in _EXACT for kind in kinds):
        rows = frame.limit(FEW + 1).collect()
        if len(rows) <= FEW:
            found: dict[TableName, dict[Key, Slice]] = {table: {} for table in order}
            for row in rows:
                key = tuple(row[:parts])
                found[order[row["input"]]][key] = Slice(key, row[_GAINED], row[_LOST])
            return {table: tuple(slices[key] for key in union([slices])) for table, slices in found.items()}
    # The tables that the keys come from are gone when they are used, and Spark looks tables up anew each time.
    kept = _with_following(task, frame, order, parts).localCheckpoint().persist()
    return Keys(kept.count(), frame=kept)


def _with_following(task: "Task", frame: "DataFrame", order: Sequence[TableName], parts: int) -> "DataFrame":
    """Return the distinct keys, each with those after it that read it."""
    from pyspark.sql import functions as F

    names = [f"`{name}`" for name in part_names(parts)]
    most = {place: lookback(task, table) for place, table in enumerate(order) if lookback(task, table)}
    if not most:
        return frame.select(*names).distinct()
    steps = F.expr(
        "CASE " + " ".join(f"WHEN input = {place} THEN {number}" for place, number in most.items()) + " ELSE 0 END"
    )
    is_date = frame.schema.fields[0].dataType.typeName() == "date"
    spread = frame.select(F.col(names[0]), F.explode(F.sequence(F.lit(0), steps)).alias(_ON))
    on = F.date_add(F.col(names[0]), F.col(f"`{_ON}`")) if is_date else F.col(names[0]) + F.col(f"`{_ON}`")
    return spread.select(on.alias(part_names(1)[0])).distinct()


def _joined(context: "Context", task: "Task", keys: Keys, known: Mapping[TableName, tuple[Slice, ...]]) -> Keys:
    """Return the keys of a frame with those that files have named."""
    from runnel.run.slices.keys import frame_of

    more = _values(task, known)
    if not more.values or keys.frame is None:
        return keys
    kept = keys.frame.union(frame_of(context.session, more, keys.frame.schema)).distinct().persist()
    return Keys(kept.count(), frame=kept)


def _uncountable(task: "Task") -> Mistake:
    what = f"task `{task.table}` has a lookback, but its slices are not known by one date or whole number"
    fix = "let `by` be one column of type date, int or long, or remove lookback="
    return Mistake("RUN_LOOKBACK", what, at=str(task.place), fix=fix)


def release(keys: Keys) -> None:
    """Let go of what was kept for the keys."""
    if keys.frame is not None:
        keys.frame.unpersist()
