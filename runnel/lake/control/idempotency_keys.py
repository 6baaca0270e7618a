"""Store responses by idempotency key: a request that is repeated with the same key gets the same response for a day.

A key is claimed before the work begins, so that of two concurrent requests only one does the work. If the claiming
process dies before it responds, the next request with the key does the work again; the work must tolerate that.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from runnel.errors import Conflict, Mistake
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.leases.expiry import is_lease_owner_dead
from runnel.lake.leases.pins import current_lease_owner

RETENTION_SECONDS = 86_400.0
CLAIM_TIMEOUT_SECONDS = 60.0  # after which a claim that is not renewed counts as abandoned
_IN_PROGRESS = 0  # stored instead of a status until there is a response
_HAS_RESPONSE = sa.and_(schema.answers.c.status != _IN_PROGRESS, schema.answers.c.body != "")


@dataclass(frozen=True)
class StoredResponse:
    """A response: its status, and a text that the caller stores with it; empty if only the key is stored."""

    status: int
    body: str


@dataclass(frozen=True)
class ClaimedKey:
    """A key that this process has claimed; `claim_token` identifies the claim."""

    key: str
    claim_token: str


def claim_key(db: Database, key: str, request: str) -> StoredResponse | ClaimedKey:
    """Claim a key for a request, or return the stored response to it.

    Raises if the key was used with another request, or if the same request is in progress.
    """
    key_hash, request_hash = hash_text(key), hash_text(request)
    table, claim_token = schema.answers, f"{current_lease_owner()} {secrets.token_hex(8)}"

    def work(connection: Connection) -> StoredResponse | ClaimedKey:
        now = db.now(connection)
        values = {"key": key_hash, "request": request_hash, "status": _IN_PROGRESS, "body": claim_token, "at": now}
        connection.execute(_insert_statement(db).values(values).on_conflict_do_nothing())
        row = connection.execute(sa.select(table).where(table.c.key == key_hash).with_for_update()).one()
        if row.body == claim_token:
            return ClaimedKey(key_hash, claim_token)
        if row.at < _time_before(now, RETENTION_SECONDS) or (
            row.request == request_hash and _is_abandoned(row.status, row.body, row.at, now)
        ):
            connection.execute(table.update().where(table.c.key == key_hash).values(values))
            return ClaimedKey(key_hash, claim_token)
        if row.request != request_hash:
            what = "this Idempotency-Key was already used for a different request"
            raise Mistake("KEY_REUSED", what, fix="use a new key for each request, and the same one to repeat it")
        if row.status == _IN_PROGRESS:
            raise Conflict(
                "KEY_UNDER_WAY", "the same request is still being processed", fix="repeat the request in a moment"
            )
        return StoredResponse(row.status, row.body)

    return db.write(work)


def renew_claim(db: Database, claimed_key: ClaimedKey) -> None:
    """Renew the claim of a request that is still in progress, so that it does not count as abandoned."""
    db.write(
        lambda connection: connection.execute(
            schema.answers.update().where(_claim_condition(claimed_key)).values(at=db.now(connection))
        )
    )


def store_response(db: Database, claimed_key: ClaimedKey, response: StoredResponse) -> None:
    """Store the response to a request whose key is claimed."""
    values = {"status": response.status, "body": response.body}
    db.write(
        lambda connection: connection.execute(
            schema.answers.update().where(_claim_condition(claimed_key)).values(values)
        )
    )


def release_key(db: Database, claimed_key: ClaimedKey) -> None:
    """Release a claimed key, so that the request can be repeated."""
    db.write(lambda connection: connection.execute(schema.answers.delete().where(_claim_condition(claimed_key))))


def count_responses(connection: Connection) -> int:
    """Return how many responses are stored with their texts."""
    return int(connection.execute(sa.select(sa.func.count()).where(_HAS_RESPONSE)).scalar_one())


def drop_responses(connection: Connection) -> int:
    """Remove the texts of all stored responses, and return how many; the keys stay, so that nothing is done twice."""
    return connection.execute(schema.answers.update().where(_HAS_RESPONSE).values(body="")).rowcount


def delete_expired(db: Database) -> int:
    """Delete responses that are older than a day, and return how many."""

    def work(connection: Connection) -> int:
        is_expired = schema.answers.c.at < _time_before(db.now(connection), RETENTION_SECONDS)
        return connection.execute(schema.answers.delete().where(is_expired)).rowcount

    return db.write(work)


def hash_text(text: str) -> str:
    """Return the hash under which a key or a request is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_abandoned(status: int, body: str, at: str, now: str) -> bool:
    """Return whether the process that claimed a key has died, or its claim has timed out."""
    if status != _IN_PROGRESS:
        return False
    return is_lease_owner_dead(body.partition(" ")[0]) or at < _time_before(now, CLAIM_TIMEOUT_SECONDS)


def _claim_condition(claimed_key: ClaimedKey) -> "sa.ColumnElement[bool]":
    columns = schema.answers.c
    return sa.and_(
        columns.key == claimed_key.key, columns.status == _IN_PROGRESS, columns.body == claimed_key.claim_token
    )


def _insert_statement(db: Database) -> "sqlite.Insert | postgresql.Insert":
    return sqlite.insert(schema.answers) if db.is_sqlite else postgresql.insert(schema.answers)


def _time_before(now: str, seconds: float) -> str:
    return format_time(parse_time(now) - timedelta(seconds=seconds))
