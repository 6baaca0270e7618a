"""Resolve what users write for a version: branch, tag, commit or prefix, `main~3`, `main@2026-01-02T08:00Z`."""

import re
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, nearest
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import stamp
from runnel.lake.history.branches import branch, branches
from runnel.lake.history.commits import Commit, commit_of, find, path
from runnel.names import COMMIT_LENGTH, looks_like_commit, shown

_STEPS = re.compile(r"(?P<base>.+?)~(?P<steps>\d{0,9})\Z")


def resolve(connection: Connection, text: str) -> Commit:
    """Return the commit that a ref names, or raise with the nearest name."""
    base, _, when = text.partition("@")
    if when:
        return _before(connection, resolve(connection, base), _moment(when, text), text)
    stepped = _STEPS.match(text)
    if stepped:
        return _back(connection, resolve(connection, stepped["base"]), int(stepped["steps"] or 1), text)
    found = _named(connection, text) or _commit(connection, text)
    if found is None:
        known = [
            *(known.name for known in branches(connection)),
            *connection.execute(sa.select(schema.tags.c.name)).scalars(),
        ]
        close = nearest(text, known)
        raise Mistake(
            "REF_UNKNOWN",
            f"{shown(text)} is no branch, tag or commit" + (f"; close: `{close}`" if close else ""),
            fix="`runnel branch`, `runnel tag` and `runnel log` list them",
        )
    return found


def readable(commit: Commit) -> Commit:
    """Return a commit whose contents are still retained."""
    if commit.expired_at:
        raise Mistake(
            "REF_EXPIRED",
            f"the contents of commit {commit.id} are gone: its retention ended on {commit.expired_at[:10]}",
            fix="choose a newer commit; a tag keeps one for ever: runnel tag NAME COMMIT",
        )
    return commit


def _named(connection: Connection, text: str) -> Commit | None:
    for table, column in ((schema.branches, schema.branches.c.head), (schema.tags, schema.tags.c.commit_id)):
        commit_id = connection.execute(sa.select(column).where(table.c.name == text)).scalar()
        if commit_id is not None:
            return find(connection, commit_id)
    return None


def _commit(connection: Connection, text: str) -> Commit | None:
    if not looks_like_commit(text):
        return None
    last = text.ljust(COMMIT_LENGTH, "f")
    query = sa.select(schema.commits).where(schema.commits.c.id >= text, schema.commits.c.id <= last).limit(2)
    rows = connection.execute(query).all()
    if len(rows) > 1:
        raise Mistake("REF_AMBIGUOUS", f"several commits start with `{text}`", fix="write more of its characters")
    return commit_of(rows[0]) if rows else None


def _back(connection: Connection, commit: Commit, steps: int, text: str) -> Commit:
    columns = schema.commits.c
    for line, seq in path(connection, commit.line, commit.seq):
        query = sa.select(schema.commits).where(columns.line == line, columns.seq <= seq).order_by(columns.seq.desc())
        row = connection.execute(query.offset(steps).limit(1)).first()
        if row is not None:
            return commit_of(row)
        counted = sa.select(sa.func.count()).where(columns.line == line, columns.seq <= seq)
        steps -= connection.execute(counted).scalar_one()
    raise Mistake("REF_UNKNOWN", f"`{text}` goes back before the first commit", fix="`runnel log` lists the history")


def _before(connection: Connection, commit: Commit, when: str, text: str) -> Commit:
    columns = schema.commits.c
    for line, seq in path(connection, commit.line, commit.seq):
        query = sa.select(schema.commits).where(columns.line == line, columns.seq <= seq, columns.at <= when)
        row = connection.execute(query.order_by(columns.seq.desc()).limit(1)).first()
        if row is not None:
            return commit_of(row)
    raise Mistake("REF_UNKNOWN", f"`{text}` is before the first commit", fix="`runnel log` lists the history")


def _moment(when: str, text: str) -> str:
    try:
        parsed = datetime.fromisoformat(when)
    except ValueError as error:
        fix = "write it as main@2026-01-02T08:00Z"
        raise Mistake("REF_TIME", f"`{when}` in {shown(text)} is not a time", fix=fix) from error
    return stamp(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))


def head(connection: Connection, name: str) -> Commit:
    """Return the newest commit of a branch."""
    commit = find(connection, branch(connection, name).head)
    assert commit is not None
    return commit
