"""Notify by e-mail."""

import smtplib
import socket
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from runnel.errors import RunnelError, Unreachable
from runnel.service.alarms.secrets import reveal_secret

if TYPE_CHECKING:
    from runnel.service.alarms.message import AlarmMessage

_TIMEOUT_SECONDS = 15.0
_PORTS = {"smtp": 25, "smtps": 465}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def send_email(channel: Mapping[str, Any], message: "AlarmMessage") -> None:
    """Send the alarm by e-mail; raise if the server accepts it for no recipient."""
    url = urlsplit(channel["smtp"])
    user = unquote(url.username) if url.username else None
    password = reveal_secret(channel["password"]) if channel.get("password") else None
    server_text = f"the mail server {url.hostname}"
    try:
        with _connect(url) as server:
            if user is not None and password is not None:
                _sign_in(server, url, user, password)
            server.send_message(_build_email(channel, message, user))
    except (smtplib.SMTPException, OSError) as error:
        raise Unreachable(
            "ALERT_MAIL", f"{server_text} did not accept the message: {type(error).__name__}: {error}"
        ) from None


def _connect(url: SplitResult) -> smtplib.SMTP:
    """Connect to the mail server, with TLS if the server offers it."""
    host, port = str(url.hostname), url.port or _PORTS[url.scheme]
    context = ssl.create_default_context()
    if url.scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT_SECONDS, context=context)
    server = smtplib.SMTP(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
    except BaseException:
        server.close()
        raise
    return server


def _sign_in(server: smtplib.SMTP, url: SplitResult, user: str, password: str) -> None:
    if not isinstance(server.sock, ssl.SSLSocket) and url.hostname not in _LOCAL_HOSTS:
        what = f"the mail server {url.hostname} offers no TLS, so the password is not sent"
        raise RunnelError("ALERT_MAIL", what, fix="use smtps://, or a server with STARTTLS")
    server.login(user, password)


def _build_email(channel: Mapping[str, Any], message: "AlarmMessage", user: str | None) -> EmailMessage:
    mail = EmailMessage()
    sender = channel.get("sender") or (user if user and "@" in user else f"runnel@{socket.gethostname()}")
    mail["From"], mail["To"] = sender, ", ".join(channel["email"])
    mail["Subject"] = message.title[:200]
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="runnel")
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail
