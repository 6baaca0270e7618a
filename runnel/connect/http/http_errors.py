"""What can go wrong between an API and us, told so that its reader knows what to do, and whether it may pass by itself.

No text of a library is passed on: theirs hold whole addresses, with the secrets in them.
"""

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runnel.connect.http.authentication import Access
from runnel.connect.http.rate_limit import LONGEST_SECONDS, retry_after
from runnel.declare.model.endpoints import Http
from runnel.errors import Mistake, RunnelError, Unreachable, listed
from runnel.names import shown

_BUSY = (408, 425, 429)
_NEVER = (501, 505)  # of those from 500 on that trying again does not change
_NO_ADDRESS = ("InvalidURL", "InvalidSchema", "MissingSchema", "LocationParseError", "LocationValueError")
_LATER = "see that it runs and that the address is right; then run it again"


@dataclass(frozen=True)
class Trouble:
    """An error, whether it may pass, and how many seconds the API asks to wait before."""

    error: RunnelError
    may_pass: bool = False
    pause: float | None = None


def of_failure(error: BaseException, access: Access, origin: Http, at: str) -> Trouble:
    """Return the trouble of a request that got no whole answer."""
    chain = list(_chain(error))
    untrusted = next((one for one in chain if isinstance(one, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        what = f"the certificate of {access.host} is not trusted: {untrusted.verify_message}"
        return Trouble(
            RunnelError("HTTP_UNTRUSTED", what, at=at, fix="name its authority: export REQUESTS_CA_BUNDLE=...")
        )
    if any(isinstance(one, UnicodeError) or type(one).__name__ in _NO_ADDRESS for one in chain):
        what = f"{access.told} is no address of HTTP"
        return Trouble(Mistake("HTTP_ADDRESS", what, at=at, fix="correct the address in rn.http(...)"))
    why, fix = _why(chain, origin)
    return Trouble(Unreachable("HTTP_UNREACHABLE", f"{access.told} does not answer: {why}", at=at, fix=fix), True)


def of_status(status: int, headers: Mapping[str, str], start: str, url: str, access: Access, at: str) -> Trouble:
    """Return the trouble of an answer with a bad status; `start` is how its body starts."""
    told = access.shown(url)
    pause = retry_after(headers)
    said = f": {access.hide(shown(access.hide(start), 200))}" if start.strip() else ""
    if status in _BUSY or (status >= 500 and status not in _NEVER) or (status == 403 and pause is not None):
        return _passing(status, pause, said, told, at)
    if status in (401, 403):
        what = f"{told} denies access (status {status}){said}"
        return Trouble(RunnelError("HTTP_DENIED", what, at=at, fix=_keys(access, url)))
    if status in (404, 410):
        what = f"there is nothing at {told} (status {status})"
        return Trouble(Mistake("HTTP_NOT_FOUND", what, at=at, fix="correct the address in rn.http(...)"))
    what = f"{told} refuses what it was asked (status {status}){said}"
    return Trouble(Mistake("HTTP_REFUSED", what, at=at, fix="correct params, headers or json in rn.http(...)"))


def of_redirect(why: str, told: str, at: str) -> Trouble:
    """Return the trouble of a redirect that is not followed."""
    fix = "correct the address in rn.http(...)"
    return Trouble(Mistake("HTTP_REDIRECT", f"{told} sends us elsewhere, {why}", at=at, fix=fix))


def too_large(told: str, most: int, at: str) -> Trouble:
    """Return the trouble of an answer that no memory should hold."""
    what = f"an answer of {told} is larger than {most // 2**20} MB"
    return Trouble(Mistake("HTTP_TOO_LARGE", what, at=at, fix="ask for it in pages: paging=..., size=..."))


def endless(told: str, seconds: float, at: str) -> Trouble:
    """Return the trouble of an answer that comes so slowly that it does not end. To ask again would take as long."""
    what = f"an answer of {told} does not end: it came for {seconds:g} s"
    fix = "run it again later, ask for smaller pages: size=..., or wait longer: timeout=..."
    return Trouble(Unreachable("HTTP_UNREACHABLE", what, at=at, fix=fix))


def asks_to_wait(seconds: float, told: str, at: str) -> Trouble:
    """Return the trouble of an API that asks to be left alone for longer than a run waits."""
    what, fix = f"{told} asks to wait {seconds:,.0f} s", 'run it again then; ask less often: rate="1 per second"'
    return Trouble(Unreachable("HTTP_BUSY", what, at=at, fix=fix), pause=seconds)


def _passing(status: int, pause: float | None, said: str, told: str, at: str) -> Trouble:
    what = f"{told} is too busy for us" if status in _BUSY else f"{told} failed"
    if pause is not None and pause > LONGEST_SECONDS:
        return asks_to_wait(pause, told, at)
    code = "HTTP_BUSY" if status in _BUSY else "HTTP_FAILED"
    fix = 'ask less often: rate="1 per second"' if status in _BUSY else "run it again later"
    return Trouble(Unreachable(code, f"{what} (status {status}){said}", at=at, fix=fix), True, pause)


def _keys(access: Access, url: str) -> str:
    if not access.is_own(url):
        return f"this is not the host that was named ({access.host}): no secrets are sent there"
    names = access.secrets()
    if not names:
        return 'say who asks: token=rn.secret("API_TOKEN")'
    hold = "holds" if len(names) == 1 else "hold"
    return f"see that {listed(names)} {hold} what the API gave you: export {names[0]}=..."


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it was made of."""
    due, seen = [error], set[int]()
    while due:
        one = due.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        parts = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        due.extend(part for part in parts if isinstance(part, BaseException))


def _why(chain: list[BaseException], origin: Http) -> tuple[str, str]:
    names = [type(one).__name__ for one in chain]
    for one in chain:
        if isinstance(one, socket.gaierror):
            return "nobody knows its name", _LATER
        if isinstance(one, http.client.IncompleteRead):
            return "what it sent was cut off", "run it again"
        if isinstance(one, http.client.RemoteDisconnected):
            return "it hung up", _LATER
        if isinstance(one, http.client.BadStatusLine):
            return "what it sends is not HTTP", _LATER
        if isinstance(one, ConnectionRefusedError):
            return "it refuses the connection", _LATER
    if any("Timeout" in name or name == "timeout" for name in names):
        return f"nothing came for {origin.timeout_seconds:g} s", "run it again later, or wait longer: timeout=..."
    if "ProxyError" in names:
        return "the proxy refuses", "see what HTTP_PROXY and HTTPS_PROXY say"
    if "ContentDecodingError" in names or "DecodeError" in names:
        return "what it sent is packed, and broken", "run it again"
    told = next((one.strerror for one in chain if isinstance(one, OSError) and one.strerror), None)
    return told.lower() if isinstance(told, str) else "the connection was lost", _LATER
