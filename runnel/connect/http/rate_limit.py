"""How long to wait before an API is asked (again). Nothing here waits."""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_SECONDS = 120.0
"""Nobody waits longer than this in a run, whatever an API asks for."""
_FIRST_SECONDS, _LONGEST_BACKOFF = 0.5, 30.0
_taken: dict[str, float] = {}
_held: dict[str, float] = {}
_lock = threading.Lock()


def slot(host: str, rate: float | None, now: float) -> float:
    """Take the next moment at which a host may be asked, and return how many seconds it is away.

    Sources that ask the same host share it.
    """
    if rate is None:
        return 0.0
    with _lock:
        at = max(now, _taken.get(host, now - 1 / rate) + 1 / rate)
        _taken[host] = at
    return at - now


def hold(host: str, seconds: float, now: float) -> None:
    """Remember that a host asks not to be asked for so long."""
    with _lock:
        _held[host] = max(now + seconds, _held.get(host, 0.0))


def held(host: str, now: float) -> float | None:
    """Return for how many seconds more a host asks not to be asked; None where it may be."""
    with _lock:
        until = _held.get(host, now)
    return until - now if until > now else None


def backoff(number: int) -> float:
    """Return the seconds to wait after the n-th failure, from 0 on.

    >>> [backoff(number) for number in (0, 1, 2, 20)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return float(min(_FIRST_SECONDS * 2.0 ** min(number, 20), _LONGEST_BACKOFF))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds an answer asks to wait; a date counts from the answer's own.

    >>> retry_after({"Retry-After": "7"}), retry_after({"Retry-After": "soon"}), retry_after({})
    (7.0, None, None)
    >>> retry_after({"Retry-After": "Mon, 16 Nov 2026 05:00:30 GMT", "Date": "Mon, 16 Nov 2026 05:00:00 GMT"})
    30.0
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until = when(text)
    return (
        None
        if until is None
        else max(0.0, (until - (when(headers.get("Date", "")) or datetime.now(UTC))).total_seconds())
    )


def when(text: str) -> datetime | None:
    """Return a date of a header."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
