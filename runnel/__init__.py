"""Runnel: data flows on a versioned lake."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "RunnelError",
    "__version__",
    "accepted",
    "alert",
    "between",
    "changes",
    "check",
    "files",
    "fresh",
    "http",
    "jdbc",
    "kafka",
    "manual",
    "matches",
    "not_null",
    "open",
    "references",
    "row_count",
    "schedule",
    "secret",
    "sink",
    "source",
    "task",
    "testing",
    "unique",
    "webhook",
]

if TYPE_CHECKING:
    from runnel import testing
    from runnel.client.open import open
    from runnel.declare.api.alert import alert
    from runnel.declare.api.changes import changes
    from runnel.declare.api.files import files
    from runnel.declare.api.http import http
    from runnel.declare.api.jdbc import jdbc
    from runnel.declare.api.kafka import kafka
    from runnel.declare.api.manual import manual
    from runnel.declare.api.schedule import schedule
    from runnel.declare.api.secret import secret
    from runnel.declare.api.sink import sink
    from runnel.declare.api.source import source
    from runnel.declare.api.task import task
    from runnel.declare.api.webhook import webhook
    from runnel.declare.options.checks import (
        accepted,
        between,
        check,
        fresh,
        matches,
        not_null,
        references,
        row_count,
        unique,
    )
    from runnel.errors import RunnelError

_CHECKS = ("accepted", "between", "check", "fresh", "matches", "not_null", "references", "row_count", "unique")
_OWN = (
    "alert",
    "files",
    "manual",
    "changes",
    "http",
    "jdbc",
    "kafka",
    "schedule",
    "secret",
    "sink",
    "source",
    "task",
    "webhook",
)
_HOMES = {
    "open": "runnel.client.open",
    "RunnelError": "runnel.errors",
    **dict.fromkeys(_CHECKS, "runnel.declare.options.checks"),
    **{name: f"runnel.declare.api.{name}" for name in _OWN},
}
_ROOMS = ("testing",)


if not TYPE_CHECKING:  # type checkers must report names that do not exist

    def __getattr__(name: str) -> object:
        # Import each name on first use, so that `import runnel` stays fast.
        from importlib import import_module

        if name in _HOMES:
            value = globals()[name] = getattr(import_module(_HOMES[name]), name)
            return value
        if name in _ROOMS:
            return import_module(f"runnel.{name}")
        close = None
        if not name.startswith("_"):
            from runnel.errors import find_nearest

            close = find_nearest(name, _HOMES)
        raise AttributeError(f"module 'runnel' has no attribute {name!r}" + (f"; close: {close!r}" if close else ""))


def __dir__() -> list[str]:
    return __all__
