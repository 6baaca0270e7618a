"""What people are told of an alarm: as JSON, and as text. Pure."""

from dataclasses import dataclass
from typing import Any

from runnel.errors import listed
from runnel.lake.control.alarms import OVER, Alarm


@dataclass(frozen=True)
class Message:
    """An alarm as it is told. `word` is "warning", "alarm" or "over"."""

    alarm: Alarm
    word: str
    project: str

    @property
    def key(self) -> str:
        """Return what is the same when it is told again."""
        return f"{self.alarm.key}/{self.alarm.number}/{self.word}"

    @property
    def title(self) -> str:
        """Return it in one line."""
        start = "over: " if self.word == OVER else ""
        return " ".join(f"{self.project}: {start}{self.alarm.what}".split())

    @property
    def text(self) -> str:
        """Return what is wrong, since when, what it blocks and what to do; or that it is over."""
        alarm = self.alarm
        if alarm.over_at is not None:
            return f"{self.title}\nit was so from {_shown(alarm.since)} to {_shown(alarm.over_at)}"
        lines = [self.title, f"since {_shown(alarm.since)}"]
        if alarm.blocks:
            lines.append(f"blocks {listed(alarm.blocks, most=20)}")
        return "\n".join([*lines, f"to do: {alarm.fix}"])

    def json(self) -> dict[str, Any]:
        """Return what a webhook and a command get."""
        return {**self.alarm.json(), "project": self.project, "text": self.text}


def _shown(at: str) -> str:
    """Return a stored time as people read it.

    >>> _shown("2026-01-02T08:00:00.000000Z")
    '2026-01-02 08:00:00 UTC'
    """
    return f"{at[:19].replace('T', ' ')} UTC"
