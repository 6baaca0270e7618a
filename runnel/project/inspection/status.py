"""How a lake is at a moment: who works for it, what is wrong, how its streams are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.project.inspection.alarms import Open
    from runnel.project.inspection.service_presence import Presence
    from runnel.project.inspection.stream_health import Health


@dataclass(frozen=True)
class Status:
    """Who is there and how much waits, what is wrong, and how each stream is."""

    presence: "Presence"
    alarms: "tuple[Open, ...]"
    streams: "tuple[Health, ...]"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        wrong, streams = [one.json() for one in self.alarms], [one.json() for one in self.streams]
        return {**self.presence.json(), "alarms": wrong, "streams": streams}


def status(lake: "Lake", branch: str | None = None) -> Status:
    """Return how a lake is, its streams those of one branch or all."""
    from runnel.project.inspection.alarms import open_alarms
    from runnel.project.inspection.service_presence import presence
    from runnel.project.inspection.stream_health import healths

    return Status(presence(lake), tuple(open_alarms(lake)), tuple(healths(lake, branch)))
