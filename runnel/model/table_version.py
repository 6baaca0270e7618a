"""The version of a table, as the lake stores it and as the planner compares it."""

import hashlib
from dataclasses import dataclass

_DISCARD_PREFIX = "rows:discarded:"


@dataclass(frozen=True)
class TableVersion:
    """A table at a commit. `location` is its metadata file; equal `content` means equal rows and columns."""

    location: str
    content: str


def content_of_discard(before: str, location: str) -> str:
    """Return the content of a task's quarantine table from which rows were discarded; it tells the content before.

    >>> content = content_of_discard("rows:0a", "/lake/2.metadata.json")
    >>> is_discard_of(content, "rows:0a"), is_discard_of(content, "rows:0b")
    (True, False)
    """
    return f"{_DISCARD_PREFIX}{_shorten(before)}:{_shorten(location)}"


def is_discard_of(content: str, before: str) -> bool:
    """Return whether a content is what was left of another one by a discard."""
    return content.startswith(f"{_DISCARD_PREFIX}{_shorten(before)}:")


def _shorten(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
