"""Remove the rows of a task's table that it made of input rows which are gone, known by the task's key."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.declare.sql.literals import literal
from runnel.lake.iceberg.snapshot_descent import RUN
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases import slots
from runnel.plan.facts import Head
from runnel.run.checks.row_checks import JSON_OPTIONS
from runnel.run.content_tally import quoted
from runnel.run.write.target_layout import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.run.task_context import Context

_GONE = "runnel_gone"


def without(
    context: "Context", task: Task, removed: "DataFrame", base: str, aside: Head | None
) -> tuple[str, Head | None]:
    """Return versions of a task's table and of its quarantine table without the rows that have a key of `removed`.

    They are the given ones where there is nothing to remove.
    """
    gone = removed.select(*(quoted(name) for name in task.options.key)).distinct()
    columns = columns_of(removed.select(*(quoted(name) for name in task.options.key)).schema)
    target = context.identifier(task.table)
    keys = {quoted(column.name): f"{target}.{quoted(column.name)}" for column in columns}
    rest = unmatched(context, task.table, base, gone, keys)
    if aside is None or task.quarantine is None:
        return rest, aside
    schema = literal(", ".join(f"{quoted(column.name)} {column.type}" for column in columns))
    raw = f"{context.identifier(task.quarantine)}.raw"
    inside = {key: f"from_json({raw}, {schema}, {JSON_OPTIONS}).{key}" for key in keys}
    kept = unmatched(context, task.quarantine, aside.location, gone, inside)
    return rest, aside if kept == aside.location else Head(kept, kept)


def total_rows(store: "Store", location: str) -> int:
    """Return how many rows a version has."""
    snapshot = load(store, location).current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get("total-records", 0))


def unmatched(context: "Context", table: "TableName", base: str, gone: "DataFrame", keys: Mapping[str, str]) -> str:
    """Return the version of a table without the rows whose keys, given as SQL, are in a frame."""
    from pyspark.sql import functions as F

    slots.place(context.store.db, context.slot, {table: base})
    # A merge takes no options of a write; the setting is the session's, which serves one run at a time.
    context.session.conf.set(f"spark.sql.iceberg.snapshot-property.{RUN}", context.run)
    matched = " AND ".join(f"{mine} <=> {_GONE}.{key}" for key, mine in keys.items())
    # Not as SQL over a view: Spark 4.1 can't plan a merge whose source is a view of another table.
    gone.alias(_GONE).mergeInto(context.identifier(table), F.expr(matched)).whenMatched().delete().merge()
    location = slots.location(context.store.db, context.slot, table)
    assert location is not None
    return base if total_rows(context.store, location) == total_rows(context.store, base) else location
