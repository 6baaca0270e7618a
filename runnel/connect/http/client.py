"""Send requests to an API: rate-limited, retried if a failure is transient, never with secrets to another host."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from runnel import __version__
from runnel.backoff import call_with_backoff, doubling_pauses
from runnel.connect.http import http_errors
from runnel.connect.http.authentication import ApiAccess, resolve_link
from runnel.connect.http.declared_auth import use_declared_headers
from runnel.connect.http.http_errors import RequestFailure
from runnel.connect.http.rate_limit import block_host, blocked_seconds, reserve_slot
from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError, Unreachable
from runnel.model.progress import Progress

Sleep = Callable[[float], object]
MAX_BODY_BYTES = 512 * 2**20
_CHUNK_BYTES = 64 * 1024
_MAX_TIMEOUTS = 20  # a body must arrive within this many timeouts: one sent byte by byte would never end
_MAX_REDIRECTS = 10
_BACKOFF = doubling_pauses(0.5, 30.0)  # unless the API asks for another pause
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_UNENCRYPTED_REASON = "to an address without encryption"
_ERROR_EXCERPT_BYTES = 400
logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)  # at DEBUG it logs URLs, which hold secrets


@dataclass(frozen=True)
class ApiRequest:
    """A request: the API's URL with parameters, or the URL of a next page."""

    params: Mapping[str, Any] = field(default_factory=dict)
    link: tuple[str, str] | None = None  # a link, and the URL of the response that contains it
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_only: bool = False  # whether the body of a successful response is not read


@dataclass(frozen=True)
class ApiResponse:
    """A complete response. `url` may hold secrets: it is for further requests, never for messages."""

    status: int
    url: str = field(repr=False)
    headers: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)


