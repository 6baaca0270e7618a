"""What happens in a run, as a list or as it happens; and its log."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from runnel.errors import RunnelError
from runnel.lake.control import run_events
from runnel.lake.control.run_history import one
from runnel.lake.control.run_queue import OPEN
from runnel.project.inspection.run_logs import path_of
from runnel.service.api import sse
from runnel.service.api.dependencies import LakeHere, StoreHere
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, MOST, MOST_NUMBER, Limit, RunId
from runnel.service.api.problem_json import problems

if TYPE_CHECKING:
    from threading import Event

    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database

router = APIRouter(tags=["runs"])
_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS = 0.3, 0.03
_AT_FIRST_SECONDS = 3.0  # small runs have ended by then, and who waits for one notices tenths of a second
_CHUNK_BYTES = 64 * 1024
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_STREAM = {"content": {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}}
After = Annotated[int, Query(ge=0, le=MOST_NUMBER, description="The number of the last event that is known.")]
LastId = Annotated[str | None, Header(alias="Last-Event-ID", description="The same, as browsers send it.")]


class EventShown(BaseModel):
    """Something that happened in a run; numbers count up from 1."""

    model_config = ConfigDict(extra="allow")

    number: int
    at: str


@router.get(
    "/runs/{run}/events",
    response_model=Page[EventShown],
    summary="Follow a run",
    responses={**problems(404), 200: {**_STREAM, "description": "The events; as a stream where `Accept` asks for it"}},
)
def events(
    request: Request, store: StoreHere, run: RunId, after: After = 0, limit: Limit = DEFAULT, last: LastId = None
) -> Any:
    """Return the events of a run after one of them.

    With `Accept: text/event-stream` they come as they happen, and an event `end` tells how the run ended.
    """
    name = store.db.read(lambda connection: _seen(connection, run, 0, 0)[0])
    if sse.MEDIA_TYPE in request.headers.get("accept", ""):
        start = int(last) if last and last.isascii() and last.isdigit() and len(last) < 10 else after
        return sse.streamed(_follow(store.db, name, start, request.app.state.ending))
    found = store.db.read(lambda connection: run_events.after(connection, name, after, limit + 1))
    return JSONResponse(page(found, limit, lambda event: str(event.number), _json))


@router.get(
    "/runs/{run}/logs",
    summary="Read the log of a run",
    response_class=StreamingResponse,
    responses={**problems(404), 200: {**_TEXT, "description": "The log, with the trace of every error"}},
)
def logs(lake: LakeHere, run: RunId) -> Response:
    """Return the log of the last attempt of a run, or of the attempt that is named."""
    return StreamingResponse(_chunks(path_of(lake, run)), media_type="text/plain; charset=utf-8")


async def _follow(db: "Database", run: str, number: int, ending: "Event") -> AsyncIterator[str]:
    """Yield the events of a run until it has ended, or the service does."""
    spoken = begun = time.monotonic()
    while not ending.is_set():
        try:
            state, found = await to_thread.run_sync(_news, db, run, number)
        except RunnelError:  # the database is away
            state, found = OPEN[0], []
        for event in found:
            number = event.number
            yield sse.event(_json(event), number=number)
        if not found and state not in OPEN:
            yield sse.event({"run": run, "state": state}, name="end")
            return
        if found:
            spoken = time.monotonic()
        elif time.monotonic() - spoken > sse.HEARTBEAT_SECONDS:
            spoken = time.monotonic()
            yield sse.HEARTBEAT
        is_new = time.monotonic() - begun < _AT_FIRST_SECONDS
        await asyncio.sleep(_FIRST_PAUSE_SECONDS if is_new else _PAUSE_SECONDS)


def _news(db: "Database", run: str, number: int) -> tuple[str, list[run_events.Told]]:
    return db.read(lambda connection: _seen(connection, run, number, MOST)[1:])


def _seen(connection: "Connection", run: str, number: int, limit: int) -> tuple[str, str, list[run_events.Told]]:
    """Return the whole id of a run, its state, and its events after one: all before it ended are there by then."""
    found = one(connection, run)
    is_open = found.entry is not None and found.entry.is_open  # also one whose worker is lost: it is run again
    return (
        found.id,
        OPEN[-1] if is_open else found.state,
        run_events.after(connection, found.id, number, limit) if limit else [],
    )


def _json(event: run_events.Told) -> dict[str, Any]:
    return {"number": event.number, "at": event.at, **json.loads(json.dumps(event.event, default=str))}


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
