"""Spans of this process, where somebody wants them; else nothing happens, and nothing is imported.

Spans are tied together by the text that the standard calls `traceparent`, which goes through queues and threads.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from runnel.declare.observability_settings import TelemetrySettings
    from runnel.phase_timer import Segment
    from runnel.telemetry.otlp_spans import Spans

Value = str | int | float | bool | None
Kind = Literal["internal", "server", "consumer"]
_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_LEAST_SECONDS = 0.001
_spans: "Spans | None" = None
_settings: "tuple[TelemetrySettings, str] | None" = None


def configure(settings: "TelemetrySettings", project: str) -> bool:
    """Let spans go where the settings or the environment say, from now on; tell whether somebody wants them."""
    global _spans, _settings
    if not (settings.endpoint or is_in_environment()) or _is_off():
        _spans, _settings = None, None
    elif _settings != (settings, project):
        from runnel.telemetry.otlp_spans import Spans

        _spans, _settings = Spans(settings, project), (settings, project)
    return _spans is not None


def is_on() -> bool:
    """Tell whether somebody wants spans."""
    return _spans is not None


def is_in_environment() -> bool:
    """Tell whether OpenTelemetry's own variables say where spans go; they win, as variables do everywhere."""
    return any(os.environ.get(name) for name in _VARIABLES)


def _is_off() -> bool:
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return is_disabled or os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"


class Mark:
    """A span that goes on. `trace` is its `traceparent`, None where nobody wants it."""

    def __init__(self, trace: str | None = None) -> None:
        self.trace = trace

    def tell(self, **attributes: Value) -> None:
        """Add what is known of it by now."""

    def fail(self, what: str) -> None:
        """Say that it went wrong."""

    def rename(self, name: str) -> None:
        """Give it another name."""


@contextmanager
def span(name: str, parent: str | None = None, kind: Kind = "internal", **attributes: Value) -> Iterator[Mark]:
    """Make a span of a block, and the one that others are below meanwhile; an error that leaves it is told."""
    if _spans is None:
        yield Mark()
        return
    with _spans.span(name, parent, kind, attributes) as mark:
        yield mark


def past(
    name: str, start: float, end: float, parent: str | None, *, error: str | None = None, **attributes: Value
) -> str | None:
    """Tell of a span that is over, in seconds since 1970; return its `traceparent`."""
    return None if _spans is None else _spans.past(name, start, end, parent, error, attributes)


def phases(segments: "Iterable[Segment]", parent: str | None) -> None:
    """Tell of the phases of something as spans below it; those of no length are left out."""
    if _spans is not None:
        for one in segments:
            if one.seconds >= _LEAST_SECONDS:
                _spans.past(one.phase, one.start, one.end, parent, None, {})


def current() -> str | None:
    """Return the `traceparent` of the span that this thread is in."""
    return None if _spans is None else _spans.current()


def given(environ: Mapping[str, str]) -> str | None:
    """Return the `traceparent` that whoever started this command gave it.

    >>> given({"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> given({"TRACEPARENT": "no"}), given({})
    (None, None)
    """
    return checked(environ.get("TRACEPARENT"))


def checked(text: str | None) -> str | None:
    """Return a `traceparent` if it is one."""
    return text if text is not None and _FORM.fullmatch(text) else None


def flush(seconds: float = 3.0) -> bool:
    """Send what waits, so long at most; tell whether that was done."""
    return _spans is None or _spans.flush(seconds)
