"""What a source has already given to its table: the ingest position, kept for each version of the lake.

A row belongs to the commit that wrote it, and is found like a version: the newest on the commit's line up to it, else
on the line that it was forked off. So a fork needs no copy, and a revert, which adds no row, keeps the position. Rows
outlive their branch and the retention of their commit: they are small, and lines that were forked off need them. Only
states of streams go, once their commits have expired and newer ones stand for them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.flow_state.ingest_position import (
    COLUMNS,
    INCOMPLETE,
    STATE,
    Seen,  # here is where it is looked for
    stored,
)
from runnel.lake.history.commits import Commit, path, version_at
from runnel.names import TableName

_AT_ONCE = 500
_COLUMNS = [schema.ingested.c[name] for name in COLUMNS]
# Two ranges of the index; what is merely unequal would be looked for in all rows.
_NO_STATES = (schema.ingested.c.path < STATE, schema.ingested.c.path > STATE)


def seen(source: Connection | Database, commit: Commit, table: TableName) -> dict[str, Seen]:
    """Return what a table has of its source at a commit, by path, without what is gone.

    A table that is not there at the commit has nothing, whatever one of its name once had.
    """
    if isinstance(source, Database):
        return source.read(lambda connection: seen(connection, commit, table))
    if version_at(source, commit, table) is None:
        return {}
    return {name: one for name, one in position(source, commit, table).items() if not one.is_gone}


def position(connection: Connection, commit: Commit, table: TableName) -> dict[str, Seen]:
    """Return everything that was ever read for a table on the way to a commit, by path, also what is gone.

    The state of a source that is no files is one look-up a line, however often it was written.
    """
    found: dict[str, Seen] = {}
    for line, seq in path(connection, commit.line, commit.seq):
        here = _up_to(line, seq, table)
        for one in stored((*_states(connection, here), *_files(connection, here))):
            found.setdefault(one.path, one)
    return found


def has_ingested(connection: Connection, commit: Commit, table: TableName, *, files: bool = False) -> bool:
    """Tell whether a source ever gave rows to a table on the way to a commit, or rows of `files`."""
    columns = schema.ingested.c
    for line, seq in path(connection, commit.line, commit.seq):
        here = _up_to(line, seq, table)
        if any(row.state is None or not files for row in _states(connection, here)):
            return True
        for apart in _NO_STATES:
            if connection.execute(sa.select(columns.seq).where(here, apart).limit(1)).first():
                return True
    return False


def _up_to(line: str, seq: int, table: TableName) -> "sa.ColumnElement[bool]":
    columns = schema.ingested.c
    return sa.and_(columns.line == line, columns.table_name == str(table), columns.seq <= seq)


def _states(connection: Connection, here: "sa.ColumnElement[bool]") -> Sequence[Row[Any]]:
    columns = schema.ingested.c
    newest = sa.select(*_COLUMNS).where(here, columns.path == STATE).order_by(columns.seq.desc()).limit(1)
    return connection.execute(newest).all()


def _files(connection: Connection, here: "sa.ColumnElement[bool]") -> Iterator[Row[Any]]:
    columns = schema.ingested.c
    for apart in _NO_STATES:
        newest = sa.select(columns.path, sa.func.max(columns.seq).label("seq")).where(here, apart)
        last = newest.group_by(columns.path).subquery()
        same = sa.and_(last.c.path == columns.path, last.c.seq == columns.seq)
        yield from connection.execute(sa.select(*_COLUMNS).join(last, same).where(here, apart))


def store(connection: Connection, commit: Commit, given: Iterable[tuple[TableName, Seen]]) -> None:
    """Write what sources gave with a commit, in the transaction that publishes it."""
    rows = [
        {
            "line": commit.line,
            "table_name": str(table),
            "path": one.path,
            "seq": commit.seq,
            "size": one.size,
            "modified_ns": one.modified_ns,
            "sha256": one.sha256,
            "identity": one.identity,
            "files": json.dumps(list(one.files)),
            "gone": one.is_gone,
            "state": one.stored_state,
        }
        for table, one in given
    ]
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(schema.ingested.insert(), rows[start : start + _AT_ONCE])


def once_read(db: Database, table: TableName, identity: str) -> list[tuple[str, ...]]:
    """Return the data files in which the rows of a file with this identity were once stored, the newest first."""
    columns = schema.ingested.c
    query = (
        sa.select(columns.files)
        .where(columns.table_name == str(table), columns.identity == identity, columns.gone.is_(False))
        .order_by(columns.seq.desc())
    )
    found = db.read(lambda connection: connection.execute(query).scalars().all())
    return list(dict.fromkeys(tuple(json.loads(files)) for files in found))


def was_incomplete(db: Database, table: TableName, identities: Sequence[str]) -> bool:
    """Tell whether bad rows were left out when a file with one of these identities was read, on any branch."""
    columns = schema.ingested.c
    here = sa.and_(columns.table_name == str(table), columns.path != STATE, columns.state.contains(f'"{INCOMPLETE}"'))
    chunks = [identities[start : start + _AT_ONCE] for start in range(0, len(identities), _AT_ONCE)]
    queries = [sa.select(columns.seq).where(here, columns.identity.in_(chunk)).limit(1) for chunk in chunks]
    return db.read(lambda connection: any(connection.execute(query).first() for query in queries))


def version_with(db: Database, table: TableName, content: str) -> str | None:
    """Return a version of a table that has this content and that a retained commit of any branch made, or None."""
    return next(iter(versions_with(db, table, content, most=1)), None)


def versions_with(db: Database, table: TableName, content: str, most: int = 3) -> tuple[str, ...]:
    """Return versions of a table that have this content and that retained commits made, the newest first."""
    changes, commits = schema.changes.c, schema.commits.c
    query = (
        sa.select(changes.after)
        .join(schema.commits, commits.id == changes.commit_id)
        .where(changes.line.in_(sa.select(schema.lines.c.id)), changes.table_name == str(table))  # as its index is
        .where(changes.content == content, commits.expired_at.is_(None))
        .where(changes.after.is_not(None))
        .order_by(changes.seq.desc())
        .limit(most)
    )
    return db.read(lambda connection: tuple(connection.execute(query).scalars()))
