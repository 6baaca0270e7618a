"""The callback by which long functions report their progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called with the current activity, the count done and the total, if known; raises if the run was cancelled."""


def ignore_progress(_activity: str, _done: int, _total: int | None) -> None:
    """Report progress to nobody."""
