"""Format server-sent events, and the heartbeat that is sent while nothing happens."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = ": nothing new\n\n"
HEARTBEAT_SECONDS = 15.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def format_event(data: Any, *, name: str | None = None, number: int | None = None) -> str:
    r"""Return an event in the wire format.

    >>> format_event({"state": "failed"}, name="end", number=3)
    'id: 3\nevent: end\ndata: {"state": "failed"}\n\n'
    """
    lines = [f"id: {number}"] if number is not None else []
    lines += [f"event: {name}"] if name is not None else []
    return "\n".join([*lines, f"data: {json.dumps(data)}", "", ""])


def stream_events(events: AsyncIterator[str]) -> StreamingResponse:
    """Return events as a streaming response."""
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers=_HEADERS)
