"""What may be said to rn.jdbc, and what is told about the rest."""

from typing import Any

import pytest

import runnel as rn
from runnel.connect.jdbc.url import parse_address
from runnel.declare.model.endpoints import Jdbc
from runnel.errors import Mistake

URL = "postgresql://reader@db/shop"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no url": ({"url": ""}, "needs the address of a database"),
    "another scheme": ({"url": "postgrsql://db/shop"}, "close: `postgresql`"),
    "no scheme": ({"url": "db/shop"}, "does not name a database"),
    "password in the url": ({"url": "postgresql://ada:hunter2@db/shop"}, "a password is in the url"),
    "password as an option": ({"url": "mysql://db/shop?password=hunter2"}, "a password is in the url"),
    "password as text": ({"password": "hunter2"}, "`password` is in the file as text"),
    "user": ({"user": 5}, "`user` must be text"),
    "nothing to read": ({"table": None}, "neither `table` nor `query`"),
    "both": ({"query": "select 1"}, "both `table` and `query`"),
    "overlap alone": ({"overlap": "1 hour"}, "`overlap` needs a watermark"),
    "overlap without key": ({"watermark": "at", "overlap": "1 hour"}, "without a `key`"),
    "overlap": ({"watermark": "at", "key": "id", "overlap": "soon"}, "`overlap` can't be 'soon'"),
    "no partitions": ({"partitions": 0}, "`partitions` can't be '0'"),
    "too many partitions": ({"partitions": 1000}, "write 1 to 64"),
    "removed": ({"key": "id", "removed": "kept"}, "close: `keep`"),
    "removed without key": ({"removed": "keep"}, "`removed` needs a `key` that identifies rows"),
    "mode": ({"mode": "upsrt"}, "close: `upsert`"),
    "upsert without key": ({"mode": "upsert"}, "needs to know which rows are the same"),
    "unknown": ({"tabel": "orders"}, "close: `table`"),
    "schema": ({"schema": "id lnog"}, "lnog"),
}


@pytest.mark.parametrize(("given", "told"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_told_with_a_fix(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Mistake) as raised:
        rn.jdbc(**{"url": URL, "table": "orders", **given})
    text = str(raised.value)
    assert told in text and "fix:" in text and "hunter2" not in text


def test_what_is_said_is_kept() -> None:
    found = rn.jdbc(URL, table="orders", watermark="at", key=["id"], overlap="1 hour", partitions=4)
    assert found == Jdbc(URL, "orders", watermark="at", key=("id",), overlap="1 hour", partitions=4)
    assert rn.jdbc(URL, table="orders", watermark="id", key="id", overlap=100).overlap == "100"


ADDRESSES = {
    "postgresql://ada@db:5433/shop": "postgresql://db:5433/shop",
    "jdbc:postgresql://db/shop?sslmode=require": "postgresql://db:5432/shop",
    "mariadb://db/shop": "mysql://db:3306/shop",
    "sqlite:///data/shop.db": "sqlite:////root/data/shop.db",
    "sqlite:////elsewhere/shop.db": "sqlite:////elsewhere/shop.db",
    "postgresql://[::1]:5433/a%20b": "postgresql://::1:5433/a b",
}


@pytest.mark.parametrize(("url", "shown"), ADDRESSES.items(), ids=ADDRESSES)
def test_addresses(url: str, shown: str) -> None:
    from pathlib import Path

    assert str(parse_address(Jdbc(url, "orders"), Path("/root"), "flows/flow.py:3")) == shown


def test_a_secret_url_gives_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    monkeypatch.setenv("SHOP_URL", "postgresql://ada:p%40ss@db/shop?sslmode=require")
    found = parse_address(Jdbc(rn.secret("SHOP_URL"), "orders"), Path("/root"), "flows/flow.py:3")
    assert (found.user, found.password, found.options) == ("ada", "p@ss", (("sslmode", "require"),))
    assert "p@ss" not in repr(found) + str(found)
