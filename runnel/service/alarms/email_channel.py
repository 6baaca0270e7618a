"""Tell an alarm by e-mail."""

import smtplib
import socket
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from runnel.errors import RunnelError, Unreachable
from runnel.service.alarms.secrets import revealed

if TYPE_CHECKING:
    from runnel.service.alarms.message import Message

_SECONDS = 15.0
_PORTS = {"smtp": 25, "smtps": 465}
_HERE = ("localhost", "127.0.0.1", "::1")


def send(way: Mapping[str, Any], message: "Message") -> None:
    """Send it; raises where the server took it for nobody."""
    parts = urlsplit(way["smtp"])
    user = unquote(parts.username) if parts.username else None
    password = revealed(way["password"]) if way.get("password") else None
    where = f"the mail server {parts.hostname}"
    try:
        with _connected(parts) as server:
            if user is not None and password is not None:
                _sign_in(server, parts, user, password)
            server.send_message(_mail(way, message, user))
    except (smtplib.SMTPException, OSError) as error:
        raise Unreachable("ALERT_MAIL", f"{where} did not take it: {type(error).__name__}: {error}") from None


def _connected(parts: SplitResult) -> smtplib.SMTP:
    """Return a connection, with TLS where the server offers it."""
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    context = ssl.create_default_context()
    if parts.scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=_SECONDS, context=context)
    server = smtplib.SMTP(host, port, timeout=_SECONDS)
    try:
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
    except BaseException:
        server.close()
        raise
    return server


def _sign_in(server: smtplib.SMTP, parts: SplitResult, user: str, password: str) -> None:
    if not isinstance(server.sock, ssl.SSLSocket) and parts.hostname not in _HERE:
        what = f"the mail server {parts.hostname} offers no TLS, so the password is not sent"
        raise RunnelError("ALERT_MAIL", what, fix="use smtps://, or a server with STARTTLS")
    server.login(user, password)


def _mail(way: Mapping[str, Any], message: "Message", user: str | None) -> EmailMessage:
    mail = EmailMessage()
    sender = way.get("sender") or (user if user and "@" in user else f"runnel@{socket.gethostname()}")
    mail["From"], mail["To"] = sender, ", ".join(way["email"])
    mail["Subject"] = message.title[:200]
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="runnel")
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail
