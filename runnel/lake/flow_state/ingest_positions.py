"""Store the ingest position of each source: which files, or which state, its table has at each commit.

A row belongs to the commit that wrote it, and is found like a table's version: the newest on the commit's line up to
it, else on the line that it was forked from. So a fork needs no copy, and a revert, which adds no row, keeps the
position. Rows outlive their branch and the retention of their commit: they are small, and forked lines need them. Only
states of streams are deleted, once their commits have expired and newer states exist.
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
    INCOMPLETE_KEY,
    STATE_PATH,
    ProcessedFile,  # re-exported: callers import it from this module
    parse_processed_files,
)
from runnel.lake.history.commits import Commit, find_version, walk_lines
from runnel.names import TableName

_BATCH_SIZE = 500
_COLUMNS = [schema.ingested.c[name] for name in COLUMNS]
# Two ranges, so that the index is used; `!=` would read all rows.
_FILE_PATH_RANGES = (schema.ingested.c.path < STATE_PATH, schema.ingested.c.path > STATE_PATH)


def read_processed_files(source: Connection | Database, commit: Commit, table: TableName) -> dict[str, ProcessedFile]:
    """Return the files of its source that a table has at a commit, by path, without removed ones.

    A table that does not exist at the commit has none, even if an earlier table of that name had some.
    """
    if isinstance(source, Database):
        return source.read(lambda connection: read_processed_files(connection, commit, table))
    if find_version(source, commit, table) is None:
        return {}
    return {
        name: processed_file
        for name, processed_file in read_position(source, commit, table).items()
        if not processed_file.is_removed
    }


def read_position(connection: Connection, commit: Commit, table: TableName) -> dict[str, ProcessedFile]:
    """Return every file that was read for a table up to a commit, by path, including removed ones.

    The state of a source without files takes one look-up per line, however often it was written.
    """
    files_by_path: dict[str, ProcessedFile] = {}
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        condition = _position_condition(line, seq, table)
        for processed_file in parse_processed_files(
            (*_read_states(connection, condition), *_read_files(connection, condition))
        ):
            files_by_path.setdefault(processed_file.path, processed_file)
    return files_by_path


def has_ingested(connection: Connection, commit: Commit, table: TableName, *, files: bool = False) -> bool:
    """Return whether a table ever ingested rows from a source up to a commit; with `files`, from files."""
    columns = schema.ingested.c
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        condition = _position_condition(line, seq, table)
        if any(row.state is None or not files for row in _read_states(connection, condition)):
            return True
        for path_range in _FILE_PATH_RANGES:
            if connection.execute(sa.select(columns.seq).where(condition, path_range).limit(1)).first():
                return True
    return False


def _position_condition(line: str, seq: int, table: TableName) -> "sa.ColumnElement[bool]":
    columns = schema.ingested.c
    return sa.and_(columns.line == line, columns.table_name == str(table), columns.seq <= seq)


def _read_states(connection: Connection, condition: "sa.ColumnElement[bool]") -> Sequence[Row[Any]]:
    columns = schema.ingested.c
    newest = sa.select(*_COLUMNS).where(condition, columns.path == STATE_PATH).order_by(columns.seq.desc()).limit(1)
    return connection.execute(newest).all()


def _read_files(connection: Connection, condition: "sa.ColumnElement[bool]") -> Iterator[Row[Any]]:
    columns = schema.ingested.c
    for path_range in _FILE_PATH_RANGES:
        newest = sa.select(columns.path, sa.func.max(columns.seq).label("seq")).where(condition, path_range)
        last = newest.group_by(columns.path).subquery()
        is_newest = sa.and_(last.c.path == columns.path, last.c.seq == columns.seq)
        yield from connection.execute(sa.select(*_COLUMNS).join(last, is_newest).where(condition, path_range))


def write_positions(
    connection: Connection, commit: Commit, processed_files: Iterable[tuple[TableName, ProcessedFile]]
) -> None:
    """Write which files or states a commit ingested, in the transaction that publishes it."""
    rows = [
        {
            "line": commit.line,
            "table_name": str(table),
            "path": processed_file.path,
            "seq": commit.seq,
            "size": processed_file.size,
            "modified_ns": processed_file.modified_ns,
            "sha256": processed_file.sha256,
            "identity": processed_file.identity,
            "files": json.dumps(list(processed_file.files)),
            "gone": processed_file.is_removed,
            "state": processed_file.stored_state,
        }
        for table, processed_file in processed_files
    ]
    for start in range(0, len(rows), _BATCH_SIZE):
        connection.execute(schema.ingested.insert(), rows[start : start + _BATCH_SIZE])


def find_stored_data_files(db: Database, table: TableName, identity: str) -> list[tuple[str, ...]]:
    """Return the data files that once stored the rows of a file with this identity, newest first."""
    columns = schema.ingested.c
    query = (
        sa.select(columns.files)
        .where(columns.table_name == str(table), columns.identity == identity, columns.gone.is_(False))
        .order_by(columns.seq.desc())
    )
    file_lists = db.read(lambda connection: connection.execute(query).scalars().all())
    return list(dict.fromkeys(tuple(json.loads(files)) for files in file_lists))


def has_incomplete_read(db: Database, table: TableName, identities: Sequence[str]) -> bool:
    """Return whether bad rows were skipped when a file with one of these identities was read, on any branch."""
    columns = schema.ingested.c
    condition = sa.and_(
        columns.table_name == str(table), columns.path != STATE_PATH, columns.state.contains(f'"{INCOMPLETE_KEY}"')
    )
    chunks = [identities[start : start + _BATCH_SIZE] for start in range(0, len(identities), _BATCH_SIZE)]
    queries = [sa.select(columns.seq).where(condition, columns.identity.in_(chunk)).limit(1) for chunk in chunks]
    return db.read(lambda connection: any(connection.execute(query).first() for query in queries))


def find_version_with_content(db: Database, table: TableName, content: str) -> str | None:
    """Return a version of a table with this content from a retained commit of any branch, or None."""
    return next(iter(find_versions_with_content(db, table, content, limit=1)), None)


def find_versions_with_content(db: Database, table: TableName, content: str, limit: int = 3) -> tuple[str, ...]:
    """Return versions of a table with this content from retained commits, newest first."""
    changes, commits = schema.changes.c, schema.commits.c
    query = (
        sa.select(changes.after)
        .join(schema.commits, commits.id == changes.commit_id)
        .where(changes.line.in_(sa.select(schema.lines.c.id)), changes.table_name == str(table))  # to use the index
        .where(changes.content == content, commits.expired_at.is_(None))
        .where(changes.after.is_not(None))
        .order_by(changes.seq.desc())
        .limit(limit)
    )
    return db.read(lambda connection: tuple(connection.execute(query).scalars()))
