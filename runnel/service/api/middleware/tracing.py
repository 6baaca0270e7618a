"""Requests as spans: each belongs to the trace that its header `traceparent` names, and what it queues to it."""

from typing import TYPE_CHECKING

from runnel.service.api.metrics.metrics import path_of
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_UNTOLD = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds, and of no interest


class Traces:
    """Makes a span of each request."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Hand a request on within a span."""
        if scope["type"] != "http" or scope["path"] in _UNTOLD:
            await self._app(scope, receive, send)
            return
        method, headers = scope["method"], dict(scope["headers"])
        parent = tracing.checked(headers.get(b"traceparent", b"").decode("latin-1").strip())
        told = {"http.request.method": method, "url.path": scope["path"]}
        with tracing.span(method, parent, "server", **told) as mark:

            async def seen(message: "Message") -> None:
                if message["type"] == "http.response.start":
                    route = path_of(scope)
                    mark.rename(f"{method} {route}")
                    mark.tell(**{"http.route": route, "http.response.status_code": message["status"]})
                    if message["status"] >= 500:
                        mark.fail(f"status {message['status']}")
                await send(message)

            await self._app(scope, receive, seen)
