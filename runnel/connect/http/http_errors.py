"""Turn failed requests into errors that say what to do, and tell whether a failure is transient.

Messages of libraries are never passed on: they contain full URLs with secrets.
"""

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runnel.connect.http.authentication import ApiAccess
from runnel.connect.http.rate_limit import MAX_WAIT_SECONDS, parse_retry_after
from runnel.declare.model.endpoints import Http
from runnel.errors import Mistake, RunnelError, Unreachable, join_names
from runnel.names import quote_value

_BUSY_STATUSES = (408, 425, 429)
_PERMANENT_STATUSES = (501, 505)  # server errors that a retry does not change
_INVALID_URL_ERRORS = ("InvalidURL", "InvalidSchema", "MissingSchema", "LocationParseError", "LocationValueError")
_LATER_FIX = "check that it is running and that the address is right; then run it again"


@dataclass(frozen=True)
class RequestFailure:
    """An error, whether a retry may help, and how many seconds the API asks to wait before one."""

    error: RunnelError
    is_transient: bool = False
    retry_after_seconds: float | None = None


def from_exception(error: BaseException, access: ApiAccess, origin: Http, at: str) -> RequestFailure:
    """Return the failure of a request that got no complete response."""
    chain = list(_walk_causes(error))
    untrusted = next((cause for cause in chain if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        what = f"the certificate of {access.host} is not trusted: {untrusted.verify_message}"
        return RequestFailure(
            RunnelError("HTTP_UNTRUSTED", what, at=at, fix="name its authority: export REQUESTS_CA_BUNDLE=...")
        )
    if any(isinstance(cause, UnicodeError) or type(cause).__name__ in _INVALID_URL_ERRORS for cause in chain):
        what = f"{access.display_url} is not an HTTP address"
        return RequestFailure(Mistake("HTTP_ADDRESS", what, at=at, fix="correct the address in rn.http(...)"))
    reason, fix = _explain_failure(chain, origin)
    return RequestFailure(
        Unreachable("HTTP_UNREACHABLE", f"{access.display_url} does not answer: {reason}", at=at, fix=fix), True
    )


def from_status(
    status: int, headers: Mapping[str, str], body_start: str, url: str, access: ApiAccess, *, at: str
) -> RequestFailure:
    """Return the failure of a response with an error status; `body_start` is the beginning of its body."""
    display_url = access.redact_url(url)
    wait_seconds = parse_retry_after(headers)
    excerpt = (
        f": {access.hide_secrets(quote_value(access.hide_secrets(body_start), 200))}" if body_start.strip() else ""
    )
    if (
        status in _BUSY_STATUSES
        or (status >= 500 and status not in _PERMANENT_STATUSES)
        or (status == 403 and wait_seconds is not None)
    ):
        return _transient_failure(status, wait_seconds, excerpt, display_url, at)
    if status in (401, 403):
        what = f"{display_url} denies access (status {status}){excerpt}"
        return RequestFailure(RunnelError("HTTP_DENIED", what, at=at, fix=_suggest_credentials(access, url)))
    if status in (404, 410):
        what = f"there is nothing at {display_url} (status {status})"
        return RequestFailure(Mistake("HTTP_NOT_FOUND", what, at=at, fix="correct the address in rn.http(...)"))
    what = f"{display_url} refuses the request (status {status}){excerpt}"
    return RequestFailure(Mistake("HTTP_REFUSED", what, at=at, fix="correct params, headers or json in rn.http(...)"))


def refused_redirect(reason: str, display_url: str, at: str) -> RequestFailure:
    """Return the failure of a redirect that is not followed."""
    fix = "correct the address in rn.http(...)"
    return RequestFailure(Mistake("HTTP_REDIRECT", f"{display_url} redirects {reason}", at=at, fix=fix))


def too_large(display_url: str, max_bytes: int, at: str) -> RequestFailure:
    """Return the failure of a response that is too large to hold in memory."""
    what = f"an answer of {display_url} is larger than {max_bytes // 2**20} MB"
    return RequestFailure(Mistake("HTTP_TOO_LARGE", what, at=at, fix="ask for it in pages: paging=..., size=..."))


def too_slow(display_url: str, seconds: float, at: str) -> RequestFailure:
    """Return the failure of a response that arrives too slowly. It is not retried: a retry would take as long."""
    what = f"an answer of {display_url} does not end: it has been arriving for {seconds:g} s"
    fix = "run it again later, ask for smaller pages: size=..., or wait longer: timeout=..."
    return RequestFailure(Unreachable("HTTP_UNREACHABLE", what, at=at, fix=fix))


def asks_to_wait(seconds: float, display_url: str, at: str) -> RequestFailure:
    """Return the failure of an API that asks to wait for longer than a run waits."""
    what, fix = (
        f"{display_url} asks to wait {seconds:,.0f} s",
        'run it again then; send fewer requests: rate="1 per second"',
    )
    return RequestFailure(Unreachable("HTTP_BUSY", what, at=at, fix=fix), retry_after_seconds=seconds)


def _transient_failure(
    status: int, wait_seconds: float | None, excerpt: str, display_url: str, at: str
) -> RequestFailure:
    what = f"{display_url} is too busy" if status in _BUSY_STATUSES else f"{display_url} failed"
    if wait_seconds is not None and wait_seconds > MAX_WAIT_SECONDS:
        return asks_to_wait(wait_seconds, display_url, at)
    code = "HTTP_BUSY" if status in _BUSY_STATUSES else "HTTP_FAILED"
    fix = 'send fewer requests: rate="1 per second"' if status in _BUSY_STATUSES else "run it again later"
    return RequestFailure(Unreachable(code, f"{what} (status {status}){excerpt}", at=at, fix=fix), True, wait_seconds)


def _suggest_credentials(access: ApiAccess, url: str) -> str:
    if not access.is_own_host(url):
        return f"this is not the host that was named ({access.host}): no secrets are sent there"
    names = access.secret_names()
    if not names:
        return 'authenticate: token=rn.secret("API_TOKEN")'
    verb = "holds" if len(names) == 1 else "hold"
    return f"check that {join_names(names)} {verb} what the API gave you: export {names[0]}=..."


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all its causes, however they are attached to it."""
    pending, seen_ids = [error], set[int]()
    while pending:
        cause = pending.pop(0)
        if id(cause) in seen_ids:
            continue
        seen_ids.add(id(cause))
        yield cause
        related = (*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__)
        pending.extend(candidate for candidate in related if isinstance(candidate, BaseException))


def _explain_failure(chain: list[BaseException], origin: Http) -> tuple[str, str]:
    names = [type(cause).__name__ for cause in chain]
    for cause in chain:
        if isinstance(cause, socket.gaierror):
            return "its host name is unknown", _LATER_FIX
        if isinstance(cause, http.client.IncompleteRead):
            return "its answer is incomplete", "run it again"
        if isinstance(cause, http.client.RemoteDisconnected):
            return "it closed the connection", _LATER_FIX
        if isinstance(cause, http.client.BadStatusLine):
            return "its answer is not HTTP", _LATER_FIX
        if isinstance(cause, ConnectionRefusedError):
            return "it refuses the connection", _LATER_FIX
    if any("Timeout" in name or name == "timeout" for name in names):
        return f"nothing arrived for {origin.timeout_seconds:g} s", "run it again later, or wait longer: timeout=..."
    if "ProxyError" in names:
        return "the proxy refuses", "check HTTP_PROXY and HTTPS_PROXY"
    if "ContentDecodingError" in names or "DecodeError" in names:
        return "its compressed answer is damaged", "run it again"
    system_message = next((cause.strerror for cause in chain if isinstance(cause, OSError) and cause.strerror), None)
    return system_message.lower() if isinstance(system_message, str) else "the connection was lost", _LATER_FIX
