"""Ranges of offsets: what is to be read of which partition. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The messages of a partition from the offset `start` up to, not with, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """Return how many offsets it has; messages may be fewer."""
        return self.end - self.start

    @property
    def place(self) -> str:
        """Return how people call the partition: `clicks[0]`."""
        return f"{self.topic}[{self.partition}]"

    def named(self, first: int, last: int) -> str:
        """Return the name of a part of it.

        >>> Span("clicks", 0, 100, 200).named(100, 199)
        'clicks[0] from 100 to 199'
        """
        return f"{self.place} from {first} to {last}"
