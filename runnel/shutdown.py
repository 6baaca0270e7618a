"""Run hooks before this process ends; each hook must finish in bounded time. Imports nothing."""

import atexit
from collections.abc import Callable
from contextlib import suppress

_HOOKS: list[Callable[[], object]] = []


def register(hook: Callable[[], object]) -> None:
    """Register a hook to run before the process ends."""
    if not _HOOKS:
        atexit.register(run_hooks)
    _HOOKS.append(hook)


def run_hooks() -> None:
    """Run all registered hooks now, each once."""
    while _HOOKS:
        with suppress(Exception):  # a failing hook must not keep the process from ending
            _HOOKS.pop()()
