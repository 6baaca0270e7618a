"""Tell from the message of a database driver why a connection failed: host, port, database, login, or no answer."""

import re
from dataclasses import dataclass
from typing import Literal

Cause = Literal["host", "port", "timeout", "database", "login", "other"]
_PHRASES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("database", re.compile(r'database "[^"]*" does not exist|unknown database', re.IGNORECASE)),
    (
        "login",
        re.compile(
            r'role "[^"]*" does not exist|role "[^"]*" is not permitted|authentication failed|no password supplied'
            r"|no pg_hba\.conf entry|access denied for user",
            re.IGNORECASE,
        ),
    ),
    (
        "host",
        re.compile(
            r"failed to resolve host|could not translate host name|name or service not known|nodename nor servname"
            r"|temporary failure in name resolution|unknown (mysql server )?host",
            re.IGNORECASE,
        ),
    ),
    ("port", re.compile(r"connection refused|errno 111|\(111\)", re.IGNORECASE)),
    ("timeout", re.compile(r"timeout expired|timed out|no route to host|network is unreachable", re.IGNORECASE)),
)


@dataclass(frozen=True)
class ServerAddress:
    """The host and the port of a database server, as the user wrote them."""

    host: str
    port: int | None

    def __str__(self) -> str:
        """Return host and port."""
        return f"{self.host}:{self.port}" if self.port is not None else self.host


def find_cause(message: str) -> Cause:
    """Return why a connection failed, from the driver's message.

    >>> find_cause('port 1 failed: Connection refused'), find_cause('FATAL:  database "nope" does not exist')
    ('port', 'database')
    >>> find_cause('FATAL:  role "ada" does not exist'), find_cause("server closed the connection unexpectedly")
    ('login', 'other')
    """
    return next((cause for cause, phrase in _PHRASES if phrase.search(message)), "other")


def describe_unreachable(cause: Cause, address: ServerAddress) -> tuple[str, str] | None:
    """Return what is wrong with an address, and what to check; None if the cause says nothing about it."""
    if cause == "host":
        return f"there is no host `{address.host}`", "correct the host, or the name server of this machine"
    if cause == "port":
        what = f"the host `{address.host}` answers, but nothing listens on port {address.port}"
        return what, "correct the port, or start the database"
    if cause == "timeout":
        what = f"the host `{address.host}` does not respond"
        return what, f"correct the host, or let this machine reach port {address.port} (firewall, VPN)"
    return None
