"""The level of an inbox: a value that needs no database, and the protocol of its readers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from runnel.names import TableName


@dataclass(frozen=True)
class InboxLevel:
    """Events are numbered from 1 to `last`; those up to `last_removed` are deleted."""

    last: int = 0
    last_removed: int = 0


class InboxLevelReader(Protocol):
    """Reads inbox levels, with SQLAlchemy or with `sqlite3` alone."""

    def read_level(self, table: "TableName") -> InboxLevel:
        """Return the level of a source's inbox; an inbox without events has the level 0."""
