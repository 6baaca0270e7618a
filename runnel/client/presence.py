"""Who works for a lake now, and how much waits to be run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake import queue, workers

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.queue import Queued
    from runnel.lake.workers import Worker


@dataclass(frozen=True)
class Presence:
    """The services and workers that are there, and what of the queue has not ended."""

    services: "tuple[Worker, ...]"
    workers: "tuple[Worker, ...]"
    open: "tuple[Queued, ...]"

    @property
    def is_nobody(self) -> bool:
        """Tell whether nobody is there."""
        return not self.services and not self.workers

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "services": [
                {"name": one.id, "url": one.detail.get("url"), "since": one.started_at} for one in self.services
            ],
            "workers": [
                {"name": one.id, "state": one.state, "since": one.started_at, "runs": one.detail.get("runs", [])}
                for one in self.workers
            ],
            "queued": sum(one.state == queue.QUEUED for one in self.open),
            "running": sum(one.state == queue.RUNNING for one in self.open),
        }

    def lines(self) -> list[str]:
        """Return what people read."""
        if self.is_nobody and not self.open:
            return []
        found = [
            f"up at {one.detail.get('url')} since {one.started_at[:19].replace('T', ' ')} UTC" for one in self.services
        ]
        told = self.json()
        states = ", ".join(f"{one.id} {one.state}" for one in self.workers) or "none"
        found.append(f"workers: {states}; runs: {told['queued']} waiting, {told['running']} going on")
        if self.open and not self.workers:
            found.append("nobody computes what waits: `runnel up` or `runnel worker` does")
        return [*found, ""]


def presence(lake: "Lake") -> Presence:
    """Return who is there now."""
    with lake.store.db.reading() as connection:
        there = workers.present(connection)
        waiting = queue.entries(connection, states=queue.OPEN)
    return Presence(
        tuple(one for one in there if one.kind == workers.SERVICE),
        tuple(one for one in there if one.kind == workers.WORKER),
        tuple(waiting),
    )
