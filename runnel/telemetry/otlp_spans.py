"""Spans by the SDK of OpenTelemetry, sent as OTLP by a thread; where the collector is away they are dropped."""

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
from runnel.telemetry.tracing import Kind, Mark, Value, is_in_environment

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from runnel.declare.observability_settings import TelemetrySettings

LOG = logging.getLogger("runnel.telemetry")
_TIMEOUT_SECONDS = 3.0
_EVERY_MS, _MOST, _AT_ONCE = 1000, 2048, 512
_KINDS = {"internal": trace.SpanKind.INTERNAL, "server": trace.SpanKind.SERVER, "consumer": trace.SpanKind.CONSUMER}
_WORDS = TraceContextTextMapPropagator()


class Spans:
    """The spans of this process, for one collector."""

    def __init__(self, settings: "TelemetrySettings", project: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what goes wrong is told here, once
        name = os.environ.get("OTEL_SERVICE_NAME") or "runnel"
        resource = Resource.create({"service.name": name, "runnel.project": project})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(
            _Exporter(settings),
            max_queue_size=_MOST,
            schedule_delay_millis=_EVERY_MS,
            max_export_batch_size=_AT_ONCE,
            export_timeout_millis=1000 * _TIMEOUT_SECONDS,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("runnel")
        shutdown.register(lambda: _within(_TIMEOUT_SECONDS, self._provider.shutdown))

    @contextmanager
    def span(self, name: str, parent: str | None, kind: Kind, attributes: Mapping[str, Value]) -> Iterator[Mark]:
        """Make a span of a block."""
        above = _above(parent) if parent is not None else None
        known = _known(attributes)
        with self._tracer.start_as_current_span(name, above, _KINDS[kind], known) as found:
            yield _Mark(found)

    def past(
        self,
        name: str,
        start: float,
        end: float,
        parent: str | None,
        error: str | None,
        attributes: Mapping[str, Value],
    ) -> str | None:
        """Tell of a span that is over."""
        above = _above(parent) if parent is not None else contexts.Context()
        found = self._tracer.start_span(name, above, attributes=_known(attributes), start_time=_nanoseconds(start))
        if error is not None:
            found.set_status(trace.Status(trace.StatusCode.ERROR, error))
        found.end(_nanoseconds(end))
        return _text(found)

    def current(self) -> str | None:
        """Return the `traceparent` of the span that this thread is in."""
        return _text(trace.get_current_span())

    def flush(self, seconds: float) -> bool:
        """Send what waits, so long at most."""
        return _within(seconds, self._provider.force_flush)


class _Mark(Mark):
    def __init__(self, found: trace.Span) -> None:
        super().__init__(_text(found))
        self._span = found

    def tell(self, **attributes: Value) -> None:
        self._span.set_attributes(_known(attributes))

    def fail(self, what: str) -> None:
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, what))

    def rename(self, name: str) -> None:
        self._span.update_name(name)


class _Exporter(SpanExporter):
    """Sends spans, and says once when they don't arrive."""

    def __init__(self, settings: "TelemetrySettings") -> None:
        if is_in_environment():
            self._real = OTLPSpanExporter(timeout=_TIMEOUT_SECONDS)
        else:
            address = f"{settings.endpoint.rstrip('/')}/v1/traces"
            self._real = OTLPSpanExporter(address, headers=dict(settings.headers), timeout=_TIMEOUT_SECONDS)
        self._is_told = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        try:
            found = self._real.export(spans)
        except Exception:  # no answer may end the thread
            found = SpanExportResult.FAILURE
        if found is not SpanExportResult.SUCCESS and not self._is_told:
            LOG.warning("traces don't arrive at their collector, and are dropped")
        self._is_told = found is not SpanExportResult.SUCCESS
        return found

    def shutdown(self) -> None:
        """End."""
        self._real.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: what is exported is sent."""
        return True


def _above(parent: str) -> "Context":
    return _WORDS.extract({"traceparent": parent}, contexts.Context())


def _text(found: trace.Span) -> str | None:
    carrier: dict[str, str] = {}
    _WORDS.inject(carrier, trace.set_span_in_context(found, contexts.Context()))
    return carrier.get("traceparent")


def _known(attributes: Mapping[str, Value]) -> dict[str, str | int | float | bool]:
    return {f"runnel.{name}" if "." not in name else name: one for name, one in attributes.items() if one is not None}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _within(seconds: float, work: "object") -> bool:
    """Do something in a thread of its own, and tell whether it was done in time."""
    assert callable(work)
    thread = threading.Thread(target=work, name="runnel traces", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
