"""A slot of a fresh lake with its session, and tasks without a function: tests hand their frames over."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.flow import Check, Task, TaskOptions
from runnel.declare.model.source_location import SourceLocation
from runnel.declare.sql.literals import format_literal
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.leases import slots
from runnel.lake.store import Store
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.run.task_context import TaskContext
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
TABLE = TableName("dws", "made")
ASIDE = TableName("quarantine", "dws_made")


@pytest.fixture
def context(store: Store, spark: "SparkSession") -> Iterator[TaskContext]:
    """Take a slot; nothing but what a test places is in it afterwards."""
    commit, layers = store.commit("main"), ["dws", "quarantine"]
    taken = slots.acquire_slot(store.db, f"t{secrets.token_hex(6)}", 0, commit, {}, layers=layers)
    database = store.db.url.render_as_string(hide_password=False)
    session = create_slot_session(spark, CatalogSettings(taken.name, database, store.warehouse))
    yield TaskContext(store, taken, session, "run-1", NOW)
    left = {change.table for change in slots.list_changes(store.db, taken)}
    slots.release(store.db, taken)
    assert all("__" not in table.name for table in left)


def task_with(*checks: Check, schema: str | None = None, **options: Any) -> Task:
    """Return a task of the table `dws.made`."""
    given = TaskOptions(schema=parse_columns(schema) if schema else None, **options)
    return Task(TABLE, "made", SourceLocation("flows/made.py", 7), options=given, checks=checks)


def row(condition: str, on_fail: Any = "stop", line: int = 9) -> Check:
    """Return a check of rows."""
    return Check("condition", condition, (), condition, on_fail=on_fail, place=SourceLocation("flows/made.py", line))


def whole(kind: str, *names: str, on_fail: Any = "stop", **arguments: Any) -> Check:
    """Return a check of a table."""
    text = f"{kind}({', '.join([*names, *(f'{name}={value}' for name, value in arguments.items())])})"
    return Check(kind, text, names, None, tuple(arguments.items()), on_fail, SourceLocation("flows/made.py", 11))


def frame(context: TaskContext, schema: str, *rows: tuple[Any, ...]) -> "DataFrame":
    """Return rows of plain values as a frame; as SQL, which is faster than rows from Python."""
    wanted = parse_columns(schema)
    names = ", ".join(f"`{at}`" for at in range(len(wanted)))
    listed = [f"({', '.join('null' if one is None else format_literal(one) for one in row)})" for row in rows]
    chosen = ", ".join(f"cast(`{at}` as {column.type}) as `{column.name}`" for at, column in enumerate(wanted))
    none = f"({', '.join(['null'] * len(wanted))})"
    values = f"values {', '.join(listed or [none])} as v({names})"
    return context.session.sql(f"select {chosen} from {values}" + ("" if rows else " limit 0"))


def rows_of(context: TaskContext, location: str) -> list[tuple[Any, ...]]:
    """Return the rows of a version, as Spark reads them, sorted."""
    name = TableName("dws", "looked_at")
    slots.place_tables(context.store.db, context.slot, {name: location})
    found = sorted((tuple(one) for one in context.session.table(context.identifier(name)).collect()), key=repr)
    slots.place_tables(context.store.db, context.slot, {name: None})
    return found


def files_of(context: TaskContext, location: str) -> int:
    """Return how many data files a version has."""
    return len(list(read_entries(context.store, table_metadata.load_metadata(context.store, location))))


def later(context: TaskContext, aside: TableVersion | None) -> TaskContext:
    """Return the context of a later run, whose slot began with this quarantine table."""
    base = {ASIDE: TableVersion(aside.location, aside.content)} if aside else {}
    return replace(context, slot=replace(context.slot, base=base), run="run-2")
