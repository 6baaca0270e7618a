"""What is to be done before this process ends, each part within a bounded time. Imports nothing."""

import atexit
from collections.abc import Callable
from contextlib import suppress

_PARTS: list[Callable[[], object]] = []


def register(part: Callable[[], object]) -> None:
    """Have something done before the process ends, in whatever way it does."""
    if not _PARTS:
        atexit.register(say)
    _PARTS.append(part)


def say() -> None:
    """Do it now, once."""
    while _PARTS:
        with suppress(Exception):  # it must not hold up the end
            _PARTS.pop()()
