"""Read when runs last published tables."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema


def read_last_published(connection: Connection, branch: str, tables: Iterable[str]) -> dict[str, str]:
    """Return when a run, queued or not, last published each of some tables on a branch."""
    commits, changes, branches = schema.commits.c, schema.changes.c, schema.branches.c
    line = connection.execute(sa.select(branches.line).where(branches.name == branch)).scalar()
    published_at = {}
    for table in tables:
        condition = sa.and_(changes.line == line, changes.table_name == table, commits.run.is_not(None))
        query = sa.select(commits.at).join(schema.changes, changes.commit_id == commits.id).where(condition)
        committed_at = connection.execute(query.order_by(changes.seq.desc()).limit(1)).scalar()
        if committed_at is not None:
            published_at[table] = str(committed_at)
    return published_at
