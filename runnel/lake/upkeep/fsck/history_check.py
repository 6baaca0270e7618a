"""Check the catalog database: commits in one chain, changes that follow from one another, heads that match.

Reads the database only, in the caller's transaction.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.branches import branches, head_state
from runnel.lake.history.commits import State, find, path, state_at
from runnel.lake.upkeep.fsck.findings import Finding

_FIX = "restore the catalog database from a backup"


def problems(connection: Connection) -> Iterator[Finding]:
    """Yield everything in the history that contradicts itself."""
    yield from _damage(connection)
    yield from _sequence(connection)
    yield from _chains(connection)
    yield from _changes(connection)
    yield from _heads(connection)
    yield from _names(connection)


def _error(code: str, what: str, *commits: str | None, table: str | None = None) -> Finding:
    tables = (table,) if table else ()
    return Finding("error", code, what, None, tables, tuple(commit for commit in commits if commit), _FIX)


def _damage(connection: Connection) -> Iterator[Finding]:
    if connection.dialect.name == "sqlite":
        for line in connection.exec_driver_sql("PRAGMA quick_check(5)").scalars():
            if line != "ok":
                yield _error("FSCK_DATABASE", f"the catalog database is damaged: {line}")


def _sequence(connection: Connection) -> Iterator[Finding]:
    columns = schema.commits.c
    twice = sa.select(columns.seq).group_by(columns.seq).having(sa.func.count() > 1)
    for seq in connection.execute(twice).scalars():
        ids = connection.execute(sa.select(columns.id).where(columns.seq == seq)).scalars()
        yield _error("FSCK_SEQUENCE", f"several commits have the sequence number {seq}", *ids)
    newest = connection.execute(sa.select(sa.func.max(columns.seq))).scalar() or 0
    recorded = connection.execute(sa.select(schema.lake.c.seq)).scalar() or 0
    if recorded < newest:
        yield _error("FSCK_SEQUENCE", f"the lake's sequence is at {recorded}, but its newest commit is {newest}")


def _chains(connection: Connection) -> Iterator[Finding]:
    """Check that each commit's parent is the one before it on its line, or where the line was forked off."""
    columns = schema.commits.c
    lines = connection.execute(sa.select(schema.lines.c.id, schema.lines.c.from_commit))
    origins: dict[str, str | None] = {row.id: row.from_commit for row in lines}
    rows = connection.execute(sa.select(columns.id, columns.line, columns.parent).order_by(columns.line, columns.seq))
    newest: dict[str, str | None] = dict(origins)
    for line, chain in groupby(rows, attrgetter("line")):
        before = origins.get(line)
        for row in chain:
            if row.parent != before:
                yield _error("FSCK_PARENT", f"commit {row.id} does not follow the one before it, {before}", row.id)
            before = newest[line] = row.id
    for branch in branches(connection):
        if branch.head != newest.get(branch.line):
            what = f"branch `{branch.name}` is at {branch.head}, but its newest commit is {newest.get(branch.line)}"
            yield _error("FSCK_HEAD", what, branch.head)


def _changes(connection: Connection) -> Iterator[Finding]:
    """Check that each change starts from the version that the one before it ended with."""
    lines = connection.execute(sa.select(schema.lines.c.id, schema.lines.c.from_line, schema.lines.c.from_seq)).all()
    columns = schema.changes.c
    for line in lines:
        base: State | None = None
        rows = connection.execute(
            sa.select(columns.table_name, columns.before, columns.after, columns.content, columns.commit_id)
            .where(columns.line == line.id)
            .order_by(columns.table_name, columns.seq)
        ).all()
        if rows and line.from_line:
            base = _state(connection, line.from_line, line.from_seq)
        started = {str(table): version.location for table, version in (base or {}).items()}
        for table, chain in groupby(rows, attrgetter("table_name")):
            before = started.get(table)
            for row in chain:
                if row.before != before:
                    what = f"commit {row.commit_id} changed `{table}` from {row.before}, but it was at {before}"
                    yield _error("FSCK_CHANGE", what, row.commit_id, table=table)
                if (row.after is None) != (row.content is None):
                    what = f"commit {row.commit_id} does not say whose rows `{table}` has"
                    yield _error("FSCK_CHANGE", what, row.commit_id, table=table)
                before = row.after
    yield from _stray(connection)


def _state(connection: Connection, line: str, seq: int) -> State:
    """Return the state at a place of a line, whether or not a commit stands exactly there."""
    for above, highest in path(connection, line, seq):
        query = sa.select(schema.commits.c.id).where(schema.commits.c.line == above, schema.commits.c.seq <= highest)
        found = connection.execute(query.order_by(schema.commits.c.seq.desc()).limit(1)).scalar()
        commit = find(connection, found) if found else None
        if commit is not None:
            return state_at(connection, commit)
    return {}


def _stray(connection: Connection) -> Iterator[Finding]:
    changes, commits = schema.changes.c, schema.commits.c
    same = sa.and_(commits.id == changes.commit_id, commits.line == changes.line, commits.seq == changes.seq)
    query = sa.select(changes.commit_id, changes.table_name).select_from(schema.changes.outerjoin(schema.commits, same))
    for row in connection.execute(query.where(commits.id.is_(None))):
        what = f"a change of `{row.table_name}` belongs to commit {row.commit_id}, which is not there or elsewhere"
        yield _error("FSCK_CHANGE", what, row.commit_id, table=row.table_name)


def _heads(connection: Connection) -> Iterator[Finding]:
    """Check what is kept ready for each branch against its history."""
    for branch in branches(connection):
        commit = find(connection, branch.head)
        if commit is None:
            continue
        ready, state = head_state(connection, branch.name), state_at(connection, commit)
        for table in sorted(ready.keys() | state.keys()):
            if ready.get(table) != state.get(table):
                what = f"`{table}` is recorded at another version for branch `{branch.name}` than its history says"
                yield _error("FSCK_HEAD", what, commit.id, table=str(table))
        if commit.expired_at:
            yield _error("FSCK_HEAD", f"the head of branch `{branch.name}` has expired", commit.id)


def _names(connection: Connection) -> Iterator[Finding]:
    """Check that tags, slots and pins name commits that are kept."""
    commits = schema.commits.c
    for what, table, name in (
        ("tag", schema.tags, schema.tags.c.name),
        ("slot", schema.slots, schema.slots.c.name),
        ("pin", schema.pins, schema.pins.c.id),
    ):
        joined = table.outerjoin(schema.commits, commits.id == table.c.commit_id)
        query = sa.select(name.label("name"), table.c.commit_id).select_from(joined)
        gone = sa.and_(table.c.commit_id.is_not(None), sa.or_(commits.id.is_(None), commits.expired_at.is_not(None)))
        for row in connection.execute(query.where(gone)):
            yield _error("FSCK_NAME", f"{what} `{row.name}` names commit {row.commit_id}, which is gone", row.commit_id)
