"""A real HTTP server for tests: an API in every style of paging, and an endpoint for posts, with faults on order.

    with Server() as server:
        server.records = [{"id": 1, "at": "2026-01-01"}]
        server.fail("status", 503, times=2)         # the next two requests
        rn.http(server.url("/page"), ...)
        server.requests                             # every request, in order, with when it came

Reading, each from `records`; `?since=` leaves out those whose `since_field` is less; POST takes its parameters as JSON:
`/all` (an array), `/page` (page, per_page), `/offset` (offset, limit), `/cursor` (cursor, limit), `/link` (the header),
`/next` (a URL in the body), `/lines` (NDJSON), `/objects` (an object of objects), `/moved?to=URL` (a redirect).
Writing: POST, PUT or DELETE `/hook...` keeps each body in `posts`; faults and `token` hold there too.
"""

import base64
import gzip
import hashlib
import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

FAULTS = ("status", "drop", "cut", "slow", "garbage", "body", "hang_up_after")


def write_netrc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `~/.netrc` have credentials for this machine, which `requests` prefers to a header."""
    (folder / "netrc").write_text("machine 127.0.0.1 login netrc-user password netrc-password\n")
    monkeypatch.setenv("NETRC", str(folder / "netrc"))


@dataclass(frozen=True)
class Request:
    """A request that came; `at` is the server's own clock in seconds, `status` None where it was hung up on."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float
    status: int | None

    @property
    def json(self) -> Any:
        """Return its body, read."""
        return json.loads(self.body)


