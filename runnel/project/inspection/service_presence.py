"""List the services and workers of a lake, and the length of its queue."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake.control import change_signal, queue_entry, workers

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.workers import WorkerRecord


@dataclass(frozen=True)
class Presence:
    """The running services and workers, and how many runs are queued and running."""

    services: "tuple[WorkerRecord, ...]"
    workers: "tuple[WorkerRecord, ...]"
    queued: int
    running: int

    @classmethod
    def from_workers(cls, processes: "list[WorkerRecord]", depths: dict[str, int]) -> "Presence":
        """Build the presence from the running processes of a lake and the length of its queue by state."""
        services = tuple(process for process in processes if process.kind == workers.SERVICE)
        worker_processes = tuple(process for process in processes if process.kind == workers.WORKER)
        return cls(services, worker_processes, depths[queue_entry.QUEUED], depths[queue_entry.RUNNING])

    @property
    def is_empty(self) -> bool:
        """Return whether no service and no worker is running."""
        return not self.services and not self.workers

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "services": [
                {
                    "name": worker.id,
                    "url": worker.detail.get("url"),
                    "since": worker.started_at,
                    "problems": worker.detail.get("problems", []),
                }
                for worker in self.services
            ],
            "workers": [
                {
                    "name": worker.id,
                    "state": worker.state,
                    "since": worker.started_at,
                    "runs": worker.detail.get("runs", []),
                    "problems": worker.detail.get("problems", []),
                }
                for worker in self.workers
            ],
            "queued": self.queued,
            "running": self.running,
        }

    def lines(self) -> list[str]:
        """Return what people read."""
        is_idle = not self.queued and not self.running
        if self.is_empty and is_idle:
            return []
        lines = [
            f"up at {worker.detail.get('url')} since {worker.started_at[:19].replace('T', ' ')} UTC"
            for worker in self.services
        ]
        states = ", ".join(f"{worker.id} {worker.state}" for worker in self.workers) or "none"
        lines.append(f"workers: {states}; runs: {self.queued} waiting, {self.running} running")
        if not is_idle and not self.workers:
            lines.append("no worker computes the waiting runs: start one with `runnel up` or `runnel worker`")
        for process in (*self.services, *self.workers):
            for problem in process.detail.get("problems", ()):
                since = problem["since"][:19].replace("T", " ")
                lines.append(f"{process.kind} {process.id}, {problem['part']} since {since} UTC: {problem['what']}")
        return [*lines, ""]


def read_presence(lake: "Lake") -> Presence:
    """Return the services and workers that are running now."""
    with lake.store.db.read_transaction() as connection:
        return Presence.from_workers(workers.list_alive(connection), change_signal.count_open_requests(connection))
