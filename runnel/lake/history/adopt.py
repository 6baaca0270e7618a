"""Notice what other engines changed straight in the catalog, and adopt it as a commit."""

import json
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock
from runnel.lake.history.branches import Branch, branch
from runnel.lake.history.commits import Change, Commit, find
from runnel.names import TableName, new_commit_id


def outside_changes(connection: Connection, name: str) -> tuple[Change, ...]:
    """Return how Iceberg's catalog differs from what Runnel last published to a branch."""
    actual, known = schema.iceberg_tables.c, schema.heads.c
    full_name = actual.table_namespace + "." + actual.table_name
    present = (
        sa.select(full_name.label("name"), known.location, actual.metadata_location, known.content)
        .select_from(
            schema.iceberg_tables.outerjoin(schema.heads, sa.and_(known.branch == name, known.table_name == full_name))
        )
        .where(actual.catalog_name == name, sa.or_(actual.iceberg_type == "TABLE", actual.iceberg_type.is_(None)))
        .where(sa.or_(known.location.is_(None), known.location != actual.metadata_location))
    )
    gone = (
        sa.select(known.table_name.label("name"), known.location, actual.metadata_location, known.content)
        .select_from(
            schema.heads.outerjoin(
                schema.iceberg_tables, sa.and_(actual.catalog_name == name, full_name == known.table_name)
            )
        )
        .where(known.branch == name, actual.table_name.is_(None))
    )
    rows = connection.execute(present.union_all(gone)).all()
    return tuple(
        Change(
            TableName.stored(row.name), row.location, row.metadata_location, row.metadata_location, {"outside": True}
        )
        for row in sorted(rows, key=lambda row: str(row.name))
    )


def adopt(db: Database, name: str) -> Commit | None:
    """Record what another engine did to a branch as a commit of its own; None where there is nothing.

    Looks first without writing, so that it costs one SELECT in the ordinary case.
    """
    if not db.read(lambda connection: outside_changes(connection, name)):
        return None

    def work(connection: Connection) -> Commit | None:
        lock(connection)
        return adopted(db, connection, branch(connection, name))

    return db.write(work)


def adopted(db: Database, connection: Connection, target: Branch) -> Commit | None:
    """Adopt within the caller's transaction, which holds the lake's lock."""
    changes = outside_changes(connection, target.name)
    if not changes:
        return None
    tables = ", ".join(str(change.table) for change in changes[:5]) + (" ..." if len(changes) > 5 else "")
    values = {"kind": "adopt", "author": "another engine", "message": f"changed outside Runnel: {tables}"}
    commit = record(db, connection, target, new_commit_id(), values, changes)
    failpoints.reach(failpoints.ADOPT_BEFORE_COMMIT)
    return commit


def record(
    db: Database,
    connection: Connection,
    target: Branch,
    commit_id: str,
    values: Mapping[str, str | None],
    changes: tuple[Change, ...],
) -> Commit:
    """Write a commit row, its changes and the branch's new head; the catalog's own rows are the caller's."""
    parent = find(connection, target.head)
    now = db.now(connection)
    at = max(now, parent.at) if parent else now  # a clock that jumps back must not put a commit before its parent
    row = {
        "id": commit_id,
        "seq": _next_seq(connection),
        "line": target.line,
        "branch": target.name,
        "parent": target.head,
        "at": at,
    }
    connection.execute(schema.commits.insert().values(**row, **values))
    if changes:
        connection.execute(schema.changes.insert(), [_row(change, row) for change in changes])
    _move_heads(connection, target.name, changes)
    connection.execute(schema.branches.update().where(schema.branches.c.name == target.name).values(head=commit_id))
    made = find(connection, commit_id)
    assert made is not None
    return made


def _next_seq(connection: Connection) -> int:
    query = sa.update(schema.lake).values(seq=schema.lake.c.seq + 1).returning(schema.lake.c.seq)
    return int(connection.execute(query).scalar_one())


def _row(change: Change, row: Mapping[str, object]) -> dict[str, object]:
    return {
        "line": row["line"],
        "seq": row["seq"],
        "commit_id": row["id"],
        "table_name": str(change.table),
        "before": change.before,
        "after": change.after,
        "content": change.content if change.after else None,
        "detail": json.dumps(dict(change.detail), sort_keys=True, default=str),
    }


def _move_heads(connection: Connection, name: str, changes: tuple[Change, ...]) -> None:
    names = [str(change.table) for change in changes]
    for start in range(0, len(names), 500):
        part = names[start : start + 500]
        connection.execute(
            schema.heads.delete().where(schema.heads.c.branch == name, schema.heads.c.table_name.in_(part))
        )
    rows = [
        {"branch": name, "table_name": str(change.table), "location": change.after, "content": change.content}
        for change in changes
        if change.after
    ]
    if rows:
        connection.execute(schema.heads.insert(), rows)