@dataclass
class Fault:
    """What is to go wrong, how often, and where; `skip` requests pass before."""

    kind: str
    value: Any = None
    times: int = 1
    path: str = ""
    skip: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What is sent."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Server:
    """The server; its attributes may be changed at any time."""

    def __init__(self, certificate: Path | None = None) -> None:
        """Take a free port of loopback; with a certificate (and its key, in PEM) it is HTTPS."""
        self.records: list[Any] = []
        self.size = 2  # of a page, where none is asked for
        self.since_field = "at"
        self.is_exclusive = False  # whether `since` leaves out records of that very value
        self.has_etags = False
        self.is_packed = False  # whether answers are gzip
        self.content_type = "application/json"
        self.is_endless = False  # whether the cursor never ends, and repeats
        self.token: str | None = None
        self.basic: tuple[str, str] | None = None
        self.allowed: tuple[int, float] | None = None  # requests, per seconds: more get 429 with Retry-After
        self.requests: list[Request] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Threads(("127.0.0.1", 0), _handler(self))
        self._scheme = "http"
        if certificate is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it; its port refuses connections from now on."""
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def host(self) -> str:
        """Return its host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"{self._scheme}://{self.host}{path}"

    @property
    def posts(self) -> list[Request]:
        """Return what was written to `/hook` and taken, in order."""
        return [
            one for one in self.requests if one.path.startswith("/hook") and one.status is not None and one.status < 300
        ]

    def asked(self, path: str = "") -> list[Request]:
        """Return the requests for a path."""
        return [one for one in self.requests if one.path.startswith(path)]

    def fail(self, kind: str, value: Any = None, *, times: int = 1, path: str = "", skip: int = 0, **more: Any) -> None:
        """Let the next `times` requests for a path go wrong, after `skip` that do not.

        - `status`: answer with this status; `headers` such as {"Retry-After": "1"}.
        - `drop`: hang up before an answer; what was posted is not kept.
        - `hang_up_after`: do what was asked, then hang up: whoever asked can't know. What was posted counts as taken.
        - `cut`: tell the whole length, send half of the body and hang up.
        - `slow`: send nothing until the server stops, or for `value` seconds.
        - `garbage`: send bytes that are no HTTP. `body`: send this body, bytes, instead.
        """
        assert kind in FAULTS, kind
        with self._lock:
            self._faults.append(Fault(kind, value, times, path, skip, **more))

    def heal(self) -> None:
        """Forget all faults that are still due."""
        with self._lock:
            self._faults.clear()

    def fault(self, path: str) -> Fault | None:
        """Return what is to go wrong with this request, and count it."""
        with self._lock:
            for one in self._faults:
                if not path.startswith(one.path) or not one.times:
                    continue
                if one.skip:
                    one.skip -= 1
                    continue
                one.times -= 1
                return one
            return None

    def keep(self, request: Request) -> None:
        """Log a request."""
        with self._lock:
            self.requests.append(request)

    def refusal(self, headers: Mapping[str, str], at: float) -> Answer | None:
        """Return why a request is refused."""
        given = headers.get("Authorization", "")
        if self.token is not None and given != f"Bearer {self.token}":
            return Answer(401, b'{"message": "bad credentials ' + given.encode() + b'"}')
        if self.basic is not None and given != f"Basic {base64.b64encode(':'.join(self.basic).encode()).decode()}":
            return Answer(403, b'{"message": "forbidden"}')
        if self.allowed is not None:
            most, seconds = self.allowed
            recent = [one.at for one in list(self.requests) if at - one.at < seconds and one.status != 429]
            if len(recent) >= most:
                return Answer(429, b"{}", (("Retry-After", str(max(0, round(seconds)))),))
        return None

    def wait(self, seconds: float | None) -> None:
        """Wait, unless the server stops."""
        self._stopping.wait(seconds)

    def answer(self, method: str, path: str, query: Mapping[str, Any]) -> Answer:
        """Return the answer of the API."""
        rows = self.records
        if "since" in query:
            since = str(query["since"])
            rows = [row for row in rows if str(row[self.since_field]) >= since]
            rows = [row for row in rows if not self.is_exclusive or str(row[self.since_field]) != since]
        style = STYLES.get(path)
        if style is None:
            return Answer(200, b'{"ok": true}') if path.startswith("/hook") and method != "GET" else Answer(404, b"{}")
        return style(self, rows, query)

    def packed(self, answer: Answer, headers: Mapping[str, str]) -> Answer:
        """Return an answer with its ETag, or 304, or zipped."""
        more: list[tuple[str, str]] = [*answer.headers]
        body = answer.body
        if self.has_etags and answer.status == 200:
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            more.append(("ETag", tag))
            if headers.get("If-None-Match") == tag:
                return Answer(304, b"", tuple(more))
        if self.is_packed:
            body = gzip.compress(body)
            more.append(("Content-Encoding", "gzip"))
        return Answer(answer.status, body, tuple(more))


def _all(_: Server, rows: list[Any], __: Mapping[str, Any]) -> Answer:
    return Answer(body=json.dumps(rows).encode())


def _page(server: Server, rows: list[Any], query: Mapping[str, Any]) -> Answer:
    size = int(query.get("per_page", server.size))
    start = (int(query.get("page", 1)) - 1) * size
    body = {"data": {"items": rows[start : start + size]}, "more": start + size < len(rows)}
    return Answer(body=json.dumps(body).encode())


def _offset(server: Server, rows: list[Any], query: Mapping[str, Any]) -> Answer:
    start, size = int(query.get("offset", 0)), int(query.get("limit", server.size))
    return Answer(body=json.dumps({"items": rows[start : start + size], "total": len(rows)}).encode())


def _cursor(server: Server, rows: list[Any], query: Mapping[str, Any]) -> Answer:
    start, size = int(str(query.get("cursor", "c0"))[1:]), int(query.get("limit", server.size))
    after = start + size
    following = f"c{after}" if after < len(rows) else ("c0" if server.is_endless else None)
    return Answer(body=json.dumps({"items": rows[start:after], "meta": {"next_cursor": following}}).encode())


def _following(server: Server, path: str, rows: list[Any], query: Mapping[str, Any]) -> tuple[list[Any], str | None]:
    size = int(query.get("per_page", server.size))
    number = int(query.get("page", 1))
    some = rows[(number - 1) * size : number * size]
    more = {**query, "page": str(number + 1)}
    return some, server.url(f"{path}?{urlencode(more)}") if number * size < len(rows) else None


