"""Server-sent events: how they are written, and how a listener is told that nothing is wrong while nothing happens."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = ": nothing new\n\n"
HEARTBEAT_SECONDS = 15.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event(data: Any, *, name: str | None = None, number: int | None = None) -> str:
    r"""Return an event as it goes over the wire.

    >>> event({"state": "failed"}, name="end", number=3)
    'id: 3\nevent: end\ndata: {"state": "failed"}\n\n'
    """
    lines = [f"id: {number}"] if number is not None else []
    lines += [f"event: {name}"] if name is not None else []
    return "\n".join([*lines, f"data: {json.dumps(data)}", "", ""])


def streamed(events: AsyncIterator[str]) -> StreamingResponse:
    """Return events as a response that goes on."""
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers=_HEADERS)
