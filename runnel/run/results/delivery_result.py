"""What became of a sink, as a value."""

from dataclasses import dataclass
from typing import Any, Literal

from runnel.errors import RunnelError

State = Literal["delivered", "current", "failed", "held"]


@dataclass(frozen=True)
class Sent:
    """Rows of so many commits that a sink has accepted, and why not more. `held`: another process delivers to it."""

    sink: str
    table: str
    state: State
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
            "error": self.error.parts() if self.error else None,
            "warning": self.warning,
        }
