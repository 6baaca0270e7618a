"""An HTTPS connection to the service of this project, which has exactly the certificate of its settings."""

import http.client
import ssl
from pathlib import Path

_END = "-----END CERTIFICATE-----"


class PinnedConnection(http.client.HTTPSConnection):
    """A connection that trusts one certificate, whichever address it was made for, and no authority."""

    def __init__(self, host: str, port: int | None, certificate: Path, timeout_seconds: float) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # what comes is compared instead
        super().__init__(host, port, timeout=timeout_seconds, context=context)
        self._certificate = certificate

    def connect(self) -> None:
        """Connect, and compare the certificate before anything is sent."""
        super().connect()
        assert isinstance(self.sock, ssl.SSLSocket)
        if self.sock.getpeercert(binary_form=True) != _read_certificate(self._certificate):
            self.close()
            raise ssl.SSLCertVerificationError(f"the service does not have the certificate {self._certificate}")


def _read_certificate(path: Path) -> bytes:
    """Return the first certificate of a PEM file, which is the one of the service."""
    text = path.read_text(encoding="ascii", errors="replace")
    start = text.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[start : text.index(_END, start) + len(_END)])
