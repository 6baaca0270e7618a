"""Tokens: shown once, kept as a hash, open nothing when revoked, expired or rotated."""

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake
from runnel.lake.catalog import migrate, schema
from runnel.lake.catalog.database import Database
from runnel.lake.control import tokens
from runnel.lake.store import Store
from tests.lake.catalog.test_migrate import make_old_lake


def verified(store: Store, secret: str) -> tokens.Token | None:
    return store.db.read(lambda connection: tokens.verify(connection, secret))


def test_only_the_hash_is_kept(both: Store) -> None:
    secret = tokens.create(both.db, "ada", "admin")
    found = verified(both, secret)
    assert found is not None and (found.name, found.scope) == ("ada", "admin")
    with both.db.read_transaction() as connection:
        assert secret not in str(connection.execute(sa.select(schema.tokens)).all())


@pytest.mark.parametrize("secret", ["", "rnl_", "no", "a\0b", "\ud800", "ü" * 10_000])
def test_others_open_nothing(both: Store, secret: str) -> None:
    tokens.create(both.db, "ada", "read")
    assert verified(both, secret) is None


def test_revoked(both: Store) -> None:
    secret = tokens.create(both.db, "ada", "read")
    assert tokens.revoke(both.db, "ada").revoked_at is not None
    assert verified(both, secret) is None
    again = tokens.create(both.db, "ada", "write")
    assert verified(both, secret) is None and verified(both, again) is not None
    with both.db.read_transaction() as connection:
        assert [(one.name, one.scope, one.revoked_at) for one in tokens.list_tokens(connection)] == [
            ("ada", "write", None)
        ]


