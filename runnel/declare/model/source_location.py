"""Name the line of the user's files where something is declared."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class SourceLocation:
    """A line of a file. The path is relative to the project's folder if the file is inside it.

    >>> str(SourceLocation("flows/orders.py", 12))
    'flows/orders.py:12'
    """

    file: str
    line: int

    def __str__(self) -> str:
        """Return `file:line`."""
        return f"{self.file}:{self.line}"
