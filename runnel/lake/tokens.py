"""Tokens that open the service. The catalog keeps only the hash of each: its text is shown once, when it is made."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake, nearest
from runnel.lake import schema
from runnel.lake.database import Database
from runnel.names import shown

READ, WRITE, ADMIN = "read", "write", "admin"
SCOPES = (READ, WRITE, ADMIN)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z", re.ASCII)
_PREFIX = "rnl_"


@dataclass(frozen=True)
class Token:
    """A token without its text. What is done with it is ascribed to its name."""

    name: str
    scope: str
    made_at: str
    revoked_at: str | None = None


def create(db: Database, name: str, scope: str) -> str:
    """Make a token and return its text, which nobody can ever ask for again.

    The name of one that was revoked may be used again.
    """
    _check(name, scope)
    secret = _PREFIX + secrets.token_urlsafe(32)
    table, hashed = schema.tokens, _hash(secret)

    def work(connection: Connection) -> str:
        known = connection.execute(sa.select(table).where(table.c.name == name)).first()
        if known is not None and known.hash == hashed:
            return secret  # an earlier attempt took effect, and its acknowledgement was lost
        if known is not None and known.revoked_at is None:
            fix = f"choose another name, or revoke it: runnel token revoke {name}"
            raise Mistake("TOKEN_EXISTS", f"there is a token called `{name}`", fix=fix)
        connection.execute(table.delete().where(table.c.name == name))
        values = {"name": name, "hash": hashed, "scope": scope, "made_at": db.now(connection)}
        connection.execute(table.insert().values(values))
        return secret

    return db.write(work)


def verify(connection: Connection, secret: str) -> Token | None:
    """Return the token with this text, or None where there is none, or it was revoked.

    It is looked up by its hash, of which nobody can choose the beginning, so that how long it takes tells nothing.
    """
    hashed, columns = _hash(secret), schema.tokens.c
    query = sa.select(schema.tokens).where(columns.hash == hashed, columns.revoked_at.is_(None))
    row = connection.execute(query).first()
    return _token(row) if row is not None and hmac.compare_digest(row.hash, hashed) else None


def tokens(connection: Connection) -> list[Token]:
    """Return all tokens by name, those that were revoked too."""
    return [_token(row) for row in connection.execute(sa.select(schema.tokens).order_by(schema.tokens.c.name))]


def revoke(db: Database, name: str) -> Token:
    """Let a token open nothing any more."""
    columns = schema.tokens.c

    def work(connection: Connection) -> Token:
        found = {one.name: one for one in tokens(connection)}
        if name not in found:
            close = nearest(name, found)
            what = f"there is no token {shown(name)}" + (f"; close: `{close}`" if close else "")
            raise Mistake("TOKEN_UNKNOWN", what, fix="`runnel token list` lists them")
        here = sa.and_(columns.name == name, columns.revoked_at.is_(None))
        connection.execute(schema.tokens.update().where(here).values(revoked_at=db.now(connection)))
        return _token(connection.execute(sa.select(schema.tokens).where(columns.name == name)).one())

    return db.write(work)


def _check(name: str, scope: str) -> None:
    if not _NAME.match(name):
        fix = "use ASCII letters, digits, _, ., @ and -, at most 63 characters"
        raise Mistake("NAME_TOKEN", f"{shown(name)} is not a name for a token", fix=fix)
    if scope not in SCOPES:
        close = nearest(scope, SCOPES)
        what = f"{shown(scope)} is no scope" + (f"; close: `{close}`" if close else "")
        raise Mistake("TOKEN_SCOPE", what, fix=f"use {', '.join(SCOPES[:-1])} or {SCOPES[-1]}")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: Row[tuple[str, ...]]) -> Token:
    return Token(row.name, row.scope, row.made_at, row.revoked_at)
