"""Resolve a ref to a commit: a branch, tag, commit id or prefix, `main~3`, `main@2026-01-02T08:00Z`."""

import re
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.history.branches import get_branch, list_branches
from runnel.lake.history.commits import Commit, commit_from_row, find_commit, walk_lines
from runnel.names import COMMIT_LENGTH, looks_like_commit, quote_value

_STEPS_PATTERN = re.compile(r"(?P<base>.+?)~(?P<steps>\d{0,9})\Z")


def resolve_ref(connection: Connection, text: str) -> Commit:
    """Return the commit that a ref names, or raise with the nearest name."""
    base, _, when = text.partition("@")
    if when:
        return _find_commit_before(connection, resolve_ref(connection, base), _parse_time(when, text), text)
    steps_match = _STEPS_PATTERN.match(text)
    if steps_match:
        return _find_commit_back(
            connection, resolve_ref(connection, steps_match["base"]), int(steps_match["steps"] or 1), text
        )
    commit = _find_named_commit(connection, text) or _find_commit_by_prefix(connection, text)
    if commit is None:
        known_names = [
            *(known_names.name for known_names in list_branches(connection)),
            *connection.execute(sa.select(schema.tags.c.name)).scalars(),
        ]
        raise Mistake(
            "REF_UNKNOWN",
            f"{quote_value(text)} is no branch, tag or commit" + did_you_mean(text, known_names),
            fix="`runnel branch`, `runnel tag` and `runnel log` list them",
        )
    return commit


def check_retained(commit: Commit) -> Commit:
    """Return the commit; raise if its contents are no longer retained."""
    if commit.expired_at:
        raise Mistake(
            "REF_EXPIRED",
            f"the contents of commit {commit.id} are gone: its retention ended on {commit.expired_at[:10]}",
            fix="choose a newer commit; a tag keeps one for ever: runnel tag NAME COMMIT",
        )
    return commit


def _find_named_commit(connection: Connection, text: str) -> Commit | None:
    for table, column in ((schema.branches, schema.branches.c.head), (schema.tags, schema.tags.c.commit_id)):
        commit_id = connection.execute(sa.select(column).where(table.c.name == text)).scalar()
        if commit_id is not None:
            return find_commit(connection, commit_id)
    return None


def _find_commit_by_prefix(connection: Connection, text: str) -> Commit | None:
    if not looks_like_commit(text):
        return None
    last = text.ljust(COMMIT_LENGTH, "f")
    query = sa.select(schema.commits).where(schema.commits.c.id >= text, schema.commits.c.id <= last).limit(2)
    rows = connection.execute(query).all()
    if len(rows) > 1:
        raise Mistake("REF_AMBIGUOUS", f"several commits start with `{text}`", fix="write more of its characters")
    return commit_from_row(rows[0]) if rows else None


def _find_commit_back(connection: Connection, commit: Commit, steps: int, text: str) -> Commit:
    columns = schema.commits.c
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        query = sa.select(schema.commits).where(columns.line == line, columns.seq <= seq).order_by(columns.seq.desc())
        row = connection.execute(query.offset(steps).limit(1)).first()
        if row is not None:
            return commit_from_row(row)
        count_query = sa.select(sa.func.count()).where(columns.line == line, columns.seq <= seq)
        steps -= connection.execute(count_query).scalar_one()
    raise Mistake("REF_UNKNOWN", f"`{text}` goes back before the first commit", fix="`runnel log` lists the history")


def _find_commit_before(connection: Connection, commit: Commit, when: str, text: str) -> Commit:
    columns = schema.commits.c
    for line, seq in walk_lines(connection, commit.line, commit.seq):
        query = sa.select(schema.commits).where(columns.line == line, columns.seq <= seq, columns.at <= when)
        row = connection.execute(query.order_by(columns.seq.desc()).limit(1)).first()
        if row is not None:
            return commit_from_row(row)
    raise Mistake("REF_UNKNOWN", f"`{text}` is before the first commit", fix="`runnel log` lists the history")


def _parse_time(when: str, text: str) -> str:
    try:
        parsed = datetime.fromisoformat(when)
    except ValueError as error:
        fix = "write it as main@2026-01-02T08:00Z"
        raise Mistake("REF_TIME", f"`{when}` in {quote_value(text)} is not a time", fix=fix) from error
    return format_time(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))


def read_head(connection: Connection, name: str) -> Commit:
    """Return the newest commit of a branch."""
    commit = find_commit(connection, get_branch(connection, name).head)
    assert commit is not None
    return commit
