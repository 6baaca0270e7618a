"""The connection to a service: who asks, paging, and asking again where a connection was lost.

Whatever changes something carries a key, so that it is done once however often it is asked. A service that was there
and goes away is waited for.
"""

import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from runnel.client.remote.problem import is_away, not_runnel, raised
from runnel.errors import RunnelError, Unreachable

PATIENCE_SECONDS = 120.0
_CONNECT_SECONDS = 10.0
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
_PREFIX = "/api/v1"
_KEEP_ALIVE = (("SO_KEEPALIVE", 1), ("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
Params = Mapping[str, str | int | None]


class Connection:
    """A service, with the token that opens it. `patience_seconds` is how long one that went away is waited for."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.patience_seconds = PATIENCE_SECONDS
        self._is_known = False  # that it was there
        self._session = requests.Session()
        self._session.auth = _Bearer(token)  # no header, which a ~/.netrc would replace
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter())

    def get(self, path: str, **params: str | int | None) -> Any:
        """Return what a GET answers."""
        return self._json(self.ask("GET", path, params=params))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return what a POST answers, which is done once."""
        headers = {"Idempotency-Key": secrets.token_urlsafe(24)}
        return self._json(self.ask("POST", path, json=dict(body or {}), headers=headers))

    def pages(self, path: str, cursor: str, most: int | None = None, **params: str | int | None) -> Iterator[Any]:
        """Yield the items of a list, page by page; at most so many."""
        left = most
        while left is None or left > 0:
            limit = 1000 if left is None else min(left, 1000)
            page = self.get(path, **params, limit=limit)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            if page["next"] is None:
                return
            params[cursor] = page["next"]

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        data: Callable[[], Any] | None = None,
        **options: Any,
    ) -> requests.Response:
        """Return an answer that is no error; `data` opens the body anew for each try."""
        wanted = {name: value for name, value in (params or {}).items() if value is not None}
        until = time.monotonic() + self.patience_seconds
        for pause in _pauses():
            try:
                body: dict[str, Any] = {} if data is None else {"data": data()}
                how: dict[str, Any] = {"timeout": (_CONNECT_SECONDS, None), "allow_redirects": False}
                answer = self._session.request(method, self._place(path), params=wanted, **how, **body, **options)
            except requests.RequestException as error:
                self._wait(pause, until, self.lost(error), error)
                continue
            if answer.status_code < 300:
                return answer
            error_told = raised(self.url, answer)
            if is_away(answer):
                self._wait(pause, until, error_told)
            elif error_told.code == "KEY_UNDER_WAY":  # a try that was lost is still being carried out
                time.sleep(pause)
            else:
                raise error_told
        raise AssertionError("unreachable")

    def lost(self, error: Exception) -> Unreachable:
        """Return the error for a service that does not answer."""
        what = f"{self.url} does not answer: {_reason(error)}"
        return Unreachable("REMOTE_UNREACHABLE", what, fix="check the address, and that it is up: `runnel up`")

    def check(self) -> Mapping[str, Any]:
        """Make sure that a Runnel service is there that the token opens, and return what it may do there."""
        found = self.get("/token")
        if not isinstance(found, dict) or not {"project", "version"} <= set(found):
            raise not_runnel(self.url, "it does not say which project it serves")
        self._is_known = True
        return found

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _json(self, answer: requests.Response) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            told = f"{answer.headers.get('content-type', 'something')} where JSON should be"
            raise not_runnel(self.url, told) from error

    def _place(self, path: str) -> str:
        return f"{self.url}{_PREFIX}{path}"

    def _wait(self, pause: float, until: float, lost: RunnelError, cause: Exception | None = None) -> None:
        """Wait a moment for a service that was there, for as long as it is worth it."""
        if not self._is_known or time.monotonic() + pause > until:
            raise lost from cause
        time.sleep(pause)


class _Bearer(AuthBase):
    """Sends the token; `requests` leaves it out where it is sent on to another host."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with the token."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Adapter(HTTPAdapter):
    """Lets the system notice that the other side is gone, however long an answer takes."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the pool with sockets that are kept alive."""
        levels = {"S": socket.SOL_SOCKET, "T": socket.IPPROTO_TCP}
        known = [(name, value) for name, value in _KEEP_ALIVE if hasattr(socket, name)]
        chosen = [(levels[name[0]], getattr(socket, name), value) for name, value in known]
        plain = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        super().init_poolmanager(*args, **options, socket_options=plain + chosen)


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _reason(error: Exception) -> str:
    """Return what went wrong in a few words, without the objects of a library."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            return found.strerror.lower()
        reason = getattr(found, "reason", None)
        if not isinstance(reason, BaseException):
            reason = next((one for one in found.args if isinstance(one, BaseException)), None)
        found = reason if reason is not None else found.__cause__ or found.__context__
    return "the connection was lost" if isinstance(error, requests.ConnectionError) else type(error).__name__
