"""Results: what tasks once made, known by a key of their code and inputs, on every branch and after failed runs.

A result's row is a promise: as long as it is there, gc keeps its versions. Reads and writes the catalog database only,
and imports nothing heavy: a run in which nothing changed asks here and ends.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Moved
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock
from runnel.lake.history.commits import erased_since
from runnel.names import TableName
from runnel.plan.facts import Head, Result

AT_ONCE = 500
_RECENT = 3
_LOOK = 1  # counts up when Runnel looks closer at whether a task can be computed from changes
Key = tuple[TableName, str]


def record(db: Database, result: Result, *, planned: int | None = None) -> None:
    """Keep a result, in the place of one with the same key; doing it twice is doing it once.

    `planned` is the lake's sequence before its inputs were looked up: raises Moved where rows were erased since,
    because the result may hold them.
    """
    values = _values(result)

    def work(connection: Connection) -> None:
        lock(connection)  # in one order with gc, and with another run that makes the same
        if planned is not None and erased_since(connection, planned):
            raise Moved(result.branch, [str(result.table)])
        values["used_at"] = max(db.now(connection), result.made_at)
        here = _here(result)
        if connection.execute(schema.results.update().where(here).values(values)).rowcount == 0:
            connection.execute(schema.results.insert().values(values))
        failpoints.reach(failpoints.RESULT_BEFORE_COMMIT)

    db.write(work)
    failpoints.reach(failpoints.RESULT_RECORDED)


def use(db: Database, result: Result) -> bool:
    """Note that a result is used again, and tell whether it is still known: gc may have let it go since it was read.

    The caller holds a pin or a slot, so that what is known now stays until that ends.
    """

    def work(connection: Connection) -> bool:
        lock(connection)
        here = sa.and_(_here(result), schema.results.c.location == result.head.location)
        noted = schema.results.update().where(here).values(used_at=db.now(connection))
        return connection.execute(noted).rowcount == 1

    return db.write(work)


def by_keys(db: Database, keys: Iterable[Key]) -> dict[Key, Result]:
    """Return the results that are known for these keys."""
    wanted = list(dict.fromkeys((str(table), key) for table, key in keys))
    columns = schema.results.c

    def work(connection: Connection) -> dict[Key, Result]:
        found = {}
        for start in range(0, len(wanted), AT_ONCE):
            some = sa.tuple_(columns.table_name, columns.key).in_(wanted[start : start + AT_ONCE])
            for row in connection.execute(sa.select(schema.results).where(some)):
                result = result_of(row)
                found[result.table, result.key] = result
        return found

    return db.read(work) if wanted else {}


def made(db: Database, table: TableName, content: str) -> Result | None:
    """Return the newest result of a table that has this content, or None where no task made it."""
    columns = schema.results.c
    query = (
        sa.select(schema.results)
        .where(columns.table_name == str(table), columns.content == content)
        .order_by(columns.made_at.desc(), columns.key)
        .limit(1)
    )
    row = db.read(lambda connection: connection.execute(query).first())
    return result_of(row) if row else None


def recent(db: Database, table: TableName) -> tuple[Result, ...]:
    """Return the last few results of a table, of any branch and also of failed runs, newest first."""
    return db.read(lambda connection: tuple(_recent(connection, str(table))))


def _recent(connection: Connection, table: str) -> Iterator[Result]:
    columns = schema.results.c
    newest = sa.select(schema.results).where(columns.table_name == table).order_by(columns.made_at.desc(), columns.key)
    yield from map(result_of, connection.execute(newest.limit(_RECENT)))


def unheld(connection: Connection) -> Iterator[Result]:
    """Yield the recent results of every table, from which a table may be computed on though no branch holds them."""
    for (table,) in connection.execute(sa.select(schema.results.c.table_name).distinct()).all():
        yield from _recent(connection, table)


def forget(db: Database, table: TableName) -> None:
    """Forget every result of a table; gc then sweeps what no commit needs."""
    gone = schema.results.delete().where(schema.results.c.table_name == str(table))
    db.write(lambda connection: connection.execute(gone))


def drop(db: Database, table: TableName, key: str) -> None:
    """Forget one result, as where it turned out to be wrong."""
    here = sa.and_(schema.results.c.table_name == str(table), schema.results.c.key == key)
    db.write(lambda connection: connection.execute(schema.results.delete().where(here)))


def contents_used(db: Database, table: TableName, above: TableName) -> set[str]:
    """Return the contents of an input that known results of a table were made from."""
    query = sa.select(schema.results.c.detail).where(schema.results.c.table_name == str(table))
    details = db.read(lambda connection: [json.loads(row.detail) for row in connection.execute(query)])
    used = (detail["inputs"].get(str(above)) for detail in details)
    return {at["content"] for at in used if at}


def current(connection: Connection) -> Iterator[Result]:
    """Yield the newest result of what each branch holds now."""
    columns, heads = schema.results.c, schema.heads.c
    held = sa.select(heads.table_name, heads.content).distinct().subquery()
    same = sa.and_(columns.table_name == held.c.table_name, columns.content == held.c.content)
    query = sa.select(schema.results).join(held, same).order_by(columns.made_at.desc(), columns.key)
    known: set[tuple[str, str]] = set()
    for row in connection.execute(query):
        if (row.table_name, row.content) not in known:
            known.add((row.table_name, row.content))
            yield result_of(row)


def result_of(row: Row[Any]) -> Result:
    """Return a row as a value."""
    detail = json.loads(row.detail)
    aside = Head(row.quarantine_location, row.quarantine_content) if row.quarantine_location else None
    return Result(
        TableName.stored(row.table_name),
        row.key,
        Head(row.location, row.content),
        detail["code"],
        {TableName.stored(name): Head(at["location"], at["content"]) for name, at in detail["inputs"].items()},
        row.run,
        row.branch,
        row.made_at,
        detail["rows"],
        aside,
        {TableName.stored(name): tuple(used) for name, used in detail["columns"].items()},
        _tally(detail["tally"]) if detail.get("tally") else None,
        detail.get("slices"),
        detail.get("extends"),
        _why_whole(detail.get("why_whole")),
        detail.get("provenance", {}),
    )


def _tally(stored: list[str]) -> tuple[int, int, int]:
    count, one, two = (int(number) for number in stored)
    return count, one, two


def _why_whole(stored: list[Any] | None) -> str | None:
    """Return why changes can't be followed, unless an earlier Runnel said so, which looked less closely."""
    return str(stored[1]) if stored and stored[0] == _LOOK else None


def _here(result: Result) -> "sa.ColumnElement[bool]":
    return sa.and_(schema.results.c.table_name == str(result.table), schema.results.c.key == result.key)


def _values(result: Result) -> dict[str, Any]:
    inputs: Mapping[TableName, Head] = result.inputs
    detail = {
        "code": dict(result.code),
        "inputs": {str(name): {"location": at.location, "content": at.content} for name, at in inputs.items()},
        "rows": result.rows,
        "columns": {str(name): list(used) for name, used in result.columns.items()},
        "tally": [str(number) for number in result.tally] if result.tally else None,
        "slices": result.slices,
        "extends": result.extends,
        "why_whole": None if result.why_whole is None else [_LOOK, result.why_whole],
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