def _link(server: Server, rows: list[Any], query: Mapping[str, Any]) -> Answer:
    some, following = _following(server, "/link", rows, query)
    link = (("Link", f'<{server.url("/link")}>; rel="first", <{following}>; rel="next"'),) if following else ()
    return Answer(200, json.dumps(some).encode(), link)


def _next(server: Server, rows: list[Any], query: Mapping[str, Any]) -> Answer:
    some, following = _following(server, "/next", rows, query)
    return Answer(body=json.dumps({"results": some, "next": following}).encode())


def _lines(_: Server, rows: list[Any], __: Mapping[str, Any]) -> Answer:
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return Answer(body=body, headers=(("Content-Type", "application/x-ndjson"),))


def _objects(_: Server, rows: list[Any], __: Mapping[str, Any]) -> Answer:
    return Answer(body=json.dumps({str(row["id"]): row for row in rows}).encode())


def _moved(_: Server, __: list[Any], query: Mapping[str, Any]) -> Answer:
    return Answer(int(query.get("status", 302)), b"", (("Location", str(query["to"])),))


STYLES: dict[str, Callable[[Server, list[Any], Mapping[str, Any]], Answer]] = {
    "/all": _all,
    "/page": _page,
    "/offset": _offset,
    "/cursor": _cursor,
    "/link": _link,
    "/next": _next,
    "/lines": _lines,
    "/objects": _objects,
    "/moved": _moved,
}


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a connection that is kept open ends with its client

    def handle_error(self, *_: Any) -> None:
        """Say nothing: who hangs up does so on purpose."""


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def _serve(self) -> None:
            at = time.monotonic()
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            fault = server.fault(url.path)
            answer = None if fault is not None and fault.kind != "cut" else server.refusal(self.headers, at)
            if fault is not None and fault.kind == "status":
                answer = Answer(int(fault.value), b'{"message": "as asked"}', tuple(fault.headers.items()))
            elif fault is not None and fault.kind == "body":
                answer = Answer(200, fault.value, tuple(fault.headers.items()))
            elif answer is None:
                given = json.loads(body) if body and not url.path.startswith("/hook") else {}
                answer = server.packed(server.answer(self.command, url.path, {**query, **given}), self.headers)
            unheard = fault is not None and fault.kind in ("drop", "slow", "garbage")
            kept = dict(self.headers.items())
            server.keep(Request(self.command, url.path, query, kept, body, at, None if unheard else answer.status))
            self._send(answer, fault)

        def _send(self, answer: Answer, fault: Fault | None) -> None:
            kind = fault.kind if fault is not None else None
            if kind == "slow":
                server.wait(fault.value if fault is not None else None)
            if kind == "garbage":
                self.wfile.write(b"\x00\xffthis is no HTTP\r\n\r\n")
            if kind in ("drop", "slow", "garbage", "hang_up_after"):
                self._hang_up()
                return
            self.send_response_only(answer.status)
            named = {name.lower() for name, _ in answer.headers}
            more = (
                ("Date", self.date_time_string()),
                ("Content-Type", server.content_type),
                ("Content-Length", str(len(answer.body))),
            )
            for name, value in (*answer.headers, *(one for one in more if one[0].lower() not in named)):
                self.send_header(name, value)
            self.end_headers()
            if kind == "cut":
                self.wfile.write(answer.body[: len(answer.body) // 2])
                self._hang_up()
            elif answer.status not in (204, 304):
                self.wfile.write(answer.body)

        def _hang_up(self) -> None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve

    return Handler


def certificate(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1, with its key, that only those trust who are told to."""
    key, found = folder / "key.pem", folder / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words, "-keyout", key, "-out", found], check=True, capture_output=True)
    found.write_bytes(found.read_bytes() + key.read_bytes())
    return found


def unused_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
