"""Check the catalog database: parents of commits, the chain of changes of each table, and the heads of branches.

Reads the database only, in the caller's transaction.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history.branches import list_branches, read_head_state
from runnel.lake.history.commits import LakeState, find_commit, read_state, walk_lines
from runnel.lake.upkeep.fsck.findings import FsckFinding

_FIX = "restore the catalog database from a backup"


def find_problems(connection: Connection) -> Iterator[FsckFinding]:
    """Yield every inconsistency of the history."""
    yield from _check_database(connection)
    yield from _check_sequence(connection)
    yield from _check_parents(connection)
    yield from _check_changes(connection)
    yield from _check_heads(connection)
    yield from _check_names(connection)


def _build_error(code: str, what: str, *commits: str | None, table: str | None = None) -> FsckFinding:
    tables = (table,) if table else ()
    return FsckFinding("error", code, what, None, tables, tuple(commit for commit in commits if commit), _FIX)


def _check_database(connection: Connection) -> Iterator[FsckFinding]:
    if connection.dialect.name == "sqlite":
        for line in connection.exec_driver_sql("PRAGMA quick_check(5)").scalars():
            if line != "ok":
                yield _build_error("FSCK_DATABASE", f"the catalog database is damaged: {line}")


def _check_sequence(connection: Connection) -> Iterator[FsckFinding]:
    columns = schema.commits.c
    duplicates = sa.select(columns.seq).group_by(columns.seq).having(sa.func.count() > 1)
    for seq in connection.execute(duplicates).scalars():
        ids = connection.execute(sa.select(columns.id).where(columns.seq == seq)).scalars()
        yield _build_error("FSCK_SEQUENCE", f"several commits have the sequence number {seq}", *ids)
    newest = connection.execute(sa.select(sa.func.max(columns.seq))).scalar() or 0
    recorded = connection.execute(sa.select(schema.lake.c.seq)).scalar() or 0
    if recorded < newest:
        yield _build_error("FSCK_SEQUENCE", f"the lake's sequence is at {recorded}, but its newest commit is {newest}")


def _check_parents(connection: Connection) -> Iterator[FsckFinding]:
    """Check that each commit's parent is the previous commit of its line, or the commit the line was forked from."""
    columns = schema.commits.c
    lines = connection.execute(sa.select(schema.lines.c.id, schema.lines.c.from_commit))
    origins: dict[str, str | None] = {row.id: row.from_commit for row in lines}
    rows = connection.execute(sa.select(columns.id, columns.line, columns.parent).order_by(columns.line, columns.seq))
    newest: dict[str, str | None] = dict(origins)
    for line, chain in groupby(rows, attrgetter("line")):
        expected_parent = origins.get(line)
        for row in chain:
            if row.parent != expected_parent:
                yield _build_error(
                    "FSCK_PARENT", f"commit {row.id} does not follow the one before it, {expected_parent}", row.id
                )
            expected_parent = newest[line] = row.id
    for branch in list_branches(connection):
        if branch.head != newest.get(branch.line):
            what = f"branch `{branch.name}` is at {branch.head}, but its newest commit is {newest.get(branch.line)}"
            yield _build_error("FSCK_HEAD", what, branch.head)


def _check_changes(connection: Connection) -> Iterator[FsckFinding]:
    """Check that each change starts from the version that the previous change of its table ended with."""
    lines = connection.execute(sa.select(schema.lines.c.id, schema.lines.c.from_line, schema.lines.c.from_seq)).all()
    columns = schema.changes.c
    for line in lines:
        base: LakeState | None = None
        rows = connection.execute(
            sa.select(columns.table_name, columns.before, columns.after, columns.content, columns.commit_id)
            .where(columns.line == line.id)
            .order_by(columns.table_name, columns.seq)
        ).all()
        if rows and line.from_line:
            base = _find_state(connection, line.from_line, line.from_seq)
        base_locations = {str(table): version.location for table, version in (base or {}).items()}
        for table, chain in groupby(rows, attrgetter("table_name")):
            expected_location = base_locations.get(table)
            for row in chain:
                if row.before != expected_location:
                    what = (
                        f"commit {row.commit_id} changed `{table}` from {row.before}, but it was at {expected_location}"
                    )
                    yield _build_error("FSCK_CHANGE", what, row.commit_id, table=table)
                if (row.after is None) != (row.content is None):
                    what = f"commit {row.commit_id} does not record the content of `{table}`"
                    yield _build_error("FSCK_CHANGE", what, row.commit_id, table=table)
                expected_location = row.after
    yield from _check_stray_changes(connection)


def _find_state(connection: Connection, line: str, seq: int) -> LakeState:
    """Return the state of a line at a sequence number, whether or not a commit has exactly that number."""
    for ancestor_line, highest_seq in walk_lines(connection, line, seq):
        query = sa.select(schema.commits.c.id).where(
            schema.commits.c.line == ancestor_line, schema.commits.c.seq <= highest_seq
        )
        commit_id = connection.execute(query.order_by(schema.commits.c.seq.desc()).limit(1)).scalar()
        commit = find_commit(connection, commit_id) if commit_id else None
        if commit is not None:
            return read_state(connection, commit)
    return {}


def _check_stray_changes(connection: Connection) -> Iterator[FsckFinding]:
    changes, commits = schema.changes.c, schema.commits.c
    same_commit = sa.and_(commits.id == changes.commit_id, commits.line == changes.line, commits.seq == changes.seq)
    query = sa.select(changes.commit_id, changes.table_name).select_from(
        schema.changes.outerjoin(schema.commits, same_commit)
    )
    for row in connection.execute(query.where(commits.id.is_(None))):
        what = (
            f"a change of `{row.table_name}` belongs to commit {row.commit_id}, "
            "which does not exist or is elsewhere in the history"
        )
        yield _build_error("FSCK_CHANGE", what, row.commit_id, table=row.table_name)


def _check_heads(connection: Connection) -> Iterator[FsckFinding]:
    """Check the recorded head state of each branch against its history."""
    for branch in list_branches(connection):
        commit = find_commit(connection, branch.head)
        if commit is None:
            continue
        recorded, state = read_head_state(connection, branch.name), read_state(connection, commit)
        for table in sorted(recorded.keys() | state.keys()):
            if recorded.get(table) != state.get(table):
                what = f"`{table}` is recorded at another version for branch `{branch.name}` than its history says"
                yield _build_error("FSCK_HEAD", what, commit.id, table=str(table))
        if commit.expired_at:
            yield _build_error("FSCK_HEAD", f"the head of branch `{branch.name}` has expired", commit.id)


def _check_names(connection: Connection) -> Iterator[FsckFinding]:
    """Check that tags, slots and pins name retained commits."""
    commits = schema.commits.c
    for kind, table, name in (
        ("tag", schema.tags, schema.tags.c.name),
        ("slot", schema.slots, schema.slots.c.name),
        ("pin", schema.pins, schema.pins.c.id),
    ):
        joined = table.outerjoin(schema.commits, commits.id == table.c.commit_id)
        query = sa.select(name.label("name"), table.c.commit_id).select_from(joined)
        is_commit_gone = sa.and_(
            table.c.commit_id.is_not(None), sa.or_(commits.id.is_(None), commits.expired_at.is_not(None))
        )
        for row in connection.execute(query.where(is_commit_gone)):
            yield _build_error(
                "FSCK_NAME", f"{kind} `{row.name}` names commit {row.commit_id}, which is gone", row.commit_id
            )
