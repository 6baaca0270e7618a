"""Tell whether the schedules in the catalog match the current flow files.

The service imports no flow files. A schedule may have been removed from them while the service was down, so it queues
nothing for schedules until a live worker has loaded the files and declared their schedules in the catalog.
"""

from typing import TYPE_CHECKING

from runnel.lake.control import workers

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database


class LoadedFlows:
    """What one process has seen of the workers; rows left behind by dead workers don't count."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._first_seen: dict[str, str] | None = None
        self._are_declared = False

    def are_declared(self) -> bool:
        """Return whether a live worker has declared its flow since this process started looking."""
        if not self._are_declared:
            present_workers = self._db.read(lambda connection: workers.list_alive(connection, workers.WORKER))
            renewed = {worker.id: worker.renewed_at for worker in present_workers if worker.detail.get("has_declared")}
            if self._first_seen is None:
                self._first_seen = renewed
            first_seen = self._first_seen
            self._are_declared = any(first_seen.get(worker) != renewed_at for worker, renewed_at in renewed.items())
        return self._are_declared
