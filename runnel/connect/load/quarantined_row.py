"""A quarantined row: its text, why it is bad, and where it came from."""

import re
from dataclasses import dataclass, field
from datetime import datetime

_PLACE_IN_FILE = re.compile(r", (?:line|row|record) \d+(?=, |: )")
_KAFKA_PLACE = re.compile(r"[^ ,]+, offset \d+(?=: )")


@dataclass(frozen=True)
class QuarantinedRow:
    """A quarantined row. `file` is the source's file that it came from, None for a task's row.

    `owner` is that of its data file, or of its run of rows there; it identifies the source's file even after a rename.
    """

    raw: str | None
    reason: str
    file: str | None
    run: str
    at: datetime
    owner: str | None = field(default=None, compare=False, repr=False)

    @property
    def place(self) -> str | None:
        """Return where the row was, as its reason says it, such as `data/a.csv, line 3`; None if it does not."""
        if self.file is not None and self.reason.startswith(self.file):
            match = _PLACE_IN_FILE.match(self.reason, len(self.file))
            return self.reason[: match.end()] if match else None
        offset_match = _KAFKA_PLACE.match(self.reason)
        return offset_match.group() if offset_match else None

    @property
    def position(self) -> str | None:
        """Return the position of the row in its file, such as `line 3`, if its reason says it."""
        return self.place.rpartition(", ")[2] if self.place else None

    @property
    def cause(self) -> str:
        """Return the reason without the place of the row."""
        if self.place is None:
            return self.reason
        text = f"; {self.reason}"
        for separator in (", ", ": "):
            text = text.replace(f"; {self.place}{separator}", "; ")
        return text.removeprefix("; ")
