"""Define the result of a delivery to a sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runnel.errors import RunnelError, error_from_json
from runnel.model.work_place import WorkPlace

DeliveryState = Literal["delivered", "current", "failed", "held"]


@dataclass(frozen=True)
class DeliveryResult:
    """The rows and commits that a sink accepted, or the error. State `held`: another process delivers to the sink."""

    sink: str
    table: str
    state: DeliveryState
    rows: int = 0
    commits: int = 0
    seconds: float = 0.0
    error: RunnelError | None = None
    warning: str | None = None
    place: WorkPlace | None = None  # where rows were read and sent; None if there was no choice

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "sink": self.sink,
            "table": self.table,
            "state": self.state,
            "rows": self.rows,
            "commits": self.commits,
            "seconds": round(self.seconds, 3),
            "error": self.error.to_json() if self.error else None,
            "warning": self.warning,
            "place": self.place.json() if self.place else None,
        }


def parse_delivery_result(delivery_json: Mapping[str, Any]) -> DeliveryResult:
    """Parse the JSON of a result that another process sent, maybe an older one."""
    error, place = delivery_json.get("error"), delivery_json.get("place")
    fields = {name: delivery_json[name] for name in DeliveryResult.__dataclass_fields__ if name in delivery_json}
    return DeliveryResult(
        **{
            **fields,
            "error": error_from_json(error) if error else None,
            "place": WorkPlace(**place) if place else None,
        }
    )
