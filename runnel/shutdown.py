"""What is to be done before this process ends, each part within a bounded time. Imports nothing."""

import atexit
from collections.abc import Callable
from contextlib import suppress

_HOOKS: list[Callable[[], object]] = []


def register(hook: Callable[[], object]) -> None:
    """Have something done before the process ends, in whatever way it does."""
    if not _HOOKS:
        atexit.register(run_hooks)
    _HOOKS.append(hook)


def run_hooks() -> None:
    """Do it now, once."""
    while _HOOKS:
        with suppress(Exception):  # it must not hold up the end
            _HOOKS.pop()()
