"""List the services and workers of a lake, and the length of its queue."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.lake.control import change_signal, queue_entry, workers
from runnel.project import instance_file

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.workers import WorkerRecord


@dataclass(frozen=True)
class Presence:
    """The running services and workers, and how many runs are queued and running.

    If no service is running, `starting_since` is when a `runnel up` was started that does not serve yet, and
    `down_since` when the last service stopped, or gave its last sign of life.
    """

    services: "tuple[WorkerRecord, ...]"
    workers: "tuple[WorkerRecord, ...]"
    queued: int
    running: int
    starting_since: str | None = None
    down_since: str | None = None

    @classmethod
    def from_workers(cls, processes: "list[WorkerRecord]", depths: dict[str, int]) -> "Presence":
        """Build the presence from the running processes of a lake and the length of its queue by state."""
        services = tuple(process for process in processes if process.kind == workers.SERVICE)
        worker_processes = tuple(process for process in processes if process.kind == workers.WORKER)
        return cls(services, worker_processes, depths[queue_entry.QUEUED], depths[queue_entry.RUNNING])

    @property
    def state(self) -> str:
        """Return up, starting or down."""
        return "up" if self.services else "starting" if self.starting_since else "down"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        since = self.services[0].started_at if self.services else self.starting_since or self.down_since
        return {
            "state": self.state,
            "since": since,
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
        lines, is_idle = self._describe_service(), not self.queued and not self.running
        if not self.services and not self.workers and is_idle:
            return [*lines, ""]
        states = ", ".join(f"{worker.id} {worker.state}" for worker in self.workers) or "none"
        lines.append(f"workers: {states}; runs: {self.queued} waiting, {self.running} running")
        if not is_idle and not self.workers:
            lines.append(f"{self._describe_unattended_runs()}: {self._describe_missing_worker()}")
        for process in (*self.services, *self.workers):
            for problem in process.detail.get("problems", ()):
                since = _format_time(problem["since"])
                lines.append(f"{process.kind} {process.id}, {problem['part']} since {since}: {problem['what']}")
        return [*lines, ""]

    def _describe_missing_worker(self) -> str:
        if self.services:
            return "`runnel up` restarts a worker that has ended, within seconds; `runnel worker` starts another one"
        return "start one with `runnel up` or `runnel worker`"

    def _describe_unattended_runs(self) -> str:
        if not self.queued:
            return "the worker of the running runs has ended, and no other one repeats them"
        return "no worker computes the waiting runs"

    def _describe_service(self) -> list[str]:
        """Return whether the service is up, starting or down, since when, and what nobody does meanwhile."""
        if self.services:
            return [
                f"up since {_format_time(service.started_at)} at {service.detail.get('url')}"
                for service in self.services
            ]
        if self.starting_since:
            return [f"starting since {_format_time(self.starting_since)}: `runnel up` is running, but not ready yet"]
        down = f"down since {_format_time(self.down_since)}" if self.down_since else "down: no service is running"
        idle_parts = "schedules and alerts" if self.workers else "schedules, streams and sources"
        return [down, f"nothing runs {idle_parts} until you start the service: `runnel up`"]


def read_presence(lake: "Lake") -> Presence:
    """Return the services and workers that are running now, or since when no service is running."""
    with lake.store.db.read_transaction() as connection:
        depths = change_signal.count_open_requests(connection)
        presence = Presence.from_workers(workers.list_alive(connection), depths)
        last_service = workers.find_last_service(connection)
    if presence.services:
        return presence
    instance, settings = instance_file.find_instance(lake.settings.home), lake.settings
    if instance is not None and instance.catalog == instance_file.hash_catalog_url(settings.catalog):
        return replace(presence, starting_since=instance.started_at)
    return replace(presence, down_since=last_service.renewed_at if last_service is not None else None)


def _format_time(stamp: str) -> str:
    return f"{stamp[:19].replace('T', ' ')} UTC"
