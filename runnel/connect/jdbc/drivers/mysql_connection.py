"""Connect to MySQL or MariaDB, encrypted if the server supports it."""

from typing import TYPE_CHECKING, Any

import pymysql  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from ssl import SSLContext

    from runnel.connect.jdbc.url import DatabaseAddress

CONNECT_SECONDS = 10


def connect(address: "DatabaseAddress", *, autocommit: bool = True) -> "pymysql.Connection[Any]":
    """Return a new connection, with times in UTC. Raises pymysql's errors."""
    return _Connection(
        host=address.host,
        port=address.port,
        user=address.user or "",
        password=address.password or "",
        database=address.database or None,
        connect_timeout=CONNECT_SECONDS,
        autocommit=autocommit,
        charset="utf8mb4",
        init_command="SET SESSION time_zone = '+00:00'",
    )


class _Connection(pymysql.Connection):  # type: ignore[misc]
    """A connection that creates its SSL context once per process: that reads all certificates, which is slow.

    It verifies no certificate, which is pymysql's default.
    """

    _shared_context: "SSLContext | None" = None

    def _create_ssl_ctx(self, options: dict[str, Any]) -> "SSLContext":
        if options:
            context: SSLContext = super()._create_ssl_ctx(options)
            return context
        if _Connection._shared_context is None:
            _Connection._shared_context = super()._create_ssl_ctx(options)
        return _Connection._shared_context
