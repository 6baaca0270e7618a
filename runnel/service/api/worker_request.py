"""Queue a request that only a worker can answer, and wait for the answer."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, RunnelError, Unreachable, error_from_json
from runnel.lake.control import queue_entry, run_queue, workers
from runnel.model.operation_request import OperationRequest

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.model.worker_request import PlanRequest, QueryRequest

_PAUSE_SECONDS = 0.05
_MAX_WAIT_SECONDS = 120.0


def ask_worker(
    store: "Store", request: "PlanRequest | QueryRequest | OperationRequest", *, seconds: float = _MAX_WAIT_SECONDS
) -> dict[str, Any]:
    """Return a worker's answer; raise the worker's error, or Unreachable if no worker answers in time.

    A change that a worker has started by then is not cancelled: it is published or delivered later.
    """
    if not store.db.read(lambda connection: workers.list_alive(connection, workers.WORKER)):
        fix = "`runnel up` starts one, or `runnel worker` on a machine that has the project"
        raise Unreachable("WORKER_ABSENT", "no worker is running, and this request needs one", fix=fix)
    entry = queue_entry.QueueRequest(request, store.author, retries=0)
    run_queue.submit(store.db, entry)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        current_entry = _find_entry(store, entry.id)
        if not current_entry.is_open:
            if not _is_change(request):
                with suppress(RunnelError):  # it is deleted later, with all old entries
                    run_queue.delete_read_answer(store.db, entry.id)
            if current_entry.state != queue_entry.SUCCEEDED:
                raise error_from_json((current_entry.outcome or {}).get("error"))
            return dict(current_entry.outcome or {})
        time.sleep(_PAUSE_SECONDS)
    raise _give_up(store, entry.id, request, seconds)


def _find_entry(store: "Store", entry_id: str) -> queue_entry.QueueEntry:
    try:
        return store.db.read(lambda connection: run_queue.find(connection, entry_id))
    except Mistake:
        what = "an erasure has removed the answer before it could be read"
        raise Unreachable("ANSWER_REMOVED", what, fix="send a query again; look at what a change did") from None


def _is_change(request: "PlanRequest | QueryRequest | OperationRequest") -> bool:
    return isinstance(request, OperationRequest) and request.is_change


def _give_up(
    store: "Store", entry_id: str, request: "PlanRequest | QueryRequest | OperationRequest", seconds: float
) -> Unreachable:
    entry = _find_entry(store, entry_id)
    if _is_change(request) and entry.state == queue_entry.RUNNING:
        what = f"a worker has not finished the {request.kind} within {seconds:.0f} s; it continues"
        return Unreachable("WORKER_SLOW", what, fix="look at the result later: `runnel log`, `runnel sinks`")
    run_queue.cancel(store.db, entry_id)
    what = f"no worker has answered within {seconds:.0f} s"
    return Unreachable("WORKER_SLOW", what, fix="send the request again, or request less")
