"""Manage API tokens of the service. The catalog stores only their hashes: a token's text is shown once, at creation.

A token has an id that is never used again, unlike its name. It may expire, and its text can be rotated.
"""

import hashlib
import hmac
import json
import re
import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.declare.options.duration import parse_duration
from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time, read_clock
from runnel.lake.history import branches
from runnel.names import TableName, quote_value

PUSH, READ, WRITE, ADMIN = "push", "read", "write", "admin"
SCOPES = (PUSH, READ, WRITE, ADMIN)
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z", re.ASCII)
_TABLE_PATTERN = re.compile(r"[a-z*][a-z0-9_*]{0,62}\.[a-z*][a-z0-9_*]{0,62}\Z", re.ASCII)
_PREFIX = "rnl_"
NEVER, DEFAULT_EXPIRY = "never", "365 days"  # the default is that of users: the token of `runnel up` never expires
_USE_SECONDS = 60.0  # the last use is recorded at most once in this time
_MAX_GRACE_SECONDS = 30 * 86_400


@dataclass(frozen=True)
class Token:
    """A token without its text. Its name is recorded as the author of what is done with it."""

    name: str
    scope: str
    made_at: str
    revoked_at: str | None = None
    tables: tuple[str, ...] | None = None  # patterns of the tables it grants access to; None for all
    branch: str | None = None  # the branch it grants access to; None for all
    sources: tuple[str, ...] | None = None  # that a token of scope push may push events to
    id: str = ""  # never used again, also not by a token of the same name
    expires_at: str | None = None  # None for never
    last_used_at: str | None = None
    previous_until: str | None = None  # until when the text before the last rotation is accepted

    @property
    def is_limited(self) -> bool:
        """Return whether it is limited to some tables or one branch."""
        return self.tables is not None or self.branch is not None

    @property
    def permissions_text(self) -> str:
        """Return a readable description of what it permits."""
        if self.scope == PUSH:
            return f"push to {', '.join(self.sources or ())}"
        actions = {READ: "read", WRITE: "read and write", ADMIN: "do everything"}[self.scope]
        tables_text = f" {', '.join(self.tables)}" if self.tables is not None else ""
        return actions + tables_text + (f" of {self.branch}" if self.branch is not None else "")

    def has_expired(self, now: str) -> bool:
        """Return whether it has expired at a time."""
        return self.expires_at is not None and self.expires_at <= now

    def can_see_table(self, table: str) -> bool:
        """Return whether it grants access to a table."""
        return self.tables is None or any(fnmatchcase(table, pattern) for pattern in self.tables)

    def can_push_to(self, source: str) -> bool:
        """Return whether it may push events to a source."""
        return self.scope in (WRITE, ADMIN) or source in (self.sources or ())

    def json(self) -> dict[str, Any]:
        """Return the JSON that scripts rely on."""
        return {
            "token": self.name,
            "id": self.id,
            "scope": self.scope,
            "tables": None if self.tables is None else list(self.tables),
            "branch": self.branch,
            "sources": None if self.sources is None else list(self.sources),
            "made_at": self.made_at,
            "revoked_at": self.revoked_at,
            "expires_at": self.expires_at,
            "last_used_at": self.last_used_at,
            "previous_until": self.previous_until,
        }


@dataclass(frozen=True)
class TokenWithSecret:
    """A token that was just created, with its text."""

    token: Token
    secret: str

    def json(self) -> dict[str, Any]:
        """Return the JSON that scripts rely on."""
        return {**self.token.json(), "secret": self.secret}


def create_token(
    db: Database,
    name: str,
    scope: str,
    *,
    tables: tuple[str, ...] | None = None,
    branch: str | None = None,
    sources: tuple[str, ...] | None = None,
    expires: str = DEFAULT_EXPIRY,
) -> TokenWithSecret:
    """Create a token and return it with its text, which can't be retrieved later."""
    secret = create(db, name, scope, tables=tables, branch=branch, sources=sources, expires=expires)
    return TokenWithSecret(db.read(lambda connection: find(connection, name)), secret)


