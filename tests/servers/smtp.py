"""A real SMTP server on loopback for tests: it keeps every mail, and may ask for TLS and a password.

with Server() as server:
    smtplib.SMTP("127.0.0.1", server.port).send_message(...)
    server.mails
"""

import base64
import socket
import ssl
import threading
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import BinaryIO, Self


@dataclass(frozen=True)
class Mail:
    """A mail that came: who sent it to whom, whether over TLS, and as whom."""

    sender: str
    to: tuple[str, ...]
    message: Message
    is_secure: bool
    user: str | None


class Server:
    """The server. With a `certificate` it offers STARTTLS, or is all TLS; `refusals` is how many mails it refuses."""

    def __init__(self, certificate: Path | None = None, *, all_tls: bool = False, password: str | None = None) -> None:
        self.mails: list[Mail] = []
        self.refusals = 0
        self._password = password
        self._all_tls = all_tls
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if self._context is not None and certificate is not None:
            self._context.load_cert_chain(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._all_tls and self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            _Talk(self, connection).go()
        except (OSError, ValueError):
            pass
        finally:
            connection.close()

    @property
    def starttls(self) -> ssl.SSLContext | None:
        return None if self._all_tls else self._context

    def accepts(self, secret: str) -> bool:
        return self._password is not None and secret == self._password

    @property
    def asks(self) -> bool:
        return self._password is not None


class _Talk:
    """One connection."""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        self._server, self._connection = server, connection
        self._file: BinaryIO = connection.makefile("rb")
        self._sender, self._to = "", list[str]()
        self._user: str | None = None

    def go(self) -> None:
        self._say("220 here")
        while line := self._file.readline().decode().strip():
            word = line.split()[0].upper()
            if word == "QUIT":
                self._say("221 bye")
                return
            self._answer(word, line)

    def _answer(self, word: str, line: str) -> None:
        if word in ("EHLO", "HELO"):
            self._hello()
        elif word == "STARTTLS" and self._server.starttls is not None:
            self._say("220 go ahead")
            self._connection = self._server.starttls.wrap_socket(self._connection, server_side=True)
            self._file = self._connection.makefile("rb")
        elif word == "AUTH":
            self._sign_in(line.split()[2])
        elif word == "MAIL":
            is_allowed = self._user is not None or not self._server.asks
            self._sender, self._to = _address(line), []
            self._say("250 ok" if is_allowed else "530 sign in first")
        elif word == "RCPT":
            self._to.append(_address(line))
            self._say("250 ok")
        elif word == "DATA":
            self._take()
        else:
            self._say("250 ok")

    def _hello(self) -> None:
        offers = ["here"]
        if self._server.starttls is not None and not isinstance(self._connection, ssl.SSLSocket):
            offers.append("STARTTLS")
        offers += ["AUTH PLAIN"] if self._server.asks else []
        for offer in offers[:-1]:
            self._say(f"250-{offer}")
        self._say(f"250 {offers[-1]}")

    def _sign_in(self, given: str) -> None:
        _, user, secret = base64.b64decode(given).decode().split("\0")
        self._user = user if self._server.accepts(secret) else None
        self._say("235 ok" if self._user else "535 wrong password")

    def _take(self) -> None:
        self._say("354 go on")
        body = b""
        while (line := self._file.readline()) != b".\r\n":
            body += line.removeprefix(b".") if line.startswith(b"..") else line
        if self._server.refusals:
            self._server.refusals -= 1
            self._say("451 later")
            return
        message = message_from_bytes(body, policy=default)
        is_secure = isinstance(self._connection, ssl.SSLSocket)
        self._server.mails.append(Mail(self._sender, tuple(self._to), message, is_secure, self._user))
        self._say("250 taken")

    def _say(self, text: str) -> None:
        self._connection.sendall(f"{text}\r\n".encode())


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]
