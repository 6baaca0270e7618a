"""Remove from a task's table the rows that come from removed input rows, matched by the task's key."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.declare.sql.literals import format_literal
from runnel.lake.iceberg.snapshot_descent import RUN_PROPERTY
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases import slots
from runnel.model.table_version import TableVersion
from runnel.run.checks.row_checks import JSON_OPTIONS
from runnel.run.content_tally import quote_name
from runnel.run.write.target_layout import list_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.run.task_context import TaskContext

_SOURCE_ALIAS = "runnel_gone"


def remove_by_key(
    context: "TaskContext", task: Task, removed: "DataFrame", base: str, quarantine_head: TableVersion | None
) -> tuple[str, TableVersion | None]:
    """Return versions of a task's table and of its quarantine table without the rows that have a key of `removed`.

    The versions stay the same if there is nothing to remove.
    """
    removed_keys = removed.select(*(quote_name(name) for name in task.options.key)).distinct()
    columns = list_columns(removed.select(*(quote_name(name) for name in task.options.key)).schema)
    target = context.identifier(task.table)
    keys = {quote_name(column.name): f"{target}.{quote_name(column.name)}" for column in columns}
    remaining = remove_matching_rows(context, task.table, base, removed_keys, keys)
    if quarantine_head is None or task.quarantine_table is None:
        return remaining, quarantine_head
    schema = format_literal(", ".join(f"{quote_name(column.name)} {column.type.schema_text}" for column in columns))
    raw = f"{context.identifier(task.quarantine_table)}.raw"
    quarantined_keys = {key: f"from_json({raw}, {schema}, {JSON_OPTIONS}).{key}" for key in keys}
    quarantine_location = remove_matching_rows(
        context, task.quarantine_table, quarantine_head.location, removed_keys, quarantined_keys
    )
    return remaining, quarantine_head if quarantine_location == quarantine_head.location else TableVersion(
        quarantine_location, quarantine_location
    )


def count_rows(store: "Store", location: str) -> int:
    """Return how many rows a version has."""
    snapshot = load_metadata(store, location).current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get("total-records", 0))


def remove_matching_rows(
    context: "TaskContext", table: "TableName", base: str, matching_rows: "DataFrame", keys: Mapping[str, str]
) -> str:
    """Return the version of a table without the rows whose keys are in a frame; `keys` maps its columns to SQL."""
    from pyspark.sql import functions as F

    slots.place_tables(context.store.db, context.slot, {table: base})
    # A merge takes no write options; the setting belongs to the session, which serves one run at a time.
    context.session.conf.set(f"spark.sql.iceberg.snapshot-property.{RUN_PROPERTY}", context.run)
    match_condition = " AND ".join(f"{target_sql} <=> {_SOURCE_ALIAS}.{key}" for key, target_sql in keys.items())
    # Not as SQL over a view: Spark 4.1 can't plan a merge whose source is a view of another table.
    matching_rows.alias(_SOURCE_ALIAS).mergeInto(
        context.identifier(table), F.expr(match_condition)
    ).whenMatched().delete().merge()
    location = slots.read_location(context.store.db, context.slot, table)
    assert location is not None
    return base if count_rows(context.store, location) == count_rows(context.store, base) else location