def clock_at(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Let the catalog's clock say a time from now on."""
    monkeypatch.setattr(Database, "now", lambda *_: moment)
    monkeypatch.setattr(tokens, "read_clock", lambda _: moment)


def at(day: int, hour: int = 0) -> str:
    return f"2026-01-{day:02}T{hour:02}:00:00.000000Z"


EXPIRIES = {
    "a duration": ("10 days", at(11)),
    "in short": ("12h", at(1, 12)),
    "a day": ("2026-01-05", at(5)),
    "a time": ("2026-01-05T08:00+01:00", at(5, 7)),
    "never": ("never", None),
}


@pytest.mark.parametrize(("expires", "expires_at"), EXPIRIES.values(), ids=EXPIRIES)
def test_a_token_expires(both: Store, monkeypatch: pytest.MonkeyPatch, expires: str, expires_at: str | None) -> None:
    clock_at(monkeypatch, at(1))
    secret = tokens.create(both.db, "ada", "read", expires=expires)
    token = verified(both, secret)
    assert token is not None and token.expires_at == expires_at
    clock_at(monkeypatch, expires_at or "2999-01-01T00:00:00.000000Z")
    assert (verified(both, secret) is None) == (expires_at is not None)
    if expires_at is not None:
        error = both.db.read(lambda connection: tokens.explain_refusal(connection, secret))
        assert (error.code, error.fix) == ("TOKEN_EXPIRED", "runnel token rotate ada --expires 90d")
        assert tokens.create(both.db, "ada", "write")  # its name is free


@pytest.mark.parametrize("expires", ["", "0s", "30 dys", "2025-12-31", "999999999 weeks", "2026-13-01", "0001-01-01"])
def test_no_time_to_expire(both: Store, monkeypatch: pytest.MonkeyPatch, expires: str) -> None:
    clock_at(monkeypatch, at(1))
    with pytest.raises(Mistake) as error:
        tokens.create(both.db, "ada", "read", expires=expires)
    assert error.value.code == "TOKEN_EXPIRES" and error.value.fix


def test_no_id_is_used_twice(both: Store) -> None:
    ids = set()
    for _ in range(3):
        token = verified(both, tokens.create(both.db, "ada", "read"))
        assert token is not None
        ids.add(token.id)
        tokens.revoke(both.db, "ada")
    assert len(ids) == 3


def test_rotation(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays the same token; the previous text is accepted for the grace period, and none before that."""
    clock_at(monkeypatch, at(1))
    first = tokens.create(both.db, "ada", "read", tables=("dws.*",), expires="20d")
    token = verified(both, first)
    second = tokens.rotate(both.db, "ada", grace="2 days")
    assert token is not None and second.token == replace(token, previous_until=at(3))
    assert verified(both, first) == verified(both, second.secret) == second.token
    clock_at(monkeypatch, at(3))
    assert verified(both, first) is None and verified(both, second.secret) is not None
    error = both.db.read(lambda connection: tokens.explain_refusal(connection, first))
    assert error.code == "TOKEN_EXPIRED" and "`ada` was rotated" in error.what
    third = tokens.rotate(both.db, "ada").secret
    assert [verified(both, secret) is not None for secret in (first, second.secret, third)] == [False, False, True]
    tokens.revoke(both.db, "ada")
    assert verified(both, third) is None


def test_a_grace_period_ends_with_the_token(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_at(monkeypatch, at(1))
    first = tokens.create(both.db, "ada", "read", expires="1 day")
    second = tokens.rotate(both.db, "ada", grace="3 days").secret
    clock_at(monkeypatch, at(2))
    assert verified(both, first) is None and verified(both, second) is None
    with pytest.raises(Mistake, match="has expired at 2026-01-02"):
        tokens.rotate(both.db, "ada")
    third = tokens.rotate(both.db, "ada", grace="3 days", expires="5 days")
    assert third.token.expires_at == at(7)
    assert verified(both, second) is None, "an expired text is not revived"
    assert verified(both, third.secret) is not None


def test_what_can_not_be_rotated(both: Store) -> None:
    tokens.create(both.db, "ada", "read")
    for grace in ("31 days", "soon"):
        with pytest.raises(Mistake) as error:
            tokens.rotate(both.db, "ada", grace=grace)
        assert error.value.code == "TOKEN_GRACE"
    tokens.revoke(both.db, "ada")
    with pytest.raises(Mistake, match="was revoked"):
        tokens.rotate(both.db, "ada")
    with pytest.raises(Mistake, match="no token"):
        tokens.rotate(both.db, "bob")


def test_the_last_use_is_recorded_once_a_minute(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, seen = tokens.create(both.db, "ada", "read"), []
    for moment in (at(1), at(1).replace("00.0", "59.0"), at(1, 1)):
        clock_at(monkeypatch, moment)
        token = verified(both, secret)
        assert token is not None
        tokens.record_use(both.db, token.id)
        seen.append(both.db.read(tokens.list_tokens)[0].last_used_at)
    assert seen == [at(1), at(1), at(1, 1)]


def test_tokens_of_an_older_runnel_still_open(catalog: str, tmp_path: Path) -> None:
    """They never expire; answers that were stored for them, under their names, stay theirs."""
    db = make_old_lake(catalog, f"{tmp_path}/w")
    columns = "(name, hash, scope, made_at) values ('ada', :hash, 'read', '2026-01-01T00:00:00.000000Z')"
    insert = sa.text(f"insert into runnel_tokens {columns}").bindparams(hash=tokens._hash_secret("rnl_old"))

    def create_old(connection: sa.Connection) -> None:
        migrate._migrate(connection, "0009")
        connection.execute(insert)

    db.write(create_old)
    token = verified(Store.open(catalog, f"{tmp_path}/w"), "rnl_old")
    assert token is not None and (token.id, token.expires_at, token.last_used_at) == ("ada", None, None)


WRONG = {
    "a name twice": (("ada", "read"), "TOKEN_EXISTS"),
    "no name": (("", "read"), "NAME_TOKEN"),
    "a name with a NUL": (("a\0", "read"), "NAME_TOKEN"),
    "another scope": (("bob", "reed"), "close: `read`"),
}


@pytest.mark.parametrize(("given", "told"), WRONG.values(), ids=WRONG)
def test_wrong(both: Store, given: tuple[str, str], told: str) -> None:
    tokens.create(both.db, "ada", "admin")
    with pytest.raises(Mistake) as error:
        tokens.create(both.db, *given)
    assert told in str(error.value)


def test_an_unknown_one_is_told_what_is_near(both: Store) -> None:
    tokens.create(both.db, "console", "admin")
    with pytest.raises(Mistake, match="close: `console`"):
        tokens.revoke(both.db, "consol")
