"""Authenticate every request by its token, except for the health checks.

The token is checked again while a request that reads lasts, so that a token that was revoked, has expired or was
rotated does not listen on.
"""

import hashlib
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread
from fastapi import Request

from runnel.errors import Mistake, RunnelError, join_names
from runnel.lake.control import tokens
from runnel.lake.control.tokens import Token
from runnel.service.api.middleware.token_scope import check_path
from runnel.service.api.middleware.token_uses import TokenUses
from runnel.service.api.middleware.token_watch import serve_while_valid
from runnel.service.api.parameters import API_PREFIX, EVENTS_PATH
from runnel.service.api.problem_json import hide_near_miss, to_problem_response

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from runnel.lake.catalog.database import Database

PUBLIC_PATHS = frozenset({"/health", "/ready"})
_CACHE_SECONDS, _MAX_CACHED = 1.0, 1000
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKENS_PATH = f"{API_PREFIX}/tokens"
_OWN_TOKEN_PATH = f"{API_PREFIX}/token"
_READ_ONLY_POSTS = frozenset({f"{API_PREFIX}/query"})  # a POST that only reads


class AuthenticationMiddleware:
    """Refuses requests without a token, or beyond its scope; later handlers find the token in the request's state."""

    def __init__(self, app: "ASGIApp", db: "Database") -> None:
        self._app = app
        self._db = db
        self._uses = TokenUses(db)
        self._cached_tokens: dict[str, tuple[Token, float]] = {}  # of event pushes: hash to token and time of its check

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http" or scope["path"] in PUBLIC_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            secret = _read_secret(scope)
            token = await self._authenticate(scope, secret)
            _check_scope(token, scope)
            await self._check_limits(token, scope)
        except _AccessDenied as denied:
            await to_problem_response(denied, denied.status, denied.headers)(scope, receive, send)
            return
        except RunnelError as error:
            hide_near_miss(error)  # of a limited token: it may be a name that the token may not see
            await to_problem_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = token
        self._uses.note_use(token)
        if _only_reads(scope):
            await serve_while_valid(self._app, partial(self._find_refusal, secret), scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _authenticate(self, scope: "Scope", secret: str) -> Token:
        if EVENTS_PATH.fullmatch(scope["path"]):
            token = await self._verify_cached(secret)
        else:
            token = await to_thread.run_sync(self._verify_token, secret)
        if token is None:
            raise await self._describe_refusal(secret)
        return token

    async def _find_refusal(self, secret: str) -> "Response | None":
        """Return the answer that refuses a token which was valid before; None if it still is, or if nobody knows."""
        with suppress(RunnelError):  # the database is unreachable
            if await self._verify_cached(secret) is None:
                denied = await self._describe_refusal(secret)
                return to_problem_response(denied, denied.status, denied.headers)
        return None

    async def _describe_refusal(self, secret: str) -> "_AccessDenied":
        work = partial(tokens.explain_refusal, secret=secret)
        mistake = await to_thread.run_sync(self._db.read, work)
        return _AccessDenied(401, mistake.code, mistake.what, mistake.fix or "")

    def _verify_token(self, secret: str) -> Token | None:
        return self._db.read(lambda connection: tokens.verify(connection, secret))

    async def _verify_cached(self, secret: str) -> Token | None:
        """Verify a token that comes with very many requests: the result is cached for a second."""
        hashed = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        cached_token, cached_at = self._cached_tokens.get(hashed, (None, 0.0))
        if cached_token is not None and time.monotonic() - cached_at < _CACHE_SECONDS:
            return cached_token
        token = await to_thread.run_sync(self._verify_token, secret)
        if token is not None:
            if len(self._cached_tokens) > _MAX_CACHED:
                self._cached_tokens.clear()
            self._cached_tokens[hashed] = (token, time.monotonic())
        return token

    async def _check_limits(self, token: Token, scope: "Scope") -> None:
        if token.is_limited:
            query = scope["query_string"].decode("latin-1")
            await to_thread.run_sync(check_path, self._db, token, scope["method"], scope["path"], query)


class _AccessDenied(Mistake):
    """A request without a valid token, or beyond the token's scope."""

    def __init__(self, status: int, code: str, what: str, fix: str) -> None:
        super().__init__(code, what, fix=fix)
        self.status = status
        error_attribute = ', error="invalid_token"' if code != "TOKEN_MISSING" else ""
        self.headers = {"WWW-Authenticate": f'Bearer realm="runnel"{error_attribute}'} if status == 401 else {}


def _read_secret(scope: "Scope") -> str:
    """Return the text of the token that a request came with."""
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
    scheme, _, secret = header.partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return secret.strip()
    fix = "send the header Authorization: Bearer TOKEN"
    raise _AccessDenied(401, "TOKEN_MISSING", "this request needs a token", fix)


def _only_reads(scope: "Scope") -> bool:
    return scope["method"] in _READ_METHODS or scope["path"] in _READ_ONLY_POSTS


def _check_scope(token: Token, scope: "Scope") -> None:
    """Refuse writes by tokens of scope `read`, token management by all but `admin`, and all but pushes by `push`."""
    if token.scope == tokens.PUSH:
        _check_push(token, scope)
        return
    if scope["path"].startswith(_TOKENS_PATH) and token.scope != tokens.ADMIN:
        what = f"the token `{token.name}` may not create, list, rotate or revoke tokens"
        raise _AccessDenied(403, "TOKEN_FORBIDDEN", what, f"use a token of scope {tokens.ADMIN}")
    if token.scope != tokens.READ or _only_reads(scope):
        return
    what = f"the token `{token.name}` may only read"
    raise _AccessDenied(403, "TOKEN_FORBIDDEN", what, f"use a token of scope {tokens.WRITE} or {tokens.ADMIN}")


def _check_push(token: Token, scope: "Scope") -> None:
    """Refuse all but events for the token's sources, and the question what the token may do."""
    if (scope["method"], scope["path"]) == ("GET", _OWN_TOKEN_PATH):
        return
    match = EVENTS_PATH.fullmatch(scope["path"])
    if scope["method"] == "POST" and match is not None and token.can_push_to(match["source"]):
        return
    what = f"the token `{token.name}` may only push events to {join_names(token.sources or ())}"
    raise _AccessDenied(403, "TOKEN_FORBIDDEN", what, "use another token; `runnel token create NAME` creates one")


def get_caller(request: Request) -> Token:
    """Return the token that a request came with."""
    token = request.state.caller
    assert isinstance(token, Token)
    return token
