"""Record spans of this process if tracing is enabled; otherwise do nothing and import nothing.

Spans are linked by the W3C `traceparent`, a text that is passed through queues and threads.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from runnel.declare.observability_settings import TelemetrySettings
    from runnel.phase_timer import PhaseSegment
    from runnel.telemetry.otlp_spans import SpanRecorder

AttributeValue = str | int | float | bool | None
SpanKindName = Literal["internal", "server", "consumer"]
_TRACEPARENT_PATTERN = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MIN_PHASE_SECONDS = 0.001
_recorder: "SpanRecorder | None" = None
_settings: "tuple[TelemetrySettings, str] | None" = None


def configure(settings: "TelemetrySettings", project: str) -> bool:
    """Send spans to the endpoint of the settings or the environment; tell whether tracing is enabled."""
    global _recorder, _settings
    if not (settings.endpoint or has_endpoint_variable()) or _is_disabled():
        _recorder, _settings = None, None
    elif _settings != (settings, project):
        from runnel.telemetry.otlp_spans import SpanRecorder

        _recorder, _settings = SpanRecorder(settings, project), (settings, project)
    return _recorder is not None


def is_enabled() -> bool:
    """Tell whether tracing is enabled."""
    return _recorder is not None


def has_endpoint_variable() -> bool:
    """Tell whether OpenTelemetry's own variables set the endpoint; they override the settings."""
    return any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)


def _is_disabled() -> bool:
    is_sdk_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return is_sdk_disabled or os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"


class ActiveSpan:
    """A span in progress. `traceparent` is None if tracing is disabled."""

    def __init__(self, traceparent: str | None = None) -> None:
        self.traceparent = traceparent

    def set_attributes(self, **attributes: AttributeValue) -> None:
        """Add attributes to the span."""

    def set_error(self, what: str) -> None:
        """Mark the span as failed, with a description."""

    def rename(self, name: str) -> None:
        """Give it another name."""


@contextmanager
def span(
    name: str, parent: str | None = None, kind: SpanKindName = "internal", **attributes: AttributeValue
) -> Iterator[ActiveSpan]:
    """Record a block as a span, the parent of spans within it; an exception that leaves the block is recorded."""
    if _recorder is None:
        yield ActiveSpan()
        return
    with _recorder.span(name, parent, kind, attributes) as active_span:
        yield active_span


def record_span(
    name: str, start: float, end: float, parent: str | None, *, error: str | None = None, **attributes: AttributeValue
) -> str | None:
    """Record a span that has ended (times in seconds since the epoch), and return its `traceparent`."""
    if _recorder is None:
        return None
    return _recorder.record_span(name, start, end, parent, error=error, attributes=attributes)


def record_phases(segments: "Iterable[PhaseSegment]", parent: str | None) -> None:
    """Record phases as child spans of `parent`; phases shorter than a millisecond are skipped."""
    if _recorder is not None:
        for segment in segments:
            if segment.seconds >= _MIN_PHASE_SECONDS:
                _recorder.record_span(segment.phase, segment.start, segment.end, parent, attributes={})


def current_traceparent() -> str | None:
    """Return the `traceparent` of this thread's current span."""
    return None if _recorder is None else _recorder.current_traceparent()


def read_traceparent(environ: Mapping[str, str]) -> str | None:
    """Return the `traceparent` in the environment of this command, or None if it is missing or invalid.

    >>> read_traceparent({"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> read_traceparent({"TRACEPARENT": "no"}), read_traceparent({})
    (None, None)
    """
    return parse_traceparent(environ.get("TRACEPARENT"))


def parse_traceparent(text: str | None) -> str | None:
    """Return the text if it is a valid `traceparent`, else None."""
    return text if text is not None and _TRACEPARENT_PATTERN.fullmatch(text) else None


def flush(seconds: float = 3.0) -> bool:
    """Send pending spans, for at most `seconds`; tell whether that succeeded in time."""
    return _recorder is None or _recorder.flush(seconds)
