"""Manage API tokens of the service. The catalog stores only their hashes: a token's text is shown once, at creation."""

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.history import branches
from runnel.names import TableName, quote_value

PUSH, READ, WRITE, ADMIN = "push", "read", "write", "admin"
SCOPES = (PUSH, READ, WRITE, ADMIN)
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z", re.ASCII)
_TABLE_PATTERN = re.compile(r"[a-z*][a-z0-9_*]{0,62}\.[a-z*][a-z0-9_*]{0,62}\Z", re.ASCII)
_PREFIX = "rnl_"


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
            "scope": self.scope,
            "tables": None if self.tables is None else list(self.tables),
            "branch": self.branch,
            "sources": None if self.sources is None else list(self.sources),
            "made_at": self.made_at,
            "revoked_at": self.revoked_at,
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
) -> TokenWithSecret:
    """Create a token and return it with its text, which can't be retrieved later."""
    secret = create(db, name, scope, tables=tables, branch=branch, sources=sources)
    return TokenWithSecret(db.read(lambda connection: find(connection, name)), secret)


def create(
    db: Database,
    name: str,
    scope: str,
    *,
    tables: tuple[str, ...] | None = None,
    branch: str | None = None,
    sources: tuple[str, ...] | None = None,
) -> str:
    """Create a token and return its text, which can't be retrieved later.

    The name of a revoked token may be used again. `tables` (patterns) and `branch` limit a token of scope read;
    `sources` are those that a token of scope push may push events to.
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
        if existing_row is not None and existing_row.revoked_at is None:
            fix = f"choose another name, or revoke it: runnel token revoke {name}"
            raise Mistake("TOKEN_EXISTS", f"there is a token called `{name}`", fix=fix)
        connection.execute(table.delete().where(table.c.name == name))
        values = {"name": name, "hash": hashed, "scope": scope, "made_at": db.now(connection), "branch": branch}
        values["tables"] = json.dumps(tables) if tables is not None else None
        values["sources"] = json.dumps(sources) if sources is not None else None
        connection.execute(table.insert().values(values))
        return secret

    return db.write(work)


def verify(connection: Connection, secret: str) -> Token | None:
    """Return the token with this text, or None if there is none or it was revoked.

    It is looked up by its hash, whose prefix an attacker can't choose, so that the response time reveals nothing.
    """
    hashed, columns = _hash_secret(secret), schema.tokens.c
    query = sa.select(schema.tokens).where(columns.hash == hashed, columns.revoked_at.is_(None))
    row = connection.execute(query).first()
    return _parse_token(row) if row is not None and hmac.compare_digest(row.hash, hashed) else None


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
    return Token(row.name, row.scope, row.made_at, row.revoked_at, tables, row.branch, sources)
