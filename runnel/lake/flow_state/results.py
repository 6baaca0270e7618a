"""Store results of tasks by a key of their code and inputs, shared by all branches and kept after failed runs.

As long as a result's row exists, gc retains its versions. Reads and writes the catalog database only, and imports
nothing heavy: a run in which nothing changed reads results and ends.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import VersionConflict
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.history.commits import has_erasure_since
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName

KEYS_PER_QUERY = 500
_RECENT = 3
_ANALYSIS_VERSION = 1  # increased when Runnel's analysis of incremental tasks becomes more precise
ResultKey = tuple[TableName, str]


def record(db: Database, result: TaskResult, *, planned_sequence: int | None = None) -> None:
    """Store a result, replacing one with the same key; idempotent.

    `planned_sequence` is the lake's sequence before its inputs were looked up: raises VersionConflict if rows were
    erased since, because the result may contain them.
    """
    values = _to_row(result)

    def work(connection: Connection) -> None:
        lock_lake(connection)  # serialized with gc, and with another run that computes the same result
        if planned_sequence is not None and has_erasure_since(connection, planned_sequence):
            raise VersionConflict(result.branch, [str(result.table)])
        values["used_at"] = max(db.now(connection), result.made_at)
        is_result = _build_row_condition(result)
        if connection.execute(schema.results.update().where(is_result).values(values)).rowcount == 0:
            connection.execute(schema.results.insert().values(values))
        failpoints.reach(failpoints.RESULT_BEFORE_COMMIT)

    db.write(work)
    failpoints.reach(failpoints.RESULT_RECORDED)


def mark_used(db: Database, result: TaskResult) -> bool:
    """Record that a result is used again, and tell whether it still exists: gc may have deleted it since it was read.

    The caller holds a pin or a slot, so that an existing result is retained until that ends.
    """

    def work(connection: Connection) -> bool:
        lock_lake(connection)
        is_result = sa.and_(_build_row_condition(result), schema.results.c.location == result.head.location)
        mark_query = schema.results.update().where(is_result).values(used_at=db.now(connection))
        return connection.execute(mark_query).rowcount == 1

    return db.write(work)


def find_by_keys(db: Database, keys: Iterable[ResultKey]) -> dict[ResultKey, TaskResult]:
    """Return the stored results with these keys."""
    requested_keys = list(dict.fromkeys((str(table), key) for table, key in keys))
    columns = schema.results.c

    def work(connection: Connection) -> dict[ResultKey, TaskResult]:
        results_by_key = {}
        for start in range(0, len(requested_keys), KEYS_PER_QUERY):
            is_requested = sa.tuple_(columns.table_name, columns.key).in_(
                requested_keys[start : start + KEYS_PER_QUERY]
            )
            for row in connection.execute(sa.select(schema.results).where(is_requested)):
                result = parse_result(row)
                results_by_key[result.table, result.key] = result
        return results_by_key

    return db.read(work) if requested_keys else {}


def find_by_content(db: Database, table: TableName, content: str) -> TaskResult | None:
    """Return the newest result of a table with this content, or None if no task computed it."""
    columns = schema.results.c
    query = (
        sa.select(schema.results)
        .where(columns.table_name == str(table), columns.content == content)
        .order_by(columns.made_at.desc(), columns.key)
        .limit(1)
    )
    row = db.read(lambda connection: connection.execute(query).first())
    return parse_result(row) if row else None


def list_recent(db: Database, table: TableName) -> tuple[TaskResult, ...]:
    """Return the last few results of a table, of any branch and including failed runs, newest first."""
    return db.read(lambda connection: tuple(_read_recent(connection, str(table))))


def _read_recent(connection: Connection, table: str) -> Iterator[TaskResult]:
    columns = schema.results.c
    newest = sa.select(schema.results).where(columns.table_name == table).order_by(columns.made_at.desc(), columns.key)
    yield from map(parse_result, connection.execute(newest.limit(_RECENT)))


def list_recent_of_all(connection: Connection) -> Iterator[TaskResult]:
    """Yield the recent results of every table: a task may continue from one even if no branch contains it."""
    for (table,) in connection.execute(sa.select(schema.results.c.table_name).distinct()).all():
        yield from _read_recent(connection, table)


def delete(db: Database, table: TableName, key: str) -> None:
    """Delete one result, for example because it turned out to be wrong."""
    is_result = sa.and_(schema.results.c.table_name == str(table), schema.results.c.key == key)
    db.write(lambda connection: connection.execute(schema.results.delete().where(is_result)))


def list_used_contents(db: Database, table: TableName, input_table: TableName) -> set[str]:
    """Return the contents of an input table that stored results of a table were computed from."""
    query = sa.select(schema.results.c.detail).where(schema.results.c.table_name == str(table))
    details = db.read(lambda connection: [json.loads(row.detail) for row in connection.execute(query)])
    used_inputs = (detail["inputs"].get(str(input_table)) for detail in details)
    return {version["content"] for version in used_inputs if version}


def list_current(connection: Connection) -> Iterator[TaskResult]:
    """Yield the newest result for each table content that a branch has now."""
    columns, heads = schema.results.c, schema.heads.c
    current_contents = sa.select(heads.table_name, heads.content).distinct().subquery()
    has_current_content = sa.and_(
        columns.table_name == current_contents.c.table_name, columns.content == current_contents.c.content
    )
    query = (
        sa.select(schema.results)
        .join(current_contents, has_current_content)
        .order_by(columns.made_at.desc(), columns.key)
    )
    yielded: set[tuple[str, str]] = set()
    for row in connection.execute(query):
        if (row.table_name, row.content) not in yielded:
            yielded.add((row.table_name, row.content))
            yield parse_result(row)


def parse_result(row: Row[Any]) -> TaskResult:
    """Return a database row as a result."""
    detail = json.loads(row.detail)
    quarantine_version = (
        TableVersion(row.quarantine_location, row.quarantine_content) if row.quarantine_location else None
    )
    return TaskResult(
        TableName.parse_unchecked(row.table_name),
        row.key,
        TableVersion(row.location, row.content),
        detail["code"],
        {
            TableName.parse_unchecked(name): TableVersion(version["location"], version["content"])
            for name, version in detail["inputs"].items()
        },
        row.run,
        row.branch,
        row.made_at,
        detail["rows"],
        quarantine_version,
        {TableName.parse_unchecked(name): tuple(used) for name, used in detail["columns"].items()},
        _parse_tally(detail["tally"]) if detail.get("tally") else None,
        detail.get("slices"),
        detail.get("extends"),
        _parse_why_whole(detail.get("why_whole")),
        detail.get("provenance", {}),
    )


def _parse_tally(stored: list[str]) -> tuple[int, int, int]:
    count, first_sum, second_sum = (int(number) for number in stored)
    return count, first_sum, second_sum


def _parse_why_whole(stored: list[Any] | None) -> str | None:
    """Return why the task can't be computed incrementally; None if an earlier Runnel with a weaker analysis said so."""
    return str(stored[1]) if stored and stored[0] == _ANALYSIS_VERSION else None


def _build_row_condition(result: TaskResult) -> "sa.ColumnElement[bool]":
    return sa.and_(schema.results.c.table_name == str(result.table), schema.results.c.key == result.key)


def _to_row(result: TaskResult) -> dict[str, Any]:
    inputs: Mapping[TableName, TableVersion] = result.inputs
    detail = {
        "code": dict(result.code),
        "inputs": {
            str(name): {"location": version.location, "content": version.content} for name, version in inputs.items()
        },
        "rows": result.rows,
        "columns": {str(name): list(used) for name, used in result.columns.items()},
        "tally": [str(number) for number in result.tally] if result.tally else None,
        "slices": result.slices,
        "extends": result.extends,
        "why_whole": None if result.full_reason is None else [_ANALYSIS_VERSION, result.full_reason],
        "provenance": dict(result.provenance),
    }
    return {
        "table_name": str(result.table),
        "key": result.key,
        "location": result.head.location,
        "content": result.head.content,
        "quarantine_location": result.quarantine.location if result.quarantine else None,
        "quarantine_content": result.quarantine.content if result.quarantine else None,
        "run": result.run,
        "branch": result.branch,
        "made_at": result.made_at,
        "detail": json.dumps(detail, sort_keys=True),
    }
