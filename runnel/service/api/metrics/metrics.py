"""Prometheus metrics: requests to this process, gauges from the catalog, and ended runs."""

import time
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from runnel.service.api.metrics.catalog_gauges import CatalogGauges
from runnel.service.api.metrics.ended_runs import EndedRunMetrics
from runnel.service.api.parameters import API_PREFIX
from runnel.service.api.problem_json import error_responses

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from runnel.client.lake import Lake

router = APIRouter(tags=["service"])
# Any client, even one without a token, can send any word as a method, and every label value stays in memory.
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The figures"}


class RequestMetricsMiddleware:
    """Counts requests, and measures the time until their response starts."""

    def __init__(self, app: "ASGIApp", registry: CollectorRegistry) -> None:
        self._app = app
        label_names = ["method", "path", "status"]
        self._requests = Counter("runnel_http_requests", "Requests that were answered", label_names, registry=registry)
        self._seconds = Histogram(
            "runnel_http_request_seconds", "Seconds until the response started", label_names[:2], registry=registry
        )

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on, and count its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()

        async def send_counted(message: "Message") -> None:
            if message["type"] == "http.response.start":
                route = (get_method_label(scope), get_route_path(scope))
                self._requests.labels(*route, str(message["status"])).inc()
                self._seconds.labels(*route).observe(time.perf_counter() - started_at)
            await send(message)

        await self._app(scope, receive, send_counted)


def build_registry(lake: "Lake") -> CollectorRegistry:
    """Return the metrics registry of one app."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(CatalogGauges(lake))
    registry.register(EndedRunMetrics(lake.store.db))
    return registry


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses={**error_responses(), 200: _TEXT},
)
def show_metrics(request: Request) -> PlainTextResponse:
    """Return all metrics in Prometheus' text format."""
    return PlainTextResponse(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


def get_method_label(scope: "Scope") -> str:
    """Return the method of a request, or `other` for one that no route has.

    >>> get_method_label({"method": "GET"}), get_method_label({"method": "X17"})
    ('GET', 'other')
    """
    return scope["method"] if scope["method"] in _METHODS else "other"


def get_route_path(scope: "Scope") -> str:
    """Return the route's path template, so that all tables share one time series."""
    route_path = getattr(scope.get("route"), "path", None) or "none"
    is_api_path = (
        scope["path"].startswith(API_PREFIX) and route_path.startswith("/") and not route_path.startswith(API_PREFIX)
    )
    return f"{API_PREFIX}{route_path}" if is_api_path else str(route_path)
