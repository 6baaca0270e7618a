"""Whether what the catalog says of schedules is what the flow files say now.

The service imports no flow files. While it was down, a schedule may have been taken out of them, so it queues nothing
for schedules until a worker that is there has loaded the files and declared what they say.
"""

from typing import TYPE_CHECKING

from runnel.lake.control import workers

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database


class LoadedFlows:
    """What one process has seen of the workers; what a worker that has died left behind does not count."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._first_seen: dict[str, str] | None = None
        self._are_declared = False

    def are_declared(self) -> bool:
        """Tell whether a worker that is alive has declared its flow since this process began to look."""
        if not self._are_declared:
            present = self._db.read(lambda connection: workers.present(connection, workers.WORKER))
            renewed = {worker.id: worker.renewed_at for worker in present if worker.detail.get("has_declared")}
            if self._first_seen is None:
                self._first_seen = renewed
            first = self._first_seen
            self._are_declared = any(first.get(worker) != renewed_at for worker, renewed_at in renewed.items())
        return self._are_declared
