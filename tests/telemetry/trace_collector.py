"""A collector of traces on loopback: what came, decoded from OTLP as protobuf."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers.http_server import Server


@dataclass(frozen=True)
class Span:
    """A span that came; `parent` is empty for the first of a trace."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    error: str | None
    attributes: Mapping[str, Any]


def spans(server: Server) -> list[Span]:
    """Return all spans that came, by when they began."""
    found = []
    for post in server.posts:
        headers = {name.lower(): value for name, value in post.headers.items()}
        assert post.path == "/hook/v1/traces" and headers["content-type"] == "application/x-protobuf"
        for resource in ExportTraceServiceRequest.FromString(post.body).resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            assert names["service.name"] == "runnel" and names["runnel.project"] == "shop"
            found += [_span(one) for scope in resource.scope_spans for one in scope.spans]
    return sorted(found, key=lambda one: one.start)


def below(found: list[Span], above: Span) -> list[Span]:
    """Return the spans right below another."""
    return [one for one in found if one.parent == above.id]


@contextmanager
def telling(server: Server) -> Iterator[str]:
    """Yield the settings of a project that tells this collector, until the block ends."""
    from runnel.declare.observability_settings import TelemetrySettings
    from runnel.telemetry import tracing

    try:
        yield f'[project]\nname = "shop"\n[telemetry]\nendpoint = "{server.url("/hook")}"\n'
    finally:
        tracing.configure(TelemetrySettings(), "shop")  # other tests tell nobody


def _span(one: Any) -> Span:
    told = {item.key: _value(item.value) for item in one.attributes}
    error = one.status.message if one.status.code == 2 else None
    ids = (one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex())
    return Span(one.name, *ids, one.start_time_unix_nano, one.end_time_unix_nano, error, told)


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
