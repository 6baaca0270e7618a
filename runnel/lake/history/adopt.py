"""Find changes that other engines made directly in the Iceberg catalog, and record them as a commit."""

import json
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.history.branches import Branch, get_branch
from runnel.lake.history.commits import Commit, CommitChange, find_commit
from runnel.names import TableName, new_commit_id


def find_outside_changes(connection: Connection, name: str) -> tuple[CommitChange, ...]:
    """Return how Iceberg's catalog differs from what Runnel last published to a branch."""
    catalog_columns, head_columns = schema.iceberg_tables.c, schema.heads.c
    full_name = catalog_columns.table_namespace + "." + catalog_columns.table_name
    changed_query = (
        sa.select(
            full_name.label("name"), head_columns.location, catalog_columns.metadata_location, head_columns.content
        )
        .select_from(
            schema.iceberg_tables.outerjoin(
                schema.heads, sa.and_(head_columns.branch == name, head_columns.table_name == full_name)
            )
        )
        .where(
            catalog_columns.catalog_name == name,
            sa.or_(catalog_columns.iceberg_type == "TABLE", catalog_columns.iceberg_type.is_(None)),
        )
        .where(sa.or_(head_columns.location.is_(None), head_columns.location != catalog_columns.metadata_location))
    )
    dropped_query = (
        sa.select(
            head_columns.table_name.label("name"),
            head_columns.location,
            catalog_columns.metadata_location,
            head_columns.content,
        )
        .select_from(
            schema.heads.outerjoin(
                schema.iceberg_tables,
                sa.and_(catalog_columns.catalog_name == name, full_name == head_columns.table_name),
            )
        )
        .where(head_columns.branch == name, catalog_columns.table_name.is_(None))
    )
    rows = connection.execute(changed_query.union_all(dropped_query)).all()
    return tuple(
        CommitChange(
            TableName.parse_unchecked(row.name),
            row.location,
            row.metadata_location,
            row.metadata_location,
            {"outside": True},
        )
        for row in sorted(rows, key=lambda row: str(row.name))
    )


def adopt_outside_changes(db: Database, name: str) -> Commit | None:
    """Record what another engine did to a branch as a separate commit; return None if nothing changed.

    Reads before it writes, so that it costs one SELECT if nothing changed.
    """
    if not db.read(lambda connection: find_outside_changes(connection, name)):
        return None

    def work(connection: Connection) -> Commit | None:
        lock_lake(connection)
        return adopt_in_transaction(db, connection, get_branch(connection, name))

    return db.write(work)


def adopt_in_transaction(db: Database, connection: Connection, target: Branch) -> Commit | None:
    """Record outside changes within the caller's transaction, which holds the lake's lock."""
    changes = find_outside_changes(connection, target.name)
    if not changes:
        return None
    tables = ", ".join(str(change.table) for change in changes[:5]) + (" ..." if len(changes) > 5 else "")
    values = {"kind": "adopt", "author": "another engine", "message": f"changed outside Runnel: {tables}"}
    commit = record_commit(db, connection, target, commit_id=new_commit_id(), values=values, changes=changes)
    failpoints.reach(failpoints.ADOPT_BEFORE_COMMIT)
    return commit


def record_commit(
    db: Database,
    connection: Connection,
    target: Branch,
    *,
    commit_id: str,
    values: Mapping[str, str | None],
    changes: tuple[CommitChange, ...],
) -> Commit:
    """Write a commit row, its changes and the branch's new head; the caller writes the Iceberg catalog's rows."""
    parent = find_commit(connection, target.head)
    now = db.now(connection)
    committed_at = (
        max(now, parent.at) if parent else now
    )  # a clock that jumps back must not put a commit before its parent
    row = {
        "id": commit_id,
        "seq": _increment_sequence(connection),
        "line": target.line,
        "branch": target.name,
        "parent": target.head,
        "at": committed_at,
    }
    connection.execute(schema.commits.insert().values(**row, **values))
    if changes:
        connection.execute(schema.changes.insert(), [_change_row(change, row) for change in changes])
    _update_heads(connection, target.name, changes)
    connection.execute(schema.branches.update().where(schema.branches.c.name == target.name).values(head=commit_id))
    commit = find_commit(connection, commit_id)
    assert commit is not None
    return commit


def _increment_sequence(connection: Connection) -> int:
    query = sa.update(schema.lake).values(seq=schema.lake.c.seq + 1).returning(schema.lake.c.seq)
    return int(connection.execute(query).scalar_one())


def _change_row(change: CommitChange, commit_row: Mapping[str, object]) -> dict[str, object]:
    return {
        "line": commit_row["line"],
        "seq": commit_row["seq"],
        "commit_id": commit_row["id"],
        "table_name": str(change.table),
        "before": change.before,
        "after": change.after,
        "content": change.content if change.after else None,
        "detail": json.dumps(dict(change.detail), sort_keys=True, default=str),
    }


def _update_heads(connection: Connection, name: str, changes: tuple[CommitChange, ...]) -> None:
    names = [str(change.table) for change in changes]
    for start in range(0, len(names), 500):
        batch = names[start : start + 500]
        connection.execute(
            schema.heads.delete().where(schema.heads.c.branch == name, schema.heads.c.table_name.in_(batch))
        )
    rows = [
        {"branch": name, "table_name": str(change.table), "location": change.after, "content": change.content}
        for change in changes
        if change.after
    ]
    if rows:
        connection.execute(schema.heads.insert(), rows)