def create(
    db: Database,
    name: str,
    scope: str,
    *,
    tables: tuple[str, ...] | None = None,
    branch: str | None = None,
    sources: tuple[str, ...] | None = None,
    expires: str = NEVER,
) -> str:
    """Create a token and return its text, which can't be retrieved later.

    The name of a revoked or expired token may be used again. `tables` (patterns) and `branch` limit a token of scope
    read; `sources` are those that a token of scope push may push events to. `expires` is read by `parse_expiry`.
    """
    _check_name_and_scope(name, scope)
    _check_limits(scope, tables, branch)
    _check_sources(scope, sources)
    secret = _PREFIX + secrets.token_urlsafe(32)
    table, hashed = schema.tokens, _hash_secret(secret)

    def work(connection: Connection) -> str:
        existing_row = connection.execute(sa.select(table).where(table.c.name == name)).first()
        if existing_row is not None and existing_row.hash == hashed:
            return secret  # an earlier attempt took effect, and its acknowledgement was lost
        if branch is not None:
            branches.get_branch(connection, branch)
        now = db.now(connection)
        if existing_row is not None and _is_active(_parse_token(existing_row), now):
            fix = f"choose another name, or revoke it: runnel token revoke {name}"
            raise Mistake("TOKEN_EXISTS", f"there is a token called `{name}`", fix=fix)
        connection.execute(table.delete().where(table.c.name == name))
        values: dict[str, str | None] = {"name": name, "hash": hashed, "scope": scope, "made_at": now, "branch": branch}
        values |= {"id": uuid.uuid4().hex, "expires_at": parse_expiry(expires, now)}
        values["tables"] = json.dumps(tables) if tables is not None else None
        values["sources"] = json.dumps(sources) if sources is not None else None
        connection.execute(table.insert().values(values))
        return secret

    return db.write(work)


def verify(connection: Connection, secret: str) -> Token | None:
    """Return the token with this text; None if there is none, or it was revoked, has expired or was rotated.

    It is looked up by its hash, whose prefix an attacker can't choose, so that the response time reveals nothing.
    """
    hashed = _hash_secret(secret)
    row = _find_row(connection, hashed)
    if row is None or row.revoked_at is not None:
        return None
    end = row.expires_at if hmac.compare_digest(row.hash, hashed) else row.previous_until
    return _parse_token(row) if end is None or end > read_clock(connection) else None


def explain_refusal(connection: Connection, secret: str) -> Mistake:
    """Return the error for a text that `verify` refuses; only who has a text that was valid gets the token's name."""
    hashed = _hash_secret(secret)
    row = _find_row(connection, hashed)
    if row is None or row.revoked_at is not None:
        fix = "`runnel token create NAME` creates one"
        return Mistake("TOKEN_INVALID", "this token is unknown or was revoked", fix=fix)
    if row.hash != hashed:
        what = f"the token `{row.name}` was rotated, and its previous text was accepted until {row.previous_until}"
        return Mistake("TOKEN_EXPIRED", what, fix="use the new text, which `runnel token rotate` printed")
    fix = f"runnel token rotate {row.name} --expires 90d"
    return Mistake("TOKEN_EXPIRED", f"the token `{row.name}` has expired at {row.expires_at}", fix=fix)


def record_use(db: Database, token_id: str) -> None:
    """Record that a token is used now, unless that was recorded less than a minute ago."""
    columns = schema.tokens.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        recently = format_time(parse_time(now) - timedelta(seconds=_USE_SECONDS))
        is_due = sa.or_(columns.last_used_at.is_(None), columns.last_used_at < recently)
        statement = schema.tokens.update().where(columns.id == token_id, is_due)
        connection.execute(statement.values(last_used_at=now))

    db.write(work)


def list_tokens(connection: Connection) -> list[Token]:
    """Return all tokens ordered by name, including revoked ones."""
    return [_parse_token(row) for row in connection.execute(sa.select(schema.tokens).order_by(schema.tokens.c.name))]


def find(connection: Connection, name: str) -> Token:
    """Return a token; raise an error that names the closest one if there is none."""
    row = connection.execute(sa.select(schema.tokens).where(schema.tokens.c.name == name)).first()
    if row is not None:
        return _parse_token(row)
    what = f"there is no token {quote_value(name)}" + did_you_mean(
        name, (token.name for token in list_tokens(connection))
    )
    raise Mistake("TOKEN_UNKNOWN", what, fix="`runnel token list` lists them")


def revoke(db: Database, name: str) -> Token:
    """Revoke a token."""
    columns = schema.tokens.c

    def work(connection: Connection) -> Token:
        find(connection, name)
        is_active = sa.and_(columns.name == name, columns.revoked_at.is_(None))
        connection.execute(schema.tokens.update().where(is_active).values(revoked_at=db.now(connection)))
        return find(connection, name)

    return db.write(work)


def rotate(db: Database, name: str, *, grace: str = "0s", expires: str | None = None) -> TokenWithSecret:
    """Give a token a new text, and return it; the previous text is accepted for a grace period.

    A second rotation ends the grace period of the first. Without `expires` the token expires when it did before.
    """
    grace_seconds, secret = _parse_grace(grace), _PREFIX + secrets.token_urlsafe(32)
    table, hashed = schema.tokens, _hash_secret(secret)

    def work(connection: Connection) -> TokenWithSecret:
        token = find(connection, name)
        row = connection.execute(sa.select(table).where(table.c.name == name)).one()
        if row.hash == hashed:
            return TokenWithSecret(token, secret)  # an earlier attempt took effect, and its acknowledgement was lost
        now = db.now(connection)
        _check_rotation(token, now, expires)
        ends = [format_time(parse_time(now) + timedelta(seconds=grace_seconds)), *filter(None, [row.expires_at])]
        values = {"hash": hashed, "previous_hash": row.hash, "previous_until": min(ends)}
        if expires is not None:
            values["expires_at"] = parse_expiry(expires, now)
        connection.execute(table.update().where(table.c.name == name).values(values))
        return TokenWithSecret(find(connection, name), secret)

    return db.write(work)


