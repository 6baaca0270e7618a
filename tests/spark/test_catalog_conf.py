import pytest

from runnel.errors import Mistake
from runnel.spark.catalog_conf import CatalogSettings, build_catalog_conf

LOCKS = "?busy_timeout=30000&transaction_mode=IMMEDIATE"
ADDRESSES = {
    "sqlite": ("sqlite:////a/b.db", {"uri": f"jdbc:sqlite:/a/b.db{LOCKS}"}),
    "sqlite with options": ("sqlite:////a/b.db?timeout=30", {"uri": f"jdbc:sqlite:/a/b.db{LOCKS}"}),
    "a space": ("sqlite:////a b/c.db", {"uri": f"jdbc:sqlite:/a b/c.db{LOCKS}"}),
    "postgresql": ("postgresql://h/db", {"uri": "jdbc:postgresql://h:5432/db"}),
    "user": ("postgresql+psycopg://me@h:1/db", {"uri": "jdbc:postgresql://h:1/db", "jdbc.user": "me"}),
    "password, escaped": (
        "postgresql://me:p%40%2F@h/db",
        {"uri": "jdbc:postgresql://h:5432/db", "jdbc.user": "me", "jdbc.password": "p@/"},
    ),
    "ipv6": ("postgresql://[::1]:5433/db", {"uri": "jdbc:postgresql://[::1]:5433/db"}),
    "host as an option": ("postgresql:///db?host=h&port=7", {"uri": "jdbc:postgresql://h:7/db"}),
    "port twice": ("postgresql://h:6/db?port=7", {"uri": "jdbc:postgresql://h:6/db"}),
    "ssl": ("postgresql://h/db?sslmode=require", {"uri": "jdbc:postgresql://h:5432/db?sslmode=require"}),
}
REFUSED = {
    "socket": ("postgresql:///db?host=/run/pg", "SPARK_CATALOG_SOCKET", "/run/pg"),
    "escaped socket": ("postgresql://%2Frun%2Fpg/db", "SPARK_CATALOG_SOCKET", "/run/pg"),
    "unknown option": ("postgresql://h/db?sslmod=require", "SPARK_CATALOG_URL", "`sslmode`"),
    "other database": ("mysql://h/db", "SPARK_CATALOG_URL", "mysql"),
    "memory": ("sqlite://", "SPARK_CATALOG_URL", "memory"),
    "no address": ("", "SPARK_CATALOG_URL", "nothing"),
}


@pytest.mark.parametrize(("address", "expected"), ADDRESSES.values(), ids=ADDRESSES)
def test_address(address, expected):
    conf = build_catalog_conf("dev", address, "/w")
    prefix = "spark.sql.catalog.dev."
    about = (f"{prefix}uri", f"{prefix}jdbc.")
    database = {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(about)}
    assert database == {"jdbc.schema-version": "V1", **expected}


@pytest.mark.parametrize(("address", "code", "told"), REFUSED.values(), ids=REFUSED)
def test_refused_address(address, code, told):
    with pytest.raises(Mistake) as caught:
        build_catalog_conf("dev", address, "/w")
    assert caught.value.code == code
    assert told in caught.value.what


def test_password_is_not_shown():
    assert "hush" not in repr(CatalogSettings("main", "postgresql://me:hush@h/db", "/w"))
