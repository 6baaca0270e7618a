"""Tokens: shown once, kept as a hash, open nothing when revoked."""

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.control import tokens
from runnel.lake.store import Store


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
