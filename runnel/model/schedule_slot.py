"""What made a schedule due: one of its times, or a change of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class ScheduleSlot:
    """A due time of a schedule, in UTC to the second, or the number of the change that made it due, counted from 1."""

    schedule: str
    due: datetime | int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "ScheduleSlot | None":
        """Return the slot in the stored JSON of a request; None if no schedule queued the request.

        >>> ScheduleSlot.from_json({"select": [], "schedule": "often", "due": "#7"})
        ScheduleSlot(schedule='often', due=7)
        """
        schedule, due_text = fields.get("schedule"), fields.get("due")
        if schedule is None or due_text is None:
            return None
        if due_text.startswith("#"):
            return cls(schedule, int(due_text[1:]))
        return cls(schedule, datetime.fromisoformat(due_text))

    @property
    def is_timed(self) -> bool:
        """Return whether a time made the schedule due, not a change."""
        return isinstance(self.due, datetime)

    @property
    def due_text(self) -> str:
        """Return the due time, or the number of the change, as the catalog stores it.

        >>> ScheduleSlot("often", 7).due_text
        '#7'
        >>> ScheduleSlot("nightly", datetime(2026, 1, 2, 3, tzinfo=UTC)).due_text
        '2026-01-02T03:00:00Z'
        """
        return f"{self.due.astimezone(UTC):{_TIME_FORMAT}}" if isinstance(self.due, datetime) else f"#{self.due}"

    @property
    def message(self) -> str:
        """Return the message of the commit of its run."""
        return f"schedule {self.schedule}" + (f", {self.due_text}" if self.is_timed else "")

    def to_json(self) -> dict[str, str]:
        """Return its fields of the stored JSON of a request."""
        return {"schedule": self.schedule, "due": self.due_text}
