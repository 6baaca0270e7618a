"""Figures for Prometheus: what the queue, the workers and the streams are like when it asks, and what was answered."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runnel.lake import schema, workers
from runnel.lake.database import clock, moment
from runnel.service.api.problem import problems
from runnel.service.api.words import PREFIX
from runnel.service.api.workers import depths

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
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


class Figures(Collector):
    """What the catalog says at the moment."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake

    def collect(self) -> Iterator[Metric]:
        """Yield all figures."""
        yield from self._lake.store.db.read(lambda connection: [*_queue(connection), _workers(connection)])
        yield from _streams(self._lake)


def registry_of(lake: "Lake") -> CollectorRegistry:
    """Return the figures of one app."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(Figures(lake))
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


def _queue(connection: "Connection") -> Iterator[Metric]:
    depth = GaugeMetricFamily("runnel_queue_entries", "Runs that wait or go on", labels=["state"])
    for state, number in depths(connection).items():
        depth.add_metric([state], number)
    yield depth
    ended = GaugeMetricFamily("runnel_runs", "Runs that the catalog remembers, by how they ended", labels=["state"])
    query = sa.select(schema.runs.c.state, sa.func.count()).group_by(schema.runs.c.state)
    for state, number in connection.execute(query):
        ended.add_metric([state], number)
    yield ended


def _workers(connection: "Connection") -> Metric:
    ages = GaugeMetricFamily("runnel_worker_beat_seconds", "Seconds since it was heard of", labels=["worker", "kind"])
    now = moment(clock(connection))
    for one in workers.present(connection):
        ages.add_metric([one.id, one.kind], max((now - moment(one.renewed_at)).total_seconds(), 0.0))
    return ages


def _streams(lake: "Lake") -> Iterator[Metric]:
    from runnel.client.insight import healths

    words = ["table", "branch"]
    behind = GaugeMetricFamily("runnel_stream_behind_seconds", "Age of the oldest change not read", labels=words)
    rate = GaugeMetricFamily("runnel_stream_rows_per_second", "Rows that came in the last minute", labels=words)
    running = GaugeMetricFamily("runnel_stream_running", "1 where it goes on", labels=words)
    for one in healths(lake):
        labels = [str(one.table), one.branch]
        if one.behind_seconds is not None:
            behind.add_metric(labels, one.behind_seconds)
        rate.add_metric(labels, one.rows_per_second)
        running.add_metric(labels, float(one.state in ("running", "waiting")))
    yield from (behind, rate, running)


def path_of(scope: "Scope") -> str:
    """Return the path of the route, with the names of its parameters: one series, however many tables."""
    found = getattr(scope.get("route"), "path", None) or "none"
    is_below = scope["path"].startswith(PREFIX) and found.startswith("/") and not found.startswith(PREFIX)
    return f"{PREFIX}{found}" if is_below else str(found)
