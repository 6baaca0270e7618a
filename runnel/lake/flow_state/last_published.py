"""When runs last published tables."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema


def made_at(connection: Connection, branch: str, tables: Iterable[str]) -> dict[str, str]:
    """Return when a run last published each of some tables on a branch, also one that was never in the queue."""
    commits, changes, branches = schema.commits.c, schema.changes.c, schema.branches.c
    line = connection.execute(sa.select(branches.line).where(branches.name == branch)).scalar()
    found = {}
    for table in tables:
        here = sa.and_(changes.line == line, changes.table_name == table, commits.run.is_not(None))
        query = sa.select(commits.at).join(schema.changes, changes.commit_id == commits.id).where(here)
        at = connection.execute(query.order_by(changes.seq.desc()).limit(1)).scalar()
        if at is not None:
            found[table] = str(at)
    return found
