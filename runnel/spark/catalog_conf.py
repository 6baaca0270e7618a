"""Build Spark's settings of a catalog: one branch, or one slot, of the lake's catalog database.

Pure: connects to nothing. Database URLs have SQLAlchemy's form.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from runnel.errors import Mistake, did_you_mean, join_names

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
    """A catalog of a Spark session: its name, its database and the warehouse for new tables."""

    name: str
    database_url: str
    warehouse: str

    def __repr__(self) -> str:
        """Return the settings without the database URL, which may contain a password."""
        return f"CatalogSettings(name={self.name!r}, warehouse={self.warehouse!r})"


def build_catalog_conf(name: str, database_url: str, warehouse: str) -> dict[str, str]:
    """Return the settings of Iceberg's JdbcCatalog over SQLite or PostgreSQL.

    >>> conf = build_catalog_conf("main", "sqlite:////lake/catalog.db", "/lake/warehouse")
    >>> conf["spark.sql.catalog.main.uri"]
    'jdbc:sqlite:/lake/catalog.db?busy_timeout=30000&transaction_mode=IMMEDIATE'
    """
    prefix = f"spark.sql.catalog.{name}"
    settings = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "warehouse": warehouse if "://" in warehouse else str(Path(warehouse).absolute()),
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
        **_build_database_conf(database_url),
    }
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": settings[key] for key in settings}


def _build_database_conf(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[0]
    if kind == "sqlite":
        return {"uri": _build_sqlite_uri(url)}
    if kind in ("postgresql", "postgres"):
        return _build_postgres_conf(parts)
    what = f"a lake's catalog can't be stored in `{kind or 'nothing'}`"
    raise Mistake("SPARK_CATALOG_URL", what, fix="use sqlite:///PATH or postgresql://USER@HOST/DATABASE")


def _build_sqlite_uri(url: str) -> str:
    path, _, _ = url.partition("://")[2].removeprefix("/").partition("?")
    if not path or path == ":memory:":
        what = "a catalog in memory cannot be shared with Spark"
        raise Mistake("SPARK_CATALOG_URL", what, fix="give the catalog a file: sqlite:///PATH")
    return f"jdbc:sqlite:{Path(path).absolute()}?{_SQLITE_OPTIONS}"


def _build_postgres_conf(parts: SplitResult) -> dict[str, str]:
    url_options = dict(parse_qsl(parts.query))
    host = parts.hostname or url_options.pop("host", None) or "localhost"
    url_options.pop("host", None)
    if unquote(host).startswith("/"):
        what = f"Spark cannot reach PostgreSQL through the socket folder {unquote(host)}: its driver supports only TCP"
        fix = "make the server listen on a TCP address (listen_addresses = '127.0.0.1') and name that instead"
        raise Mistake("SPARK_CATALOG_SOCKET", what, fix=fix)
    option_port = url_options.pop("port", 5432)
    port = parts.port or int(option_port)
    unknown = sorted(set(url_options) - set(_POSTGRES_OPTIONS))
    if unknown:
        what = f"Spark cannot pass {join_names(unknown)} to PostgreSQL" + did_you_mean(unknown[0], _POSTGRES_OPTIONS)
        raise Mistake("SPARK_CATALOG_URL", what, fix=f"use only {join_names(_POSTGRES_OPTIONS, max_names=9)}")
    options = urlencode({_POSTGRES_OPTIONS[key]: value for key, value in url_options.items()}, quote_via=quote)
    address = f"[{host}]" if ":" in host else host
    uri = f"jdbc:postgresql://{address}:{port}{parts.path}" + (f"?{options}" if options else "")
    user, secret = parts.username, parts.password
    return {
        "uri": uri,
        **({"jdbc.user": unquote(user)} if user else {}),
        **({"jdbc.password": unquote(secret)} if secret else {}),
    }
