"""Format an alarm for its notifications, as JSON and as text. Pure."""

from dataclasses import dataclass
from typing import Any

from runnel.errors import join_names
from runnel.lake.control.alarms import OVER, Alarm


@dataclass(frozen=True)
class AlarmMessage:
    """An alarm with what a notification says about it. `status` is "warning", "alarm" or "over"."""

    alarm: Alarm
    status: str
    project: str

    @property
    def key(self) -> str:
        """Return the idempotency key: the same if the notification is sent again."""
        return f"{self.alarm.key}/{self.alarm.number}/{self.status}"

    @property
    def title(self) -> str:
        """Return in one line what is wrong, without details such as bad rows."""
        start = "over: " if self.status == OVER else ""
        return f"{self.project}: {start}{self.alarm.headline}"

    @property
    def text(self) -> str:
        """Return what is wrong, since when, what it blocks and what to do; or that it is over."""
        alarm = self.alarm
        if alarm.over_at is not None:
            lines = [self.title, f"it lasted from {_format_time(alarm.since)} to {_format_time(alarm.over_at)}"]
            if alarm.dismissed_by is not None:
                lines[1] = f"{alarm.dismissed_by} dismissed it at {_format_time(alarm.over_at)}"
                lines += [f"note: {alarm.note}"] if alarm.note else []
            return "\n".join(lines)
        details = [f"  {line}" for line in alarm.details]
        lines = [self.title, *details, f"since {_format_time(alarm.since)}"]
        if alarm.blocks:
            lines.append(f"blocks {join_names(alarm.blocks, max_names=20)}")
        return "\n".join([*lines, f"to do: {alarm.fix}"])

    def json(self) -> dict[str, Any]:
        """Return the JSON that a webhook and a command get."""
        return {**self.alarm.json(), "project": self.project, "text": self.text}


def _format_time(at: str) -> str:
    """Format a stored time for people.

    >>> _format_time("2026-01-02T08:00:00.000000Z")
    '2026-01-02 08:00:00 UTC'
    """
    return f"{at[:19].replace('T', ' ')} UTC"
