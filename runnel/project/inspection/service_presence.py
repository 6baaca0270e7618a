"""Who works for a lake now, and how much waits to be run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake.control import change_signal, run_queue, workers

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.workers import Worker


@dataclass(frozen=True)
class Presence:
    """The services and workers that are there, and how many runs wait and go on."""

    services: "tuple[Worker, ...]"
    workers: "tuple[Worker, ...]"
    queued: int
    running: int

    @classmethod
    def of(cls, there: "list[Worker]", depths: dict[str, int]) -> "Presence":
        """Return who is there, of all processes that work for a lake, and how long the queue is."""
        services = tuple(one for one in there if one.kind == workers.SERVICE)
        crew = tuple(one for one in there if one.kind == workers.WORKER)
        return cls(services, crew, depths[run_queue.QUEUED], depths[run_queue.RUNNING])

    @property
    def is_nobody(self) -> bool:
        """Tell whether nobody is there."""
        return not self.services and not self.workers

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "services": [
                {
                    "name": one.id,
                    "url": one.detail.get("url"),
                    "since": one.started_at,
                    "problems": one.detail.get("problems", []),
                }
                for one in self.services
            ],
            "workers": [
                {
                    "name": one.id,
                    "state": one.state,
                    "since": one.started_at,
                    "runs": one.detail.get("runs", []),
                    "problems": one.detail.get("problems", []),
                }
                for one in self.workers
            ],
            "queued": self.queued,
            "running": self.running,
        }

    def lines(self) -> list[str]:
        """Return what people read."""
        is_idle = not self.queued and not self.running
        if self.is_nobody and is_idle:
            return []
        found = [
            f"up at {one.detail.get('url')} since {one.started_at[:19].replace('T', ' ')} UTC" for one in self.services
        ]
        states = ", ".join(f"{one.id} {one.state}" for one in self.workers) or "none"
        found.append(f"workers: {states}; runs: {self.queued} waiting, {self.running} going on")
        if not is_idle and not self.workers:
            found.append("nobody computes what waits: `runnel up` or `runnel worker` does")
        for process in (*self.services, *self.workers):
            for problem in process.detail.get("problems", ()):
                since = problem["since"][:19].replace("T", " ")
                found.append(f"{process.kind} {process.id}, {problem['part']} since {since} UTC: {problem['what']}")
        return [*found, ""]


def presence(lake: "Lake") -> Presence:
    """Return who is there now."""
    with lake.store.db.reading() as connection:
        return Presence.of(workers.present(connection), change_signal.depths(connection))
