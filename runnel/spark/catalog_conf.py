"""Spark's settings of a catalog: one branch, or one slot, of the lake's catalog database.

Pure: connects to nothing. Database addresses are written the way SQLAlchemy writes them.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from runnel.errors import Mistake, listed, nearest

_SQLITE_OPTIONS = "busy_timeout=30000&transaction_mode=IMMEDIATE"
_POSTGRES_OPTIONS = {
    "application_name": "ApplicationName",
    "connect_timeout": "connectTimeout",
    "options": "options",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
}


@dataclass(frozen=True)
class CatalogSettings:
    """A catalog that a session should know: its name, the database and where new tables are stored."""

    name: str
    database_url: str
    warehouse: str

    def __repr__(self) -> str:
        """Return the settings without the database's address: it may hold a password."""
        return f"CatalogSettings(name={self.name!r}, warehouse={self.warehouse!r})"


def catalog_conf(name: str, database_url: str, warehouse: str) -> dict[str, str]:
    """Return the settings of Iceberg's JdbcCatalog over SQLite or PostgreSQL.

    >>> conf = catalog_conf("main", "sqlite:////lake/catalog.db", "/lake/warehouse")
    >>> conf["spark.sql.catalog.main.uri"]
    'jdbc:sqlite:/lake/catalog.db?busy_timeout=30000&transaction_mode=IMMEDIATE'
    """
    prefix = f"spark.sql.catalog.{name}"
    settings = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "warehouse": warehouse if "://" in warehouse else str(Path(warehouse).absolute()),
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
        **_database(database_url),
    }
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": settings[key] for key in settings}


def _database(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[0]
    if kind == "sqlite":
        return {"uri": _sqlite(url)}
    if kind in ("postgresql", "postgres"):
        return _postgres(parts)
    what = f"a lake's catalog cannot live in `{kind or 'nothing'}`"
    raise Mistake("SPARK_CATALOG_URL", what, fix="use sqlite:///PATH or postgresql://USER@HOST/DATABASE")


def _sqlite(url: str) -> str:
    path, _, _ = url.partition("://")[2].removeprefix("/").partition("?")
    if not path or path == ":memory:":
        what = "a catalog in memory cannot be shared with Spark"
        raise Mistake("SPARK_CATALOG_URL", what, fix="give the catalog a file: sqlite:///PATH")
    return f"jdbc:sqlite:{Path(path).absolute()}?{_SQLITE_OPTIONS}"


def _postgres(parts: SplitResult) -> dict[str, str]:
    given = dict(parse_qsl(parts.query))
    host = parts.hostname or given.pop("host", None) or "localhost"
    given.pop("host", None)
    if unquote(host).startswith("/"):
        what = f"Spark cannot reach PostgreSQL through the socket folder {unquote(host)}: its driver speaks TCP only"
        fix = "let the server listen on a TCP address (listen_addresses = '127.0.0.1') and name that instead"
        raise Mistake("SPARK_CATALOG_SOCKET", what, fix=fix)
    port = parts.port or int(given.pop("port", 5432))
    unknown = sorted(set(given) - set(_POSTGRES_OPTIONS))
    if unknown:
        close = nearest(unknown[0], _POSTGRES_OPTIONS)
        what = f"Spark cannot pass {listed(unknown)} to PostgreSQL" + (f"; close: `{close}`" if close else "")
        raise Mistake("SPARK_CATALOG_URL", what, fix=f"use only {listed(_POSTGRES_OPTIONS, most=9)}")
    options = urlencode({_POSTGRES_OPTIONS[key]: value for key, value in given.items()}, quote_via=quote)
    address = f"[{host}]" if ":" in host else host
    uri = f"jdbc:postgresql://{address}:{port}{parts.path}" + (f"?{options}" if options else "")
    user, secret = parts.username, parts.password
    return {
        "uri": uri,
        **({"jdbc.user": unquote(user)} if user else {}),
        **({"jdbc.password": unquote(secret)} if secret else {}),
    }
