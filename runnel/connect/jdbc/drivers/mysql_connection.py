"""Connect to MySQL or MariaDB, encrypted where the server can."""

from typing import TYPE_CHECKING, Any

import pymysql  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from ssl import SSLContext

    from runnel.connect.jdbc.url import Address

CONNECT_SECONDS = 10


def connect(address: "Address", *, autocommit: bool = True) -> "pymysql.Connection[Any]":
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
    """A connection that prepares its encryption once for a process: all certificates are read for it, which takes long.

    It verifies none of them, as pymysql does where nothing is said.
    """

    _prepared: "SSLContext | None" = None

    def _create_ssl_ctx(self, options: dict[str, Any]) -> "SSLContext":
        if options:
            found: SSLContext = super()._create_ssl_ctx(options)
            return found
        if _Connection._prepared is None:
            _Connection._prepared = super()._create_ssl_ctx(options)
        return _Connection._prepared