class ApiClient:
    """Sends requests to one API. Must be closed."""

    def __init__(self, source: Source, origin: Http, report_progress: Progress, sleep: Sleep = time.sleep) -> None:
        """Reveal the credentials; nothing is sent yet."""
        self._at = str(source.place)
        self._origin = origin
        self._report_progress = report_progress
        self._sleep = sleep
        self.access = ApiAccess(source, origin)
        self._session = requests.Session()
        self._session.auth = use_declared_headers
        self._session.headers.update({"User-Agent": f"runnel/{__version__}", "Accept": "application/json, */*;q=0.5"})

    def close(self) -> None:
        """Close its connections."""
        self._session.close()

    def send(self, request: ApiRequest) -> ApiResponse:
        """Return the complete response to a request. Retries transient failures, so that callers need not."""
        host = self.access.host
        if (seconds := blocked_seconds(host, time.monotonic())) is not None:
            raise _mark_as_retried(http_errors.asks_to_wait(seconds, self.access.display_url, self._at).error)

        def send_once() -> ApiResponse:
            outcome = self._send_with_redirects(request)
            if isinstance(outcome, RequestFailure):
                raise _FailedRequest(outcome)
            return outcome

        try:
            return call_with_backoff(
                send_once,
                _FailedRequest,
                _choose_pause,
                is_repeated=lambda error: error.failure.is_transient,
                attempts=self._origin.retries + 1,
                wait=lambda attempt: self._wait(attempt.pause_seconds, f"again: {attempt.error.failure.error.what}"),
            )
        except _FailedRequest as error:
            failure = error.failure
        if failure.retry_after_seconds is not None and not failure.is_transient:
            block_host(host, failure.retry_after_seconds, time.monotonic())  # a run that starts before sends nothing
        raise _mark_as_retried(failure.error)

    def _wait(self, seconds: float, reason: str) -> None:
        """Wait in steps of one second, so that a run can be cancelled meanwhile."""
        while seconds > 0:
            self._report_progress(reason, 0, None)
            self._sleep(min(seconds, 1.0))
            seconds -= 1.0

    def _send_with_redirects(self, request: ApiRequest) -> ApiResponse | RequestFailure:
        """Send a request once and follow its redirects."""
        access, method = self.access, self._origin.method
        url = (
            access.build_first_url(request.params) if request.link is None else access.resolve_next_page(*request.link)
        )
        if url is None:
            what = f"{access.display_url} names a next page that has no HTTP address"
            return RequestFailure(Mistake("HTTP_PAGING", what, at=self._at, fix="name its path: next=..."))
        if urlsplit(access.url).scheme == "https" and urlsplit(url).scheme == "http":
            return http_errors.refused_redirect(
                f"for its next page {_UNENCRYPTED_REASON}", access.display_url, self._at
            )
        for _ in range(_MAX_REDIRECTS):
            self._wait(reserve_slot(access.host, self._origin.rate, time.monotonic()), "waiting, by `rate`")
            outcome = self._send_once(method, url, request)
            if isinstance(outcome, RequestFailure) or outcome.status not in _REDIRECT_STATUSES:
                return outcome
            target, display_url = resolve_link(url, outcome.headers.get("Location", "")), access.redact_url(url)
            if target is None:
                return http_errors.refused_redirect("without saying where to", display_url, self._at)
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
                return http_errors.refused_redirect(_UNENCRYPTED_REASON, display_url, self._at)
            if method == "POST" and outcome.status in (301, 302, 303):
                return http_errors.refused_redirect(
                    f"in a way that a POST can't follow (status {outcome.status})", display_url, self._at
                )
            url = target
        return http_errors.refused_redirect(f"more than {_MAX_REDIRECTS} times", access.display_url, self._at)

    def _send_once(self, method: str, url: str, request: ApiRequest) -> ApiResponse | RequestFailure:
        access = self.access
        headers = {**access.build_headers(url), **request.headers}
        body = access.build_body(url, request.params)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        seconds = self._origin.timeout_seconds
        try:
            with self._session.request(
                method, url, headers=headers, data=body, timeout=seconds, allow_redirects=False, stream=True
            ) as response:
                return self._read_response(response, url, request)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError) as error:
            return http_errors.from_exception(error, access, self._origin, self._at)

    def _read_response(
        self, response: requests.Response, url: str, request: ApiRequest
    ) -> ApiResponse | RequestFailure:
        status, headers = response.status_code, response.headers
        if status in _REDIRECT_STATUSES or (request.headers_only and (status < 300 or status == 304)):
            return ApiResponse(status, url, headers)
        seconds = _MAX_TIMEOUTS * self._origin.timeout_seconds
        body = self._read_body(response, _ERROR_EXCERPT_BYTES if status >= 300 else MAX_BODY_BYTES, seconds)
        if body is None:
            return http_errors.too_slow(self.access.redact_url(url), seconds, self._at)
        if status >= 300:
            excerpt = body[:_ERROR_EXCERPT_BYTES].decode(errors="replace")
            return http_errors.from_status(status, headers, excerpt, url, self.access, at=self._at)
        if len(body) > MAX_BODY_BYTES:
            return http_errors.too_large(self.access.redact_url(url), MAX_BODY_BYTES, self._at)
        return ApiResponse(status, url, headers, body)

    def _read_body(self, response: requests.Response, max_bytes: int, seconds: float) -> bytes | None:
        """Return a body, or a little more than `max_bytes` of it; None if it takes longer than `seconds`."""
        chunks: list[bytes] = []
        size, reported_at = 0, time.monotonic()
        deadline = reported_at + seconds
        # Read whatever has arrived: waiting for a full chunk may take as many timeouts as the chunk has bytes.
        while size <= max_bytes and (chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True)):
            chunks.append(chunk)
            size += len(chunk)
            now = time.monotonic()
            if now > deadline:
                return None
            if now > reported_at + 1.0:
                self._report_progress("reading an answer", 0, None)
                reported_at = now
        return b"".join(chunks)


class _FailedRequest(Exception):
    """Carries the failure of a request to the loop that repeats it."""

    def __init__(self, failure: RequestFailure) -> None:
        self.failure = failure


def _choose_pause(attempt_number: int, error: _FailedRequest) -> float:
    seconds = error.failure.retry_after_seconds
    return _BACKOFF(attempt_number, error) if seconds is None else seconds


def _mark_as_retried(error: RunnelError) -> RunnelError:
    """Mark an error as already retried, so that the run does not retry it again."""
    if isinstance(error, Unreachable):
        error.was_retried = True
    return error
