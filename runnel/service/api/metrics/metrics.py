"""Figures for Prometheus: what was answered here, what the catalog says, and the runs that ended."""

import time
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from runnel.service.api.metrics.catalog_gauges import Figures
from runnel.service.api.metrics.ended_runs import Endings
from runnel.service.api.parameters import PREFIX
from runnel.service.api.problem_json import problems

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from runnel.client.lake import Lake

router = APIRouter(tags=["service"])
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The figures"}


class Meters:
    """Counts requests and how long it took until their answer began."""

    def __init__(self, app: "ASGIApp", registry: CollectorRegistry) -> None:
        self._app = app
        words = ["method", "path", "status"]
        self._requests = Counter("runnel_http_requests", "Requests that were answered", words, registry=registry)
        self._seconds = Histogram(
            "runnel_http_request_seconds", "Seconds until an answer began", words[:2], registry=registry
        )

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Hand a request on, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()

        async def counted(message: "Message") -> None:
            if message["type"] == "http.response.start":
                route = (scope["method"], path_of(scope))
                self._requests.labels(*route, str(message["status"])).inc()
                self._seconds.labels(*route).observe(time.perf_counter() - begun)
            await send(message)

        await self._app(scope, receive, counted)


def registry_of(lake: "Lake") -> CollectorRegistry:
    """Return the figures of one app."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(Figures(lake))
    registry.register(Endings(lake.store.db))
    return registry


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses={**problems(), 200: _TEXT},
)
def metrics(request: Request) -> PlainTextResponse:
    """Return all figures as text."""
    return PlainTextResponse(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


def path_of(scope: "Scope") -> str:
    """Return the path of the route, with the names of its parameters: one series, however many tables."""
    found = getattr(scope.get("route"), "path", None) or "none"
    is_below = scope["path"].startswith(PREFIX) and found.startswith("/") and not found.startswith(PREFIX)
    return f"{PREFIX}{found}" if is_below else str(found)
