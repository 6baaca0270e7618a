"""Compute how long to wait before a request to an API. Nothing here waits."""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_WAIT_SECONDS = 120.0
"""A run never waits longer than this, whatever an API asks for."""
_reserved_at: dict[str, float] = {}
_blocked_until: dict[str, float] = {}
_lock = threading.Lock()


def reserve_slot(host: str, rate: float | None, now: float) -> float:
    """Reserve the next moment at which a host may get a request, and return the seconds until then.

    Sources that read the same host share its rate.
    """
    if rate is None:
        return 0.0
    with _lock:
        slot_at = max(now, _reserved_at.get(host, now - 1 / rate) + 1 / rate)
        _reserved_at[host] = slot_at
    return slot_at - now


def block_host(host: str, seconds: float, now: float) -> None:
    """Remember that a host asked for no requests for so many seconds."""
    with _lock:
        _blocked_until[host] = max(now + seconds, _blocked_until.get(host, 0.0))


def blocked_seconds(host: str, now: float) -> float | None:
    """Return for how many more seconds a host wants no requests; None if it accepts them."""
    with _lock:
        blocked_until = _blocked_until.get(host, now)
    return blocked_until - now if blocked_until > now else None


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a response asks to wait; a date is relative to the response's own date.

    >>> parse_retry_after({"Retry-After": "7"}), parse_retry_after({"Retry-After": "soon"}), parse_retry_after({})
    (7.0, None, None)
    >>> parse_retry_after({"Retry-After": "Mon, 16 Nov 2026 05:00:30 GMT", "Date": "Mon, 16 Nov 2026 05:00:00 GMT"})
    30.0
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    retry_at = parse_http_date(text)
    return (
        None
        if retry_at is None
        else max(0.0, (retry_at - (parse_http_date(headers.get("Date", "")) or datetime.now(UTC))).total_seconds())
    )


def parse_http_date(text: str) -> datetime | None:
    """Parse a date of an HTTP header; None if it is none."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
