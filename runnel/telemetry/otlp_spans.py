"""Record spans with OpenTelemetry's SDK and send them as OTLP in the background; drop them if the collector is down."""

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from runnel import shutdown
from runnel.telemetry.tracing import ActiveSpan, AttributeValue, SpanKindName, has_endpoint_variable

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from runnel.declare.observability_settings import TelemetrySettings

LOG = logging.getLogger("runnel.telemetry")
_TIMEOUT_SECONDS = 3.0
_EXPORT_INTERVAL_MS, _MAX_QUEUE_SIZE, _MAX_BATCH_SIZE = 1000, 2048, 512
_KINDS = {"internal": trace.SpanKind.INTERNAL, "server": trace.SpanKind.SERVER, "consumer": trace.SpanKind.CONSUMER}
_PROPAGATOR = TraceContextTextMapPropagator()


class SpanRecorder:
    """Record the spans of this process and send them to one collector."""

    def __init__(self, settings: "TelemetrySettings", project: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # the exporter below warns once instead
        name = os.environ.get("OTEL_SERVICE_NAME") or "runnel"
        resource = Resource.create({"service.name": name, "runnel.project": project})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(
            _WarningExporter(settings),
            max_queue_size=_MAX_QUEUE_SIZE,
            schedule_delay_millis=_EXPORT_INTERVAL_MS,
            max_export_batch_size=_MAX_BATCH_SIZE,
            export_timeout_millis=1000 * _TIMEOUT_SECONDS,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("runnel")
        shutdown.register(lambda: _run_with_timeout(_TIMEOUT_SECONDS, self._provider.shutdown))

    @contextmanager
    def span(
        self, name: str, parent: str | None, kind: SpanKindName, attributes: Mapping[str, AttributeValue]
    ) -> Iterator[ActiveSpan]:
        """Record a block as a span."""
        parent_context = _extract_context(parent) if parent is not None else None
        span_attributes = _prefix_attributes(attributes)
        with self._tracer.start_as_current_span(name, parent_context, _KINDS[kind], span_attributes) as otel_span:
            yield _OtelSpan(otel_span)

    def record_span(
        self,
        name: str,
        start: float,
        end: float,
        parent: str | None,
        *,
        error: str | None = None,
        attributes: Mapping[str, AttributeValue],
    ) -> str | None:
        """Record a span that has ended, and return its `traceparent`."""
        parent_context = _extract_context(parent) if parent is not None else contexts.Context()
        otel_span = self._tracer.start_span(
            name, parent_context, attributes=_prefix_attributes(attributes), start_time=_to_nanoseconds(start)
        )
        if error is not None:
            otel_span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        otel_span.end(_to_nanoseconds(end))
        return _format_traceparent(otel_span)

    def current_traceparent(self) -> str | None:
        """Return the `traceparent` of this thread's current span."""
        return _format_traceparent(trace.get_current_span())

    def flush(self, seconds: float) -> bool:
        """Send pending spans, for at most `seconds`; tell whether that succeeded in time."""
        return _run_with_timeout(seconds, self._provider.force_flush)


class _OtelSpan(ActiveSpan):
    def __init__(self, otel_span: trace.Span) -> None:
        super().__init__(_format_traceparent(otel_span))
        self._span = otel_span

    def set_attributes(self, **attributes: AttributeValue) -> None:
        self._span.set_attributes(_prefix_attributes(attributes))

    def set_error(self, what: str) -> None:
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, what))

    def rename(self, name: str) -> None:
        self._span.update_name(name)


class _WarningExporter(SpanExporter):
    """Send spans, and warn once if they don't arrive."""

    def __init__(self, settings: "TelemetrySettings") -> None:
        if has_endpoint_variable():
            self._exporter = OTLPSpanExporter(timeout=_TIMEOUT_SECONDS)
        else:
            address = f"{settings.endpoint.rstrip('/')}/v1/traces"
            self._exporter = OTLPSpanExporter(address, headers=dict(settings.headers), timeout=_TIMEOUT_SECONDS)
        self._has_warned = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        try:
            result = self._exporter.export(spans)
        except Exception:  # no response may end the export thread
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS and not self._has_warned:
            LOG.warning("traces do not reach their collector and are dropped")
        self._has_warned = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - part of the protocol
        """Do nothing: exported spans are already sent."""
        return True


def _extract_context(parent: str) -> "Context":
    return _PROPAGATOR.extract({"traceparent": parent}, contexts.Context())


def _format_traceparent(otel_span: trace.Span) -> str | None:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(otel_span, contexts.Context()))
    return carrier.get("traceparent")


def _prefix_attributes(attributes: Mapping[str, AttributeValue]) -> dict[str, str | int | float | bool]:
    return {
        f"runnel.{name}" if "." not in name else name: value for name, value in attributes.items() if value is not None
    }


def _to_nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _run_with_timeout(seconds: float, work: "object") -> bool:
    """Run `work` in a new thread, and tell whether it finished in time."""
    assert callable(work)
    thread = threading.Thread(target=work, name="runnel traces", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
