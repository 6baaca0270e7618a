"""Read the status of a lake: services and workers, open alarms, and the health of streams."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.project.inspection.alarms import AlarmStatus
    from runnel.project.inspection.service_presence import Presence
    from runnel.project.inspection.stream_health import StreamHealth


@dataclass(frozen=True)
class LakeStatus:
    """The services, workers and queue of a lake, its open alarms, and the health of each stream."""

    presence: "Presence"
    alarms: "tuple[AlarmStatus, ...]"
    streams: "tuple[StreamHealth, ...]"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        alarms, streams = [item.json() for item in self.alarms], [item.json() for item in self.streams]
        return {**self.presence.json(), "alarms": alarms, "streams": streams}


def read_status(lake: "Lake", branch: str | None = None) -> LakeStatus:
    """Return the status of a lake, with the streams of one branch or all."""
    from runnel.project.inspection.alarms import list_open_alarms
    from runnel.project.inspection.service_presence import read_presence
    from runnel.project.inspection.stream_health import list_stream_health

    return LakeStatus(read_presence(lake), tuple(list_open_alarms(lake)), tuple(list_stream_health(lake, branch)))
