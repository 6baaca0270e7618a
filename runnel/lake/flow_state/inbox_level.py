"""How far an inbox is: a value that needs no database, and whoever can tell it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from runnel.names import TableName


@dataclass(frozen=True)
class Level:
    """Events are numbered from 1 to `last`; those up to `gone` are no longer kept."""

    last: int = 0
    gone: int = 0


class Levels(Protocol):
    """Something that knows inboxes: the catalog database, or a glance at it."""

    def level(self, table: "TableName") -> Level:
        """Return how far the inbox of a source is; one that nothing was ever pushed to is empty."""
