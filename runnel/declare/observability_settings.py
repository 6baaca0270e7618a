"""Read the settings for lineage and traces that Runnel sends to other tools. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runnel.errors import Mistake


@dataclass(frozen=True)
class LineageSettings:
    """Where OpenLineage events go: a server, or `file:` and a path. If empty, the client's own variables decide."""

    url: str = ""
    namespace: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class TelemetrySettings:
    """Where OpenTelemetry traces go: the base address of an OTLP collector. If empty, OTEL_* variables decide."""

    endpoint: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def lineage_settings(url: str, namespace: str, api_key: str, project: str) -> LineageSettings:
    """Return the checked settings of lineage; the namespace defaults to the project's name."""
    _refuse_invalid_address("openlineage.url", url, ("http://", "https://", "file:"))
    return LineageSettings(url, namespace or project, api_key)


def telemetry_settings(endpoint: str, headers: Mapping[str, str]) -> TelemetrySettings:
    """Return the checked settings of traces."""
    _refuse_invalid_address("telemetry.endpoint", endpoint, ("http://", "https://"))
    return TelemetrySettings(endpoint, tuple(sorted(headers.items())))


def _refuse_invalid_address(name: str, address: str, prefixes: tuple[str, ...]) -> None:
    remainder = next((address.removeprefix(prefix) for prefix in prefixes if address.startswith(prefix)), "")
    if address and not remainder.strip("/"):
        what = f"`{name}` is not an address"
        raise Mistake("PROJECT_SETTING", what, fix=f"start it with {' or '.join(prefixes)}")
