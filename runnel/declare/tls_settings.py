"""The settings of `[service]` that protect its connections: TLS by files, or by a proxy in front of it. Pure."""

from dataclasses import dataclass
from pathlib import Path

from runnel.errors import Mistake

PROXY = "proxy"
TLS_CHOICES = ("", PROXY)


@dataclass(frozen=True)
class TlsSettings:
    """How the service's connections are protected: by its own certificate and key, by a proxy, or not at all."""

    certificate: Path | None = None  # PEM, with the certificates of intermediate authorities after it
    key: Path | None = None
    has_proxy: bool = False

    @property
    def scheme(self) -> str:
        """Return the scheme of the addresses under which the service itself answers."""
        return "https" if self.certificate is not None else "http"


def tls_settings(root: Path, tls: str, *, certificate: str, key: str, at: str) -> TlsSettings:
    """Return the settings, with absolute paths; raise if one of the two files is missing in them."""
    if bool(certificate) != bool(key):
        given, missing = ("service.tls_cert", "service.tls_key")[:: 1 if certificate else -1]
        what = f"`{given}` is set and `{missing}` is not: TLS needs a certificate and its key"
        raise Mistake("PROJECT_SETTING", what, at=at, fix=f"set {missing} to the path of a PEM file")
    has_proxy = tls == PROXY
    if not certificate:
        return TlsSettings(has_proxy=has_proxy)
    return TlsSettings((root / certificate).resolve(), (root / key).resolve(), has_proxy)
