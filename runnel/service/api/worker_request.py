"""Ask a worker what only it can answer, by the queue, and wait for it."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runnel.errors import Unreachable, error_of
from runnel.lake.control import run_queue, workers

if TYPE_CHECKING:
    from runnel.lake.store import Store

_PAUSE_SECONDS = 0.05
_MOST_SECONDS = 120.0


def answered(
    store: "Store", kind: str, wish: Mapping[str, Any], branch: str = "main", *, seconds: float = _MOST_SECONDS
) -> dict[str, Any]:
    """Return a worker's answer; raise what it raised, or Unreachable where nobody answers in time."""
    if not store.db.read(lambda connection: workers.present(connection, workers.WORKER)):
        fix = "`runnel up` starts one, or `runnel worker` on a machine that has the project"
        raise Unreachable("WORKER_ABSENT", "no worker is there, and this needs one", fix=fix)
    entry = run_queue.Entry(wish, store.author, branch, kind=kind, retries=0)
    run_queue.submit(store.db, entry)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = store.db.read(lambda connection: run_queue.find(connection, entry.id))
        if not found.is_open:
            if found.state != run_queue.SUCCEEDED:
                raise error_of((found.outcome or {}).get("error"))
            return dict(found.outcome or {})
        time.sleep(_PAUSE_SECONDS)
    run_queue.cancel(store.db, entry.id)
    what = f"no worker has answered within {seconds:.0f} s"
    raise Unreachable("WORKER_SLOW", what, fix="ask again, or for less")
