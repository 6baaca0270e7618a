"""Define a range of offsets of a partition. Pure."""

from dataclasses import dataclass, replace

RANGE_OFFSETS = 250_000
"""How many offsets a file has, and so a work unit: a longer range is divided, whether units read it or one process."""


@dataclass(frozen=True)
class OffsetRange:
    """The messages of a partition from the offset `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """Return how many offsets it has; messages may be fewer."""
        return self.end - self.start

    def divide(self) -> "list[OffsetRange]":
        """Return the ranges of at most `RANGE_OFFSETS` that it consists of.

        >>> [(part.start, part.end) for part in OffsetRange("clicks", 0, 10, 250_020).divide()]
        [(10, 250010), (250010, 250020)]
        """
        return [
            replace(self, start=start, end=min(start + RANGE_OFFSETS, self.end))
            for start in range(self.start, self.end, RANGE_OFFSETS)
        ]

    @property
    def partition_name(self) -> str:
        """Return the partition's name for messages: `clicks[0]`."""
        return f"{self.topic}[{self.partition}]"

    def name_part(self, first: int, last: int) -> str:
        """Return the name of a part of the range.

        >>> OffsetRange("clicks", 0, 100, 200).name_part(100, 199)
        'clicks[0] from 100 to 199'
        """
        return f"{self.partition_name} from {first} to {last}"