def parse_expiry(text: str, now: str) -> str | None:
    """Return when something expires: after a duration, at a time, or at the start of a day in UTC; None for `never`.

    >>> parse_expiry("30d", "2026-01-01T00:00:00.000000Z"), parse_expiry("2026-02-01", "2026-01-01T00:00:00.000000Z")
    ('2026-01-31T00:00:00.000000Z', '2026-02-01T00:00:00.000000Z')
    """
    if text == NEVER:
        return None
    current = parse_time(now)
    expires_at = _parse_moment(text, current)
    if expires_at <= current:
        what = f"{quote_value(text)} is in the past: the token would be expired already"
        raise Mistake("TOKEN_EXPIRES", what, fix="write a duration or a later day, such as 90d, or never")
    return format_time(expires_at)


def _parse_moment(text: str, now: datetime) -> datetime:
    fix = "write a duration, a day or a time, such as 90d, 2027-01-31 or 2027-01-31T08:00Z, or never"
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return now + timedelta(seconds=parse_duration(text))
    except (Mistake, OverflowError):
        raise Mistake("TOKEN_EXPIRES", f"{quote_value(text)} is no time to expire", fix=fix) from None


def _parse_grace(text: str) -> int:
    seconds = parse_duration(text, code="TOKEN_GRACE")
    if seconds > _MAX_GRACE_SECONDS:
        what = "the previous text of a token can be accepted for 30 days at most"
        raise Mistake("TOKEN_GRACE", what, fix="write a shorter --grace, such as 1h")
    return seconds


def _check_rotation(token: Token, now: str, expires: str | None) -> None:
    if token.revoked_at is not None:
        fix = f"runnel token create {token.name}"
        raise Mistake("TOKEN_REVOKED", f"the token `{token.name}` was revoked, so it can't be rotated", fix=fix)
    if token.has_expired(now) and expires is None:
        what = f"the token `{token.name}` has expired at {token.expires_at}; its new text would be refused, too"
        raise Mistake("TOKEN_EXPIRED", what, fix=f"runnel token rotate {token.name} --expires 90d")


def _is_active(token: Token, now: str) -> bool:
    return token.revoked_at is None and not token.has_expired(now)


def _find_row(connection: Connection, hashed: str) -> "Row[Any] | None":
    columns = schema.tokens.c
    is_text = sa.or_(columns.hash == hashed, columns.previous_hash == hashed)
    return connection.execute(sa.select(schema.tokens).where(is_text)).first()


def _check_name_and_scope(name: str, scope: str) -> None:
    if not _NAME_PATTERN.match(name):
        fix = "use ASCII letters, digits, _, ., @ and -, at most 63 characters"
        raise Mistake("NAME_TOKEN", f"{quote_value(name)} is not a name for a token", fix=fix)
    if scope not in SCOPES:
        what = f"{quote_value(scope)} is not a scope" + did_you_mean(scope, SCOPES)
        raise Mistake("TOKEN_SCOPE", what, fix=f"use {', '.join(SCOPES[:-1])} or {SCOPES[-1]}")


def _check_limits(scope: str, tables: tuple[str, ...] | None, branch: str | None) -> None:
    if scope != READ and (tables is not None or branch is not None):
        what = f"a token of scope {scope} can't be limited to tables or a branch: it can affect others"
        raise Mistake("TOKEN_LIMITS", what, fix=f"use scope {READ}, or leave the limits out")
    for pattern in tables or ():
        if not _TABLE_PATTERN.match(pattern):
            what = f"{quote_value(pattern)} is not a pattern of table names"
            raise Mistake("TOKEN_TABLES", what, fix="write it as layer.name, where * stands for anything: dws.*")


def _check_sources(scope: str, sources: tuple[str, ...] | None) -> None:
    fix = f"name the sources that it may push to: runnel token create NAME --scope {PUSH} --source ods.events"
    if scope == PUSH and not sources:
        raise Mistake("TOKEN_SOURCES", f"a token of scope {PUSH} needs a source", fix=fix)
    if scope != PUSH and sources is not None:
        raise Mistake("TOKEN_SOURCES", f"sources belong to scope {PUSH}, not to scope {scope}", fix=fix)
    for source in sources or ():
        TableName.parse(source)


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _parse_token(row: Row[tuple[str, ...]]) -> Token:
    tables = tuple(json.loads(row.tables)) if row.tables is not None else None
    sources = tuple(json.loads(row.sources)) if row.sources is not None else None
    lifetime = {"expires_at": row.expires_at, "last_used_at": row.last_used_at, "previous_until": row.previous_until}
    return Token(row.name, row.scope, row.made_at, row.revoked_at, tables, row.branch, sources, row.id, **lifetime)
