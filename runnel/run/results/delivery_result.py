"""Define the result of a delivery to a sink."""

from dataclasses import dataclass
from typing import Any, Literal

from runnel.errors import RunnelError

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
        }
