"""Trace requests: each is a span of the trace in its `traceparent` header, and the runs that it queues belong to it."""

from typing import TYPE_CHECKING

from runnel.service.api.metrics.metrics import get_route_path
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_UNTRACED_PATHS = frozenset({"/health", "/ready", "/metrics"})  # requested every few seconds, and of no interest


class TracingMiddleware:
    """Records a span for each request."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on within a span."""
        if scope["type"] != "http" or scope["path"] in _UNTRACED_PATHS:
            await self._app(scope, receive, send)
            return
        method, headers = scope["method"], dict(scope["headers"])
        parent = tracing.parse_traceparent(headers.get(b"traceparent", b"").decode("latin-1").strip())
        attributes = {"http.request.method": method, "url.path": scope["path"]}
        with tracing.span(method, parent, "server", **attributes) as span:

            async def send_traced(message: "Message") -> None:
                if message["type"] == "http.response.start":
                    route = get_route_path(scope)
                    span.rename(f"{method} {route}")
                    span.set_attributes(**{"http.route": route, "http.response.status_code": message["status"]})
                    if message["status"] >= 500:
                        span.set_error(f"status {message['status']}")
                await send(message)

            await self._app(scope, receive, send_traced)
