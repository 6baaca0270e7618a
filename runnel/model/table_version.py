"""The version of a table, as the lake stores it and as the planner compares it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TableVersion:
    """A table at a commit. `location` is its metadata file; equal `content` means equal rows and columns."""

    location: str
    content: str
