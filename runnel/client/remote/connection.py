"""The connection to a service: authentication, paging, and retries after a lost connection.

A request that changes something carries an idempotency key, so that it takes effect once however often it is sent. If
a service that was reached before becomes unreachable, requests wait for it.
"""

import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from runnel.backoff import FailedAttempt, call_with_backoff, sleep_after
from runnel.client.remote.problem import UNREACHABLE_CODE, build_error, not_runnel_error
from runnel.errors import Mistake, RunnelError, Unreachable

PATIENCE_SECONDS = 120.0
_CONNECT_SECONDS = 10.0
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  # after the first attempt, the second, and so on
_UNDER_WAY_CODE = "KEY_UNDER_WAY"  # an earlier attempt with the same key is still being executed
_PREFIX = "/api/v1"
_KEEP_ALIVE = (("SO_KEEPALIVE", 1), ("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
AUTHORITIES_VARIABLE = "RUNNEL_CA"
Params = Mapping[str, str | int | None]


class ServiceConnection:
    """A service and its token. `patience_seconds` is how long requests wait for a service that became unreachable."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.patience_seconds = PATIENCE_SECONDS
        self._was_reached = False  # whether the service was reached before
        self._session = requests.Session()
        self._authorities = _find_authorities()  # a PEM file
        self._session.auth = _BearerAuth(token)  # as auth, since a ~/.netrc would replace a header
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _KeepAliveAdapter())

    def get(self, path: str, **params: str | int | None) -> Any:
        """Send a GET, and return the JSON of its response."""
        return self._parse_json(self.send("GET", path, params=params))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST with an idempotency key, and return the JSON of its response."""
        headers = {"Idempotency-Key": secrets.token_urlsafe(24)}
        return self._parse_json(self.send("POST", path, json=dict(body or {}), headers=headers))

    def delete(self, path: str, **params: str | int | None) -> Any:
        """Send a DELETE with an idempotency key, and return the JSON of its response."""
        headers = {"Idempotency-Key": secrets.token_urlsafe(24)}
        return self._parse_json(self.send("DELETE", path, params=params, headers=headers))

    def iter_items(
        self, path: str, cursor: str, max_items: int | None = None, **params: str | int | None
    ) -> Iterator[Any]:
        """Yield the items of a list, page by page, at most `max_items`."""
        remaining = max_items
        while remaining is None or remaining > 0:
            limit = 1000 if remaining is None else min(remaining, 1000)
            page = self.get(path, **params, limit=limit)
            yield from page["items"]
            remaining = None if remaining is None else remaining - len(page["items"])
            if page["next"] is None:
                return
            params[cursor] = page["next"]

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        data: Callable[[], Any] | None = None,
        **options: Any,
    ) -> requests.Response:
        """Send a request, with retries, and return its response or raise; `data` opens the body for each attempt."""
        options["params"] = {name: value for name, value in (params or {}).items() if value is not None}
        deadline = time.monotonic() + self.patience_seconds

        def is_repeated(error: RunnelError) -> bool:
            return error.code == _UNDER_WAY_CODE or (self._was_reached and error.code == UNREACHABLE_CODE)

        def wait(failed_attempt: FailedAttempt[RunnelError]) -> None:
            is_late = time.monotonic() + failed_attempt.pause_seconds > deadline
            if is_late and failed_attempt.error.code == UNREACHABLE_CODE:
                raise failed_attempt.error
            sleep_after(failed_attempt)

        return call_with_backoff(
            lambda: self._send_once(method, path, data, options),
            RunnelError,
            lambda number, _error: _PAUSES[min(number, len(_PAUSES)) - 1],
            is_repeated=is_repeated,
            wait=wait,
        )

    def unreachable_error(self, error: Exception) -> Unreachable:
        """Return the error for a service that does not answer."""
        what = f"{self.url} does not answer: {_describe_error(error)}"
        if isinstance(error, requests.exceptions.SSLError):
            fix = f"if its certificate is of your own authority, set {AUTHORITIES_VARIABLE} to the authority's PEM file"
            return Unreachable(UNREACHABLE_CODE, what, fix=fix)
        return Unreachable(
            UNREACHABLE_CODE, what, fix="check the address, and that the service is running: `runnel up` starts it"
        )

    def check_service(self) -> Mapping[str, Any]:
        """Check that a Runnel service answers and accepts the token, and return what the token allows."""
        token_info = self.get("/token")
        if not isinstance(token_info, dict) or not {"project", "version"} <= set(token_info):
            raise not_runnel_error(self.url, "it does not say which project it serves")
        self._was_reached = True
        return token_info

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _parse_json(self, response: requests.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            description = f"{response.headers.get('content-type', 'something')} instead of JSON"
            raise not_runnel_error(self.url, description) from error

    def _build_url(self, path: str) -> str:
        return f"{self.url}{_PREFIX}{path}"

    def _send_once(
        self, method: str, path: str, data: Callable[[], Any] | None, options: Mapping[str, Any]
    ) -> requests.Response:
        body: dict[str, Any] = {} if data is None else {"data": data()}
        request_options: dict[str, Any] = {"timeout": (_CONNECT_SECONDS, None), "allow_redirects": False}
        request_options["verify"] = self._authorities or True
        try:
            response = self._session.request(method, self._build_url(path), **request_options, **body, **options)
        except requests.RequestException as error:
            raise self.unreachable_error(error) from error
        if response.status_code >= 300:
            raise build_error(self.url, response)
        return response


class _BearerAuth(AuthBase):
    """Adds the token; `requests` omits it when it is redirected to another host."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with the token."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _KeepAliveAdapter(HTTPAdapter):
    """Enables TCP keep-alive, so that a dead peer is noticed however long an answer takes."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Create the pool with keep-alive sockets."""
        levels = {"S": socket.SOL_SOCKET, "T": socket.IPPROTO_TCP}
        supported = [(name, value) for name, value in _KEEP_ALIVE if hasattr(socket, name)]
        keep_alive_options = [(levels[name[0]], getattr(socket, name), value) for name, value in supported]
        base_options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        super().init_poolmanager(*args, **options, socket_options=base_options + keep_alive_options)


def _find_authorities() -> str | None:
    """Return the PEM file with the authorities to trust that the environment names; None for the usual ones."""
    path = os.environ.get(AUTHORITIES_VARIABLE)
    if path and not Path(path).is_file():
        fix = f"set {AUTHORITIES_VARIABLE} to a PEM file with certificates of authorities, or unset it"
        raise Mistake("OPEN_AUTHORITIES", f"{AUTHORITIES_VARIABLE} names {path}, which is no file", fix=fix)
    return path or None


def _describe_error(error: Exception) -> str:
    """Describe an error in a few words, without the objects of a library."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        reason = getattr(cause, "reason", None)
        if not isinstance(reason, BaseException):
            reason = next((argument for argument in cause.args if isinstance(argument, BaseException)), None)
        cause = reason if reason is not None else cause.__cause__ or cause.__context__
    return "the connection was lost" if isinstance(error, requests.ConnectionError) else type(error).__name__
