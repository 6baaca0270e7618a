"""Ask an API: with a pause between requests, again where trouble may pass, and never with secrets to another host."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from runnel import __version__
from runnel.connect.feed.protocol import Progress
from runnel.connect.http import http_errors
from runnel.connect.http.authentication import Access, joined
from runnel.connect.http.http_errors import Trouble
from runnel.connect.http.rate_limit import backoff, held, hold, slot
from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError, Unreachable

Pause = Callable[[float], object]
MOST_BYTES = 512 * 2**20
_CHUNK = 64 * 1024
_MOST_TIMEOUTS = 20  # within which an answer must be whole: one that comes byte by byte would else never end
_MOST_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_OPEN = "where what is sent can be read by others"
_START = 400
logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)  # below that it logs addresses, with secrets in them


@dataclass(frozen=True)
class Ask:
    """A request: the API with some parameters, or a next page's address."""

    params: Mapping[str, Any] = field(default_factory=dict)
    link: tuple[str, str] | None = None  # a link, and the address of the answer that it stands in
    headers: Mapping[str, str] = field(default_factory=dict)
    is_glance: bool = False  # whether only the headers of the answer are wanted


@dataclass(frozen=True)
class Answer:
    """A whole answer. `url` may hold secrets: it is for asking on, never for people."""

    status: int
    url: str = field(repr=False)
    headers: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)


class Client:
    """Asks one API. To be closed."""

    def __init__(self, source: Source, origin: Http, tell: Progress, pause: Pause = time.sleep) -> None:
        """Reveal what proves who asks; nothing is asked yet."""
        self._at = str(source.place)
        self._origin = origin
        self._tell = tell
        self._pause = pause
        self.access = Access(source, origin)
        self._session = requests.Session()
        self._session.auth = _as_it_is  # else the file .netrc would be asked for a password
        self._session.headers.update({"User-Agent": f"runnel/{__version__}", "Accept": "application/json, */*;q=0.5"})

    def close(self) -> None:
        """Close its connections."""
        self._session.close()

    def ask(self, ask: Ask) -> Answer:
        """Return the whole answer to a request, tried again where trouble may pass: nobody else need try again."""
        number, host = 0, self.access.host
        if (seconds := held(host, time.monotonic())) is not None:
            raise _tried(http_errors.asks_to_wait(seconds, self.access.told, self._at).error)
        while True:
            found = self._once(ask)
            if isinstance(found, Answer):
                return found
            if found.pause is not None and not found.may_pass:
                hold(host, found.pause, time.monotonic())  # whoever runs it again before does not ask
            if not found.may_pass or number >= self._origin.retries:
                raise _tried(found.error)
            self._wait(backoff(number) if found.pause is None else found.pause, f"again: {found.error.what}")
            number += 1

    def _wait(self, seconds: float, why: str) -> None:
        """Wait; whoever cancels need not."""
        while seconds > 0:
            self._tell(why, 0, None)
            self._pause(min(seconds, 1.0))
            seconds -= 1.0

    def _once(self, ask: Ask) -> Answer | Trouble:
        """Ask once, over redirects."""
        access, method = self.access, self._origin.method
        url = access.first(ask.params) if ask.link is None else access.following(*ask.link)
        if url is None:
            what = f"{access.told} names a next page that has no address of HTTP"
            return Trouble(Mistake("HTTP_PAGING", what, at=self._at, fix="see where it stands: next=..."))
        if urlsplit(access.url).scheme == "https" and urlsplit(url).scheme == "http":
            return http_errors.of_redirect(f"for its next page, {_OPEN}", access.told, self._at)
        for _ in range(_MOST_REDIRECTS):
            self._wait(slot(access.host, self._origin.rate, time.monotonic()), "waiting, by `rate`")
            found = self._sent(method, url, ask)
            if isinstance(found, Trouble) or found.status not in _REDIRECTS:
                return found
            target, told = joined(url, found.headers.get("Location", "")), access.shown(url)
            if target is None:
                return http_errors.of_redirect("but does not say where to", told, self._at)
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
                return http_errors.of_redirect(_OPEN, told, self._at)
            if method == "POST" and found.status in (301, 302, 303):
                return http_errors.of_redirect(f"where a POST does not go (status {found.status})", told, self._at)
            url = target
        return http_errors.of_redirect(f"more than {_MOST_REDIRECTS} times", access.told, self._at)

    def _sent(self, method: str, url: str, ask: Ask) -> Answer | Trouble:
        access = self.access
        headers = {**access.headers(url), **ask.headers}
        body = access.body(url, ask.params)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        seconds = self._origin.timeout_seconds
        try:
            with self._session.request(
                method, url, headers=headers, data=body, timeout=seconds, allow_redirects=False, stream=True
            ) as response:
                return self._read(response, url, ask)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError) as error:
            return http_errors.of_failure(error, access, self._origin, self._at)

    def _read(self, response: requests.Response, url: str, ask: Ask) -> Answer | Trouble:
        status, headers = response.status_code, response.headers
        if status in _REDIRECTS or (ask.is_glance and (status < 300 or status == 304)):
            return Answer(status, url, headers)
        seconds = _MOST_TIMEOUTS * self._origin.timeout_seconds
        body = self._body(response, _START if status >= 300 else MOST_BYTES, seconds)
        if body is None:
            return http_errors.endless(self.access.shown(url), seconds, self._at)
        if status >= 300:
            start = body[:_START].decode(errors="replace")
            return http_errors.of_status(status, headers, start, url, self.access, self._at)
        if len(body) > MOST_BYTES:
            return http_errors.too_large(self.access.shown(url), MOST_BYTES, self._at)
        return Answer(status, url, headers, body)

    def _body(self, response: requests.Response, most: int, seconds: float) -> bytes | None:
        """Return a body, or more than `most` bytes of it; None where it goes on for longer than `seconds`."""
        chunks: list[bytes] = []
        size, told_at = 0, time.monotonic()
        until = told_at + seconds
        # What is there is taken as it comes: to wait for a whole chunk may take as many timeouts as it has bytes.
        while size <= most and (chunk := response.raw.read1(_CHUNK, decode_content=True)):
            chunks.append(chunk)
            size += len(chunk)
            now = time.monotonic()
            if now > until:
                return None
            if now > told_at + 1.0:
                self._tell("reading an answer", 0, None)
                told_at = now
        return b"".join(chunks)


def _tried(error: RunnelError) -> RunnelError:
    """Return an error that says that whoever raises it has tried again already."""
    if isinstance(error, Unreachable):
        error.is_tried = True
    return error


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
