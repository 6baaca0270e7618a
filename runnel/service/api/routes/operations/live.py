"""Route for live state: an event whenever something changes, for the console."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from runnel.service.api import sse
from runnel.service.api.change_poller import ChangePoller
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["service"])
_STREAM = {"content": {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}, "description": "An endless stream of events"}


@router.get(
    "/events",
    summary="Follow changes",
    response_class=StreamingResponse,
    responses={**error_responses(), 200: _STREAM},
)
async def stream_changes(request: Request) -> StreamingResponse:
    """Send an event `state` at once, and whenever the head of a branch, the queue, a worker or a stream changed."""
    return sse.stream_events(_state_events(request.app.state.pulse))


async def _state_events(poller: ChangePoller) -> AsyncIterator[str]:
    async with aclosing(poller.watch_states()) as states:  # so that the poller notices at once if nobody listens
        async for state in states:
            yield sse.HEARTBEAT if state is None else sse.format_event(state, name="state")
