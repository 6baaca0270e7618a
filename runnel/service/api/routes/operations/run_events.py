"""Routes for the events of a run, as a list or as a live stream, and for its log."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from runnel.errors import RunnelError
from runnel.lake.control import run_events
from runnel.lake.control.queue_entry import OPEN_STATES
from runnel.lake.control.run_history import find_run_record
from runnel.project.inspection.run_logs import find_logs
from runnel.service.api import sse
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import DEFAULT_LIMIT, MAX_LIMIT, MAX_NUMBER, Limit, RunId
from runnel.service.api.problem_json import error_responses

if TYPE_CHECKING:
    from threading import Event

    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database

router = APIRouter(tags=["runs"])
_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS = 0.3, 0.03
_FAST_POLL_SECONDS = 3.0  # poll fast at first: small runs end by then, and users notice tenths of a second
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_STREAM = {"content": {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}}
AfterQuery = Annotated[int, Query(ge=0, le=MAX_NUMBER, description="The number of the last event that the client has.")]
LastEventIdHeader = Annotated[str | None, Header(alias="Last-Event-ID", description="The same, as browsers send it.")]
AttemptQuery = Annotated[int | None, Query(ge=1, le=MAX_NUMBER, description="Only the log of this attempt.")]


class RunEventView(BaseModel):
    """Something that happened in a run; numbers count up from 1."""

    model_config = ConfigDict(extra="allow")

    number: int
    at: str


@router.get(
    "/runs/{run}/events",
    response_model=ListPage[RunEventView],
    summary="Follow a run",
    responses={
        **error_responses(404),
        200: {**_STREAM, "description": "The events; as a stream if `Accept` requests it"},
    },
)
def list_run_events(
    request: Request,
    store: StoreDependency,
    run: RunId,
    after: AfterQuery = 0,
    limit: Limit = DEFAULT_LIMIT,
    last: LastEventIdHeader = None,
) -> Any:
    """Return the events of a run after the number `after`.

    With `Accept: text/event-stream` they are sent as they happen, and a final event `end` has the run's state.
    """
    run_id = store.db.read(lambda connection: _read_run_events(connection, run, 0, 0)[0])
    if sse.MEDIA_TYPE in request.headers.get("accept", ""):
        start = int(last) if last and last.isascii() and last.isdigit() and len(last) < 10 else after
        return sse.stream_events(_stream_events(store.db, run_id, start, request.app.state.ending))
    new_events = store.db.read(lambda connection: run_events.read_after(connection, run_id, after, limit + 1))
    return JSONResponse(build_page(new_events, limit, lambda event: str(event.number), _event_to_json))


@router.get(
    "/runs/{run}/logs",
    summary="Read the logs of a run",
    response_class=StreamingResponse,
    responses={**error_responses(404), 200: {**_TEXT, "description": "The log, with the trace of every error"}},
)
def read_run_log(lake: LakeDependency, run: RunId, attempt: AttemptQuery = None) -> Response:
    """Return the logs of all attempts of a run in order, or of one attempt."""
    logs = find_logs(lake, run, attempt)
    chunks = (chunk for log in logs for chunk in log.read_chunks())
    return StreamingResponse(chunks, media_type="text/plain; charset=utf-8")


async def _stream_events(db: "Database", run: str, number: int, ending: "Event") -> AsyncIterator[str]:
    """Yield the events of a run until the run or the service ends."""
    last_sent_at = started_at = time.monotonic()
    while not ending.is_set():
        try:
            state, new_events = await to_thread.run_sync(_read_new_events, db, run, number)
        except RunnelError:  # the database is unreachable
            state, new_events = OPEN_STATES[0], []
        for event in new_events:
            number = event.number
            yield sse.format_event(_event_to_json(event), number=number)
        if not new_events and state not in OPEN_STATES:
            yield sse.format_event({"run": run, "state": state}, name="end")
            return
        if new_events:
            last_sent_at = time.monotonic()
        elif time.monotonic() - last_sent_at > sse.HEARTBEAT_SECONDS:
            last_sent_at = time.monotonic()
            yield sse.HEARTBEAT
        is_just_started = time.monotonic() - started_at < _FAST_POLL_SECONDS
        await asyncio.sleep(_FIRST_PAUSE_SECONDS if is_just_started else _PAUSE_SECONDS)


def _read_new_events(db: "Database", run: str, number: int) -> tuple[str, list[run_events.RunEvent]]:
    return db.read(lambda connection: _read_run_events(connection, run, number, MAX_LIMIT)[1:])


def _read_run_events(
    connection: "Connection", run: str, number: int, limit: int
) -> tuple[str, str, list[run_events.RunEvent]]:
    """Return the full id of a run, its state, and its events after `number`.

    The state is read first, so that for an ended run no event is missing.
    """
    record = find_run_record(connection, run)
    is_open = record.entry is not None and record.entry.is_open  # also if its worker is lost: the run is retried
    return (
        record.id,
        OPEN_STATES[-1] if is_open else record.state,
        run_events.read_after(connection, record.id, number, limit) if limit else [],
    )


def _event_to_json(event: run_events.RunEvent) -> dict[str, Any]:
    return {"number": event.number, "at": event.at, **json.loads(json.dumps(event.event, default=str))}
