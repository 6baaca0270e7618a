"""Live state: an event whenever something changed, for a console that shows it."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from runnel.service.api import sse
from runnel.service.api.change_poller import Pulse
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["service"])
_STREAM = {"content": {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}, "description": "Events, without end"}


@router.get(
    "/events",
    summary="Listen to changes",
    response_class=StreamingResponse,
    responses={**problems(), 200: _STREAM},
)
async def events(request: Request) -> StreamingResponse:
    """Send an event `state` at once, and whenever the head of a branch, the queue, a worker or a stream changed."""
    return sse.streamed(_events(request.app.state.pulse))


async def _events(pulse: Pulse) -> AsyncIterator[str]:
    async with aclosing(pulse.states()) as states:  # so that the poller hears at once that nobody listens
        async for state in states:
            yield sse.HEARTBEAT if state is None else sse.event(state, name="state")
