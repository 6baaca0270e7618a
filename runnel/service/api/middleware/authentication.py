"""The token that every request needs, but for whether the service is alive."""

import hashlib
import time
from typing import TYPE_CHECKING

from anyio import to_thread
from fastapi import Request

from runnel.errors import Mistake, RunnelError
from runnel.lake.control import tokens
from runnel.lake.control.tokens import Token
from runnel.service.api.middleware.token_scope import check_path
from runnel.service.api.parameters import EVENTS, PREFIX
from runnel.service.api.problem_json import told

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from runnel.lake.catalog.database import Database

OPEN = frozenset({"/health", "/ready"})
_KNOWN_SECONDS, _MOST_KNOWN = 1.0, 1000
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKENS = f"{PREFIX}/tokens"
_ASKING = frozenset({f"{PREFIX}/query"})  # reads, though it is posted


class Guard:
    """Lets through who has a token, and only to what it may do; what comes after finds it in the request's state."""

    def __init__(self, app: "ASGIApp", db: "Database") -> None:
        self._app = app
        self._db = db
        self._known: dict[str, tuple[Token, float]] = {}  # by hash: who pushes events, and since when that is known

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            token = await self._token(scope)
            _check(token, scope)
            await self._check_limits(token, scope)
        except _Refused as refused:
            await told(refused, refused.status, refused.headers)(scope, receive, send)
            return
        except RunnelError as error:
            await told(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = token
        await self._app(scope, receive, send)

    async def _token(self, scope: "Scope") -> Token:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        kind, _, secret = given.partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise _Refused(401, "TOKEN_MISSING", "this needs a token", "send the header Authorization: Bearer TOKEN")
        if EVENTS.fullmatch(scope["path"]):
            found = await self._often(secret.strip())
        else:
            found = await to_thread.run_sync(self._verified, secret.strip())
        if found is None:
            fix = "`runnel token create NAME` makes one"
            raise _Refused(401, "TOKEN_INVALID", "this token is not known, or was revoked", fix)
        return found

    def _verified(self, secret: str) -> Token | None:
        return self._db.read(lambda connection: tokens.verify(connection, secret))

    async def _often(self, secret: str) -> Token | None:
        """Return a token that comes with very many requests: what is known of it holds for a second."""
        hashed = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        known, since = self._known.get(hashed, (None, 0.0))
        if known is not None and time.monotonic() - since < _KNOWN_SECONDS:
            return known
        found = await to_thread.run_sync(self._verified, secret)
        if found is not None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[hashed] = (found, time.monotonic())
        return found

    async def _check_limits(self, token: Token, scope: "Scope") -> None:
        if token.is_limited:
            query = scope["query_string"].decode("latin-1")
            await to_thread.run_sync(check_path, self._db, token, scope["method"], scope["path"], query)


class _Refused(Mistake):
    """A request that is not let through."""

    def __init__(self, status: int, code: str, what: str, fix: str) -> None:
        super().__init__(code, what, fix=fix)
        self.status = status
        wrong = ', error="invalid_token"' if code == "TOKEN_INVALID" else ""
        self.headers = {"WWW-Authenticate": f'Bearer realm="runnel"{wrong}'} if status == 401 else {}


def _check(token: Token, scope: "Scope") -> None:
    """Refuse what a token of scope `read` may not do, and what only scope `admin` may."""
    if scope["path"].startswith(_TOKENS) and token.scope != tokens.ADMIN:
        what = f"the token `{token.name}` may not make, see or revoke tokens"
        raise _Refused(403, "TOKEN_FORBIDDEN", what, f"use a token of scope {tokens.ADMIN}")
    if token.scope != tokens.READ or scope["method"] in _READING or scope["path"] in _ASKING:
        return
    what = f"the token `{token.name}` may only read"
    raise _Refused(403, "TOKEN_FORBIDDEN", what, f"use a token of scope {tokens.WRITE} or {tokens.ADMIN}")


def caller(request: Request) -> Token:
    """Return the token that a request came with."""
    found = request.state.caller
    assert isinstance(found, Token)
    return found
