"""Protect the connections of the service: refuse to listen without TLS beyond this machine, load the certificate."""

import ipaddress
import logging
import ssl
from typing import TYPE_CHECKING

from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.declare.tls_settings import TlsSettings

LOG = logging.getLogger("runnel.service")


class CertificateReloader:
    """Lets a running server use a certificate that was renewed: new connections get it."""

    def __init__(self, tls: "TlsSettings", context: ssl.SSLContext) -> None:
        self._tls = tls
        self._context = context
        self._loaded_state = _read_state(tls)

    def reload_if_changed(self) -> None:
        """Load the files again if one of them has changed; if they can't be loaded, the old certificate stays."""
        state = _read_state(self._tls)
        if state != self._loaded_state:
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._tls)  # half a pair would break the old one
            load_certificate(self._context, self._tls)
            self._loaded_state = state
            LOG.info("the certificate %s was loaded again", self._tls.certificate)


def check_exposure(settings: "Settings") -> None:
    """Raise if the service would listen beyond this machine without TLS, or if its certificate can't be used."""
    tls = settings.tls
    if tls.certificate is not None:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)
    elif not tls.has_proxy and not is_loopback(settings.host):
        address = f"{settings.host}:{settings.port}"
        what = f"the service would listen on {address} without TLS: tokens and rows could be read on the network"
        fix = 'set service.tls_cert and service.tls_key, or service.tls = "proxy" if a proxy in front of it ends TLS'
        raise Mistake("SERVICE_TLS", what, fix=fix)


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "lake.example.com", "")]
    [True, True, True, False, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load_certificate(context: ssl.SSLContext, tls: "TlsSettings") -> None:
    """Load the certificate and its key; raise an error that names the file if one can't be used."""
    assert tls.certificate is not None
    assert tls.key is not None
    for name, path in (("tls_cert", tls.certificate), ("tls_key", tls.key)):
        try:
            path.open("rb").close()
        except OSError as error:
            what = f"`service.{name}` can't be read: {(error.strerror or str(error)).lower()}"
            raise Mistake("SERVICE_TLS", what, at=str(path), fix="name a PEM file that this user can read") from error
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_refuse_password)
    except ssl.SSLError as error:
        reason = (error.reason or "no PEM").lower().replace("_", " ")
        what = f"the certificate and its key can't be used for TLS: {reason}"
        fix = "service.tls_cert is a certificate in PEM with its chain, service.tls_key its key without a password"
        raise Mistake("SERVICE_TLS", what, at=f"{tls.certificate}, {tls.key}", fix=fix) from error


def _refuse_password() -> str:
    """Give no password for the key: otherwise OpenSSL would ask on the terminal, and a service would wait there."""
    return ""


def _read_state(tls: "TlsSettings") -> tuple[tuple[int, int], ...]:
    paths = (path for path in (tls.certificate, tls.key) if path is not None)
    return tuple((stat.st_mtime_ns, stat.st_size) for stat in (path.stat() for path in paths))
